package daemon

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/certificates"
)

// How often a guest may renew its certificate: at once, and then.
const (
	renewalBurst    = 4
	renewalInterval = 10 * time.Minute
)

// Renew implements hostdpb.HostDaemonServer. A renewal that is refused counts for the
// limit too.
func (d *daemon) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	c := caller(ctx)
	name := c.record.Name
	if !d.renewals.allow(name, rate.Every(renewalInterval), renewalBurst) {
		return nil, grpcstatus.Errorf(codes.ResourceExhausted, "guest %s renews its certificate too often: want one renewal in %v", name, renewalInterval)
	}
	present := peerCertificate(ctx)
	authority, err := identity.OpenAuthority(d.config.StateDir)
	if err != nil {
		return nil, err
	}
	next, err := authority.Renew(name, present, r.GetCertificateRequest())
	if errors.Is(err, identity.ErrRequest) {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if err != nil {
		return nil, err
	}
	err = changeCertificates(d.config.StateDir, c.record, func(s certificates.Set) (certificates.Set, error) {
		return s.Renew(identity.Fingerprint(present), certificates.Certificate{
			SHA256: identity.Fingerprint(next), Serial: identity.Serial(next), Expires: next.NotAfter,
		}, time.Now())
	})
	switch {
	case errors.Is(err, certificates.ErrSuperseded):
		return nil, grpcstatus.Errorf(codes.FailedPrecondition, "renew certificate of guest %s: %v: call with that one", name, err)
	case errors.Is(err, certificates.ErrRevoked), errors.Is(err, certificates.ErrUnknown): // since the request was authenticated
		return nil, grpcstatus.Errorf(codes.Unauthenticated, "renew certificate of guest %s: %v", name, err)
	case err != nil:
		return nil, err
	}
	d.logs.of(name).Info("renew certificate", "guest", name, "peer", peerAddress(ctx),
		"present", identity.Serial(present), "serial", identity.Serial(next), "expires", next.NotAfter)
	return &hostdpb.RenewResponse{Certificate: next.Raw}, nil
}

// accept returns an error unless the present guest of a record may call with a
// certificate. It records the first request with a renewed one.
func (d *daemon) accept(r GuestRecord, c *x509.Certificate) error {
	unused, err := d.checkCertificate(r, c)
	if err != nil || !unused {
		return err
	}
	d.logs.of(r.Name).Info("use renewed certificate", "guest", r.Name, "serial", identity.Serial(c), "grace", certificates.Grace)
	if err := changeCertificates(d.config.StateDir, r, func(s certificates.Set) (certificates.Set, error) {
		return s.Use(identity.Fingerprint(c), time.Now()), nil
	}); err != nil { // the next request tries again
		d.logs.of(r.Name).Warn("use renewed certificate", "guest", r.Name, "error", err)
	}
	return nil
}

// checkCertificate returns an error unless the present guest of a record may call with a
// certificate, and whether it has not done so before.
func (d *daemon) checkCertificate(r GuestRecord, c *x509.Certificate) (unused bool, err error) {
	set, err := readCertificates(d.config.StateDir, r)
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
	d.expiries.see(fingerprint, c.NotAfter)
	return set.Unused(fingerprint), nil
}

// peerCertificate returns the verified certificate of the caller of an authenticated request.
func peerCertificate(ctx context.Context) *x509.Certificate {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
}
