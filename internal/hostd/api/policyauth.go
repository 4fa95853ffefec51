package api

import (
	"context"
	"time"
	"unnest.io/unnest/internal/hostapi/identity"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"
)

// policyCallerKey is the key of the tenant whose policy client calls.
type policyCallerKey struct{}

// authenticatePolicy runs before every stream, which only policy clients have.
func (h *Handler) authenticatePolicy(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	arrived(stream.Context(), true)
	begin := time.Now()
	err := coded(h.Host.Panics.Contain(info.FullMethod, func() error {
		tenant, err := h.identifyPolicy(stream.Context())
		if err != nil {
			h.refusePolicy(stream.Context(), err)
			return err
		}
		return handler(srv, policyStream{stream, context.WithValue(stream.Context(), policyCallerKey{}, tenant)})
	}))
	h.Host.Metrics.Request("Apply", grpcstatus.Code(err), begin)
	return err
}

// refusePolicy logs and counts a refused stream. As with requests, the connection ends if
// there are too many.
func (h *Handler) refusePolicy(ctx context.Context, err error) {
	guest := ""
	if p, _ := peer.FromContext(ctx); p != nil {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			guest, _ = identity.GuestName(info.State)
		}
	}
	h.limitRefusals(ctx, guest)
	h.Logs.Of(guest).Warn("refuse", "peer", peerAddress(ctx), "guest", guest, "error", err)
}

// policyStream is a stream whose caller is known.
type policyStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s policyStream) Context() context.Context { return s.ctx }

func (h *Handler) identifyPolicy(ctx context.Context) (tenant string, err error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return "", grpcstatus.Error(codes.Unauthenticated, "connection has no verified certificate")
	}
	certificate := info.State.PeerCertificates[0]
	if tenant, err = identity.PolicyTenant(certificate); err != nil {
		return "", grpcstatus.Error(codes.Unauthenticated, err.Error())
	}
	return tenant, h.Credentials.CheckPolicyClient(tenant, certificate)
}
