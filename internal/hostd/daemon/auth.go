package daemon

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

	"unnest/internal/hostapi/identity"
)

type callerKey struct{}

// client is a guest that calls.
type client struct {
	record GuestRecord
	tenant *tenant
}

// caller returns the guest that sent a handler's request.
func caller(ctx context.Context) client { return ctx.Value(callerKey{}).(client) }

// authenticate runs before every handler: it identifies the caller, enforces its request
// rate, and bounds the request's time. After the handler it gives the error its code;
// the guest does not get the handler's answer with an error.
func (d *daemon) authenticate(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	begin := time.Now()
	var c client
	var answer any
	err := coded(d.host.contain(info.FullMethod, func() (err error) {
		if c, err = d.identify(ctx); err != nil {
			return err
		}
		if !d.allow(c) {
			return status.Errorf(codes.ResourceExhausted, "guest %s sends more than %v requests a second: slow down", c.record.Name, c.tenant.now().Limits.RequestsPerSecond)
		}
		ctx, cancel := context.WithTimeout(context.WithValue(ctx, callerKey{}, c), requestTime)
		defer cancel()
		ctx, stop := context.WithCancelCause(ctx)
		defer context.AfterFunc(d.serving, func() { stop(errStopping) })()
		answer, err = handler(ctx, req)
		return err
	}))
	d.metrics.Request(path.Base(info.FullMethod), status.Code(err), begin)
	if status.Code(err) == codes.Unauthenticated {
		d.limitRefusals(ctx, c.record.Name)
	}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		d.logs.of(c.record.Name).Warn("refuse", "peer", peerAddress(ctx), "guest", c.record.Name, "error", err)
	}
	return answer, err
}

// identify returns the guest that the peer's certificate was issued to.
func (d *daemon) identify(ctx context.Context) (client, error) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return client{}, status.Error(codes.Unauthenticated, "connection has no TLS")
	}
	name, err := identity.GuestName(info.State)
	if err != nil {
		return client{}, status.Error(codes.Unauthenticated, err.Error())
	}
	c, err := d.client(name)
	switch {
	case errors.Is(err, ErrNoRecord):
		return client{record: GuestRecord{Name: name}}, status.Error(codes.Unauthenticated, err.Error())
	case err != nil:
		d.logs.of(name).Error("identify", "guest", name, "error", err)
		return c, status.Errorf(codes.Internal, "the host daemon cannot read the record of guest %s: see its log", name)
	}
	err = d.accept(c.record, info.State.PeerCertificates[0])
	if _, coded := status.FromError(err); !coded {
		d.logs.of(name).Error("identify", "guest", name, "error", err)
		err = status.Errorf(codes.Internal, "the host daemon cannot read the certificates of guest %s: see its log", name)
	}
	return c, err
}

// client returns the guest with a name.
func (d *daemon) client(name string) (client, error) {
	r, err := readRecord(d.config.StateDir, name, d.policy().Guests)
	if err != nil {
		return client{record: r}, err
	}
	t := d.tenant(r.Tenant)
	if t == nil {
		_, err = d.policy().Tenant(r.Tenant)
		return client{record: r}, err
	}
	return client{record: r, tenant: t}, nil
}

func peerAddress(ctx context.Context) string {
	p, _ := peer.FromContext(ctx) // every request has one
	return p.Addr.String()
}
