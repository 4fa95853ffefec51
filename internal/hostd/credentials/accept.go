package credentials

import (
	"crypto/x509"
	"errors"
	"time"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/certificates"

	"unnest.io/unnest/internal/hostd/record"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
)

// Renew issues the certificate that a guest asks for in place of the one that it has
// called with, and records it. The error wraps identity.ErrRequest when the request is not
// valid, and otherwise those of certificates.Set.Renew.
func (k *Store) Renew(r record.Guest, present *x509.Certificate, request []byte) (next *x509.Certificate, err error) {
	authority, err := identity.OpenAuthority(k.stateDir)
	if err != nil {
		return nil, err
	}
	if next, err = authority.Renew(r.Name, present, request); err != nil {
		return nil, err
	}
	return next, record.ChangeCertificates(k.stateDir, r, func(s certificates.Set) (certificates.Set, error) {
		return s.Renew(identity.Fingerprint(present), certificates.Certificate{
			SHA256: identity.Fingerprint(next), Serial: identity.Serial(next), Expires: next.NotAfter,
		}, time.Now())
	})
}

// Accept returns an error unless the present guest of a record may call with a
// certificate. It records the first request with a renewed one.
func (k *Store) Accept(r record.Guest, c *x509.Certificate) error {
	unused, err := k.CheckCertificate(r, c)
	if err != nil || !unused {
		return err
	}
	k.logs.Of(r.Name).Info("use renewed certificate", "guest", r.Name, "serial", identity.Serial(c), "grace", certificates.Grace)
	if err := record.ChangeCertificates(k.stateDir, r, func(s certificates.Set) (certificates.Set, error) {
		return s.Use(identity.Fingerprint(c), time.Now()), nil
	}); err != nil { // the next request tries again
		k.logs.Of(r.Name).Warn("use renewed certificate", "guest", r.Name, "error", err)
	}
	return nil
}

// CheckCertificate returns an error unless the present guest of a record may call with a
// certificate, and whether it has not done so before.
func (k *Store) CheckCertificate(r record.Guest, c *x509.Certificate) (unused bool, err error) {
	set, err := record.Certificates(k.stateDir, r)
	if err != nil {
		return false, err
	}
	now, fingerprint := time.Now(), identity.Fingerprint(c)
	switch err := set.Check(fingerprint, now); {
	case errors.Is(err, certificates.ErrUnknown):
		return false, grpcstatus.Errorf(codes.Unauthenticated, "the certificate is not that of the present guest %s", r.Name)
	case errors.Is(err, certificates.ErrSuperseded):
		return false, grpcstatus.Errorf(codes.Unauthenticated,
			"certificate of guest %s: %v: use that one; if the guest has not renewed it, run unnest hostd revoke %[1]s on the host", r.Name, err)
	case err != nil:
		return false, grpcstatus.Errorf(codes.Unauthenticated,
			"certificate of guest %s: %v; run unnest hostd enroll %[1]s on the host and copy the files to the guest", r.Name, err)
	case now.After(c.NotAfter):
		return false, grpcstatus.Error(codes.Unauthenticated, identity.Expired(c).Error())
	}
	k.expiries.see(fingerprint, c.NotAfter)
	return set.Unused(fingerprint), nil
}
