package guestrun

import (
	"context"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/share"
)

// request has the run goroutine serve a request of the guest's system, which is up then.
func request[T any](ctx context.Context, g *Guest, f func(ctx context.Context, answer func(T, error))) (T, error) {
	return serve(ctx, g, false, f)
}

// attach is request for one that attaches a NIC or an endpoint.
func attach(ctx context.Context, g *Guest, f func(ctx context.Context, answer func(Attached, error))) (Attached, error) {
	return serve(ctx, g, true, f)
}

func serve[T any](ctx context.Context, g *Guest, attaches bool, f func(ctx context.Context, answer func(T, error))) (T, error) {
	boot := g.bootOf(ctx)
	return call(ctx, g, func(ctx context.Context, answer func(T, error)) {
		if err := g.booted(ctx, boot, attaches); err != nil {
			var none T
			answer(none, err)
			return
		}
		g.nics.wake(ctx)
		f(ctx, answer)
	})
}

// Attach gives an attachment a NIC.
func (g *Guest) Attach(ctx context.Context, w WantedNIC) (Attached, error) {
	return attach(ctx, g, func(ctx context.Context, answer func(Attached, error)) { g.nics.attach(ctx, w, answer) })
}

// Join gives an attachment an endpoint of a segment.
func (g *Guest) Join(ctx context.Context, key attachment.Key, s segments.Spec) (Attached, error) {
	return attach(ctx, g, func(ctx context.Context, answer func(Attached, error)) { g.nics.join(ctx, key, s, answer) })
}

// Detach takes an attachment's NIC or endpoint away, and says whether it was a VLAN. If mac is not empty, the NIC must have
// it: else the error wraps ErrOtherNIC.
func (g *Guest) Detach(ctx context.Context, key attachment.Key, mac string) (vlan bool, err error) {
	return request(ctx, g, func(ctx context.Context, answer func(bool, error)) {
		if err := g.nics.checkMAC(key, mac); err != nil {
			answer(false, err)
			return
		}
		g.nics.detach(ctx, key, answer)
	})
}

// Take takes an attachment's NIC or endpoint away for the operator: it says nothing of the guest's system.
func (g *Guest) Take(ctx context.Context, key attachment.Key) error {
	_, err := call(ctx, g, func(ctx context.Context, answer func(bool, error)) { g.nics.detach(ctx, key, answer) })
	return err
}

// List describes the guest's NICs and VLANs.
func (g *Guest) List(ctx context.Context) ([]*hostdpb.NIC, error) {
	return request(ctx, g, func(_ context.Context, answer func([]*hostdpb.NIC, error)) { answer(g.nics.list(), nil) })
}

// Check compares an attachment with what a guest expects. The error wraps errNoAttachment,
// errNoEndpoint or errDamaged.
func (g *Guest) Check(ctx context.Context, key attachment.Key, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	return request(ctx, g, func(_ context.Context, answer func(*hostdpb.CheckResponse, error)) {
		if key.Kind == attachment.Endpoint {
			e, err := g.nics.checkEndpoint(key, r)
			answer(&hostdpb.CheckResponse{Endpoint: e}, err)
			return
		}
		nic, err := g.nics.checkNIC(key, r)
		answer(&hostdpb.CheckResponse{Nic: nic}, err)
	})
}

// Leaked lists the attachments that were made for a network and are not valid.
func (g *Guest) Leaked(ctx context.Context, network string, valid map[attachment.Key]bool) ([]attachment.Key, error) {
	return request(ctx, g, func(_ context.Context, answer func([]attachment.Key, error)) {
		answer(g.nics.leaked(network, valid), nil)
	})
}

// RequestStatus returns the numbers of what the guest has, for its own system. It lists no NICs.
func (g *Guest) RequestStatus(ctx context.Context) (status.Guest, error) {
	return request(ctx, g, func(_ context.Context, answer func(status.Guest, error)) { answer(g.status(false), nil) })
}

// AttachShare gives the guest a volume or shared memory. An ephemeral volume ends with the guest's boot.
func (g *Guest) AttachShare(ctx context.Context, q shares.Request) (shares.Shared, error) {
	return serve(ctx, g, q.Ephemeral, func(ctx context.Context, answer func(shares.Shared, error)) { g.shares.attach(ctx, q, answer) })
}

// EphemeralVolumes returns those that the guest has, and how it reaches them.
func (g *Guest) EphemeralVolumes(ctx context.Context) ([]shares.Shared, error) {
	return request(ctx, g, func(_ context.Context, answer func([]shares.Shared, error)) { answer(g.shares.ephemeral()) })
}

// DetachShare takes a volume or shared memory away.
func (g *Guest) DetachShare(ctx context.Context, id share.ID) (struct{}, error) {
	return request(ctx, g, func(ctx context.Context, answer func(struct{}, error)) { g.shares.detach(ctx, id, answer) })
}

// DescribeStatus describes the guest to the operator: it says nothing of the guest's system.
func (g *Guest) DescribeStatus(ctx context.Context) (status.Guest, error) {
	return read(ctx, g, func() status.Guest { return g.status(true) })
}
