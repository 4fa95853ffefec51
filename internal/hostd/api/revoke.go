package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/record"
)

// How often the certificates of a guest may be refused, as connections and as requests: at
// once, and then per second.
const (
	refusalBurst = 10
	refusalRate  = 1
)

var errRefusals = errors.New("certificates of the guest are refused too often")

// CloseRefused ends the connections of guests whose certificate was revoked or superseded,
// or that were removed. It leaves those that were refused when they were made: their clients
// are about to learn why.
func (h *Handler) CloseRefused() {
	h.closeIf(func(p peerIdentity) bool { return !p.refused && h.refuses(p) })
}

func (h *Handler) closeIf(refused func(peerIdentity) bool) {
	if l := h.listener(); l != nil {
		l.closeIf(refused)
	}
}

// refuses reports whether the daemon refuses requests with a certificate. It does not if it
// cannot read what it needs.
func (h *Handler) refuses(p peerIdentity) bool {
	if tenant, err := identity.PolicyTenant(p.certificate); err == nil {
		return grpcstatus.Code(h.Credentials.CheckPolicyClient(tenant, p.certificate)) == codes.Unauthenticated
	}
	c, err := h.Clients.Client(p.guest)
	if err == nil {
		_, err = h.Credentials.CheckCertificate(c.Record, p.certificate)
	}
	return errors.Is(err, record.ErrNoRecord) || grpcstatus.Code(err) == codes.Unauthenticated
}

// countRefusal counts a refused certificate of a guest. It reports whether there may be
// that many.
func (h *Handler) countRefusal(guest string) bool {
	h.Host.Metrics.RefusedCertificate(guest)
	return h.refusals.of(guest, refusalRate, refusalBurst).Allow()
}

// limitRefusals counts a request that was refused. Its connection ends if there were too
// many, so that the next one costs a handshake.
func (h *Handler) limitRefusals(ctx context.Context, guest string) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if h.countRefusal(guest) || !ok {
		return
	}
	certificate := identity.Fingerprint(info.State.PeerCertificates[0])
	h.closeIf(func(p peerIdentity) bool { return identity.Fingerprint(p.certificate) == certificate })
}
