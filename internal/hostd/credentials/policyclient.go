package credentials

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/hostd/status"
)

// policyClient is the record of the client that may choose the connections of a tenant's
// pods.
type policyClient struct {
	CertificateSHA256  string    `json:"certificate_sha256"`
	CertificateExpires time.Time `json:"certificate_expires"`
}

func policyClientPath(stateDir, tenant string) string {
	return filepath.Join(stateDir, "policy-clients", tenant+".json")
}

// EnrollPolicy issues the credentials of the policy client of a tenant, and writes them to
// the directory out in the form of a guest's. Earlier credentials become invalid.
func EnrollPolicy(stateDir string, p quota.Config, tenant, out string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("enroll policy client of tenant %q: %w", tenant, err)
		}
	}()
	if _, err := p.Tenant(tenant); err != nil {
		return err
	}
	return issue(stateDir, out, func(a *identity.Authority) (identity.Credentials, error) { return a.IssuePolicy(tenant) }, func(c identity.Credentials) error {
		return statefile.Write(policyClientPath(stateDir, tenant), policyClient{c.Fingerprint, c.Expires})
	})
}

// RevokePolicy ends the rights of the policy client of a tenant. A daemon that runs ends its
// connections before RevokePolicy returns. What is in force stays.
func RevokePolicy(ctx context.Context, stateDir, tenant string) error {
	if err := identity.CheckGuestName(tenant); err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	if err := os.Remove(policyClientPath(stateDir, tenant)); err != nil {
		return fmt.Errorf("revoke policy client of tenant %s: %w", tenant, err)
	}
	return status.CheckConnections(ctx, stateDir)
}

// policyClient reads the record of a tenant's policy client.
func (k *Store) policyClient(tenant string) (r policyClient, err error) {
	content, err := os.ReadFile(policyClientPath(k.stateDir, tenant))
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	return r, err
}

// PolicyClientExpires returns when the certificate of a tenant's policy client expires, zero if the tenant has none or its record cannot be read.
func (k *Store) PolicyClientExpires(tenant string) time.Time {
	r, _ := k.policyClient(tenant)
	return r.CertificateExpires
}

// CheckPolicyClient returns an error unless a certificate is the latest of a tenant's policy
// client.
func (k *Store) CheckPolicyClient(tenant string, c *x509.Certificate) error {
	r, err := k.policyClient(tenant)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return grpcstatus.Errorf(codes.Internal, "the host daemon cannot read the record of the policy client of tenant %s", tenant)
	case err != nil || r.CertificateSHA256 != identity.Fingerprint(c):
		return grpcstatus.Errorf(codes.Unauthenticated, "the certificate is not that of the present policy client of tenant %s: run unnest hostd policy enroll %s", tenant, tenant)
	}
	return nil
}
