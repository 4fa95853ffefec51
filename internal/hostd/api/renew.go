package api

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

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/guestrun"
)

// How often a guest may renew its certificate: at once, and then.
const (
	renewalBurst    = 4
	renewalInterval = 10 * time.Minute
)

// machineTime bounds the search for the guest's NICs during a renewal.
const machineTime = 2 * time.Second

// Renew implements hostdpb.HostDaemonServer. A renewal that is refused counts for the
// limit too.
func (h *Handler) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	c := caller(ctx)
	name := c.Record.Name
	if err := h.refuseClone(ctx, c); err != nil { // which takes none of the guest's renewals
		return nil, err
	}
	if !h.renewals.of(name, rate.Every(renewalInterval), renewalBurst).Allow() {
		return nil, grpcstatus.Errorf(codes.ResourceExhausted, "guest %s renews its certificate too often: want one renewal in %v", name, renewalInterval)
	}
	present := peerCertificate(ctx)
	next, err := h.Credentials.Renew(c.Record, present, r.GetCertificateRequest())
	switch {
	case errors.Is(err, identity.ErrRequest):
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, certificates.ErrSuperseded):
		return nil, grpcstatus.Errorf(codes.FailedPrecondition, "renew certificate of guest %s: %v: call with that one", name, err)
	case errors.Is(err, certificates.ErrRevoked), errors.Is(err, certificates.ErrUnknown): // since the request was authenticated
		return nil, grpcstatus.Errorf(codes.Unauthenticated, "renew certificate of guest %s: %v", name, err)
	case err != nil:
		return nil, err
	}
	h.Logs.Of(name).Info("renew certificate", "guest", name, "peer", peerAddress(ctx),
		"present", identity.Serial(present), "serial", identity.Serial(next), "expires", next.NotAfter)
	return &hostdpb.RenewResponse{Certificate: next.Raw}, nil
}

// refuseClone returns an error that wraps guestrun.ErrMachine if another machine calls with the guest's credentials. It returns
// nil if it cannot tell: a guest renews its certificate also while its VMM does not answer, because the certificate would expire.
func (h *Handler) refuseClone(ctx context.Context, c Client) error {
	ctx, cancel := context.WithTimeout(ctx, machineTime)
	defer cancel()
	if _, err := h.onMachine(ctx, c); errors.Is(err, guestrun.ErrMachine) {
		return err
	}
	return nil
}

// peerCertificate returns the verified certificate of the caller of an authenticated request.
func peerCertificate(ctx context.Context) *x509.Certificate {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0]
}
