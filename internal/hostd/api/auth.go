package api

import (
	"context"
	"errors"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/tenant"
)

type callerKey struct{}

// Client is a guest that calls.
type Client struct {
	Record record.Guest
	Tenant *tenant.Tenant
}

// WithCaller returns a context of a request of a guest.
func WithCaller(ctx context.Context, c Client) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// caller returns the guest that sent a handler's request.
func caller(ctx context.Context) Client { return ctx.Value(callerKey{}).(Client) }

// authenticate runs before every handler: it identifies the caller, enforces its request
// rate, and bounds the request's time. After the handler it gives the error its code;
// the guest does not get the handler's answer with an error.
func (h *Handler) authenticate(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	arrived(ctx, false)
	begin := time.Now()
	var c Client
	var answer any
	err := coded(h.Host.Panics.Contain(info.FullMethod, func() (err error) {
		if c, err = h.identify(ctx); err != nil {
			return err
		}
		if !h.allow(c) {
			return status.Errorf(codes.ResourceExhausted, "guest %s sends more than %v requests a second: slow down", c.Record.Name, c.Tenant.Now().Limits.RequestsPerSecond)
		}
		ctx, cancel := context.WithTimeout(WithCaller(ctx, c), requestTime)
		defer cancel()
		ctx, stop := context.WithCancelCause(ctx)
		defer context.AfterFunc(h.serving, func() { stop(guestrun.ErrStopping) })()
		if err = h.admitAttach(ctx, info.FullMethod, c); err == nil {
			answer, err = handler(ctx, req)
		}
		return err
	}))
	h.Host.Metrics.Request(path.Base(info.FullMethod), status.Code(err), begin)
	if status.Code(err) == codes.Unauthenticated {
		h.limitRefusals(ctx, c.Record.Name)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		h.Logs.Of(c.Record.Name).Warn("refuse", "peer", peerAddress(ctx), "guest", c.Record.Name, "error", err)
	}
	return answer, err
}

// identify returns the guest that the peer's certificate was issued to.
func (h *Handler) identify(ctx context.Context) (Client, error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return Client{}, status.Error(codes.Unauthenticated, "connection has no TLS")
	}
	name, err := identity.GuestName(info.State)
	if err != nil {
		return Client{}, status.Error(codes.Unauthenticated, err.Error())
	}
	c, err := h.Clients.Client(name)
	switch {
	case errors.Is(err, record.ErrNoRecord):
		return Client{Record: record.Guest{Name: name}}, status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		h.Logs.Of(name).Error("identify", "guest", name, "error", err)
		return c, status.Errorf(codes.Internal, "the host daemon cannot read the record of guest %s: see its log", name)
	}
	err = h.Credentials.Accept(c.Record, info.State.PeerCertificates[0])
	if _, coded := status.FromError(err); !coded {
		h.Logs.Of(name).Error("identify", "guest", name, "error", err)
		err = status.Errorf(codes.Internal, "the host daemon cannot read the certificates of guest %s: see its log", name)
	}
	return c, err
}

func peerAddress(ctx context.Context) string {
	p, _ := peer.FromContext(ctx) // every request has one
	return p.Addr.String()
}
