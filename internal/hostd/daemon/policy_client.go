package daemon

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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/policy"
	"unnest/internal/hostd/status"
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
func EnrollPolicy(stateDir string, p policy.Policy, tenant, out string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("enroll policy client of tenant %q: %w", tenant, err)
		}
	}()
	if _, err := p.Tenant(tenant); err != nil {
		return err
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	authority, err := identity.OpenAuthority(stateDir)
	if err != nil {
		return err
	}
	c, err := authority.IssuePolicy(tenant)
	if err != nil {
		return err
	}
	dir, err := openOutput(out)
	if err != nil {
		return err
	}
	defer dir.Close()
	written, err := writeCredentials(dir, authority, c)
	if err == nil { // the client must not find a key that the daemon does not know
		err = writeJSON(policyClientPath(stateDir, tenant), policyClient{c.Fingerprint, c.Expires})
	}
	if err != nil {
		return errors.Join(err, removeAll(dir, written))
	}
	return nil
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

type policyCallerKey struct{}

// policyCaller returns the tenant whose policy client calls.
func policyCaller(ctx context.Context) string { return ctx.Value(policyCallerKey{}).(string) }

// authenticatePolicy runs before every stream, which only policy clients have.
func (d *daemon) authenticatePolicy(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	begin := time.Now()
	err := coded(d.host.contain(info.FullMethod, func() error {
		tenant, err := d.identifyPolicy(stream.Context())
		if err != nil {
			d.refusePolicy(stream.Context(), err)
			return err
		}
		return handler(srv, policyStream{stream, context.WithValue(stream.Context(), policyCallerKey{}, tenant)})
	}))
	d.metrics.Request("Apply", grpcstatus.Code(err), begin)
	return err
}

// refusePolicy logs and counts a refused stream. As with requests, the connection ends if
// there are too many.
func (d *daemon) refusePolicy(ctx context.Context, err error) {
	guest := ""
	if p, _ := peer.FromContext(ctx); p != nil {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			guest, _ = identity.GuestName(info.State)
		}
	}
	d.limitRefusals(ctx, guest)
	d.logs.of(guest).Warn("refuse", "peer", peerAddress(ctx), "guest", guest, "error", err)
}

// policyStream is a stream whose caller is known.
type policyStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s policyStream) Context() context.Context { return s.ctx }

func (d *daemon) identifyPolicy(ctx context.Context) (tenant string, err error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", grpcstatus.Error(codes.Unauthenticated, "connection has no verified certificate")
	}
	certificate := info.State.PeerCertificates[0]
	if tenant, err = identity.PolicyTenant(certificate); err != nil {
		return "", grpcstatus.Error(codes.Unauthenticated, err.Error())
	}
	return tenant, d.checkPolicyClient(tenant, certificate)
}

// checkPolicyClient returns an error unless a certificate is the latest of a tenant's policy
// client.
func (d *daemon) checkPolicyClient(tenant string, c *x509.Certificate) error {
	var r policyClient
	content, err := os.ReadFile(policyClientPath(d.config.StateDir, tenant))
	if err == nil {
		err = json.Unmarshal(content, &r)
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return grpcstatus.Errorf(codes.Internal, "the host daemon cannot read the record of the policy client of tenant %s", tenant)
	case err != nil || r.CertificateSHA256 != identity.Fingerprint(c):
		return grpcstatus.Errorf(codes.Unauthenticated, "the certificate is not that of the present policy client of tenant %s: run unnest hostd policy enroll %s", tenant, tenant)
	}
	return nil
}
