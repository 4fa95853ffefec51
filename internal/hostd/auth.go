package hostd

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"unnest/internal/identity"
)

type callerKey struct{}

// caller is the guest that a handler's request comes from.
func caller(ctx context.Context) GuestRecord { return ctx.Value(callerKey{}).(GuestRecord) }

// authenticate is the interceptor before every handler: it finds the caller's
// record, and bounds the request's time.
func (d *daemon) authenticate(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	r, err := d.identify(ctx)
	var answer any
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, callerKey{}, r), requestTime)
		defer cancel()
		answer, err = handler(ctx, req)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		d.config.Logger.Warn("refuse", "peer", peerAddress(ctx), "guest", r.Name, "error", err)
	}
	return answer, err
}

// identify returns the record of the guest whose certificate the peer has shown.
func (d *daemon) identify(ctx context.Context) (GuestRecord, error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return GuestRecord{}, status.Error(codes.Unauthenticated, "connection has no TLS")
	}
	name, err := identity.GuestName(info.State)
	if err != nil {
		return GuestRecord{}, status.Error(codes.Unauthenticated, err.Error())
	}
	r, err := readRecord(d.config.StateDir, name)
	switch {
	case errors.Is(err, ErrNoRecord):
		return GuestRecord{Name: name}, status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		d.config.Logger.Error("identify", "guest", name, "error", err)
		return r, status.Errorf(codes.Internal, "the record of guest %s is not readable", name)
	case identity.Fingerprint(info.State.PeerCertificates[0]) != r.CertificateSHA256:
		return r, status.Errorf(codes.Unauthenticated, "certificate is not that of the present guest %s", name)
	}
	return r, nil
}

func peerAddress(ctx context.Context) string {
	p, _ := peer.FromContext(ctx) // every request has one
	return p.Addr.String()
}
