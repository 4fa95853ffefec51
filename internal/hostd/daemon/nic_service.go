package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/ipam"
	"unnest/internal/hostd/policy"
	"unnest/internal/hostd/status"
)

// protocol is the number of the protocol that this daemon speaks, as hostd.proto counts.
const protocol = 3

// maxAddresses bounds the addresses that one request names. A NIC's alias has room for
// hardly more.
const maxAddresses = 16

var errNoTrunk = errors.New("the mode trunk is not offered: use hotplug")

// onGuest has the guest that calls serve a request, in one round trip to its run
// goroutine.
func onGuest[T any](ctx context.Context, d *daemon, f func(ctx context.Context, g *guest, answer func(T, error))) (T, error) {
	g, err := d.guest(ctx, caller(ctx))
	if err != nil {
		var none T
		return none, err
	}
	return call(ctx, g, func(ctx context.Context, answer func(T, error)) {
		g.nics.wake(ctx) // a system that calls is up
		f(ctx, g, answer)
	})
}

// AttachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) AttachNIC(ctx context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	begin, c := time.Now(), caller(ctx)
	w, err := d.wantedNIC(c.tenant, r)
	if err != nil {
		return nil, err
	}
	got, err := onGuest(ctx, d, func(ctx context.Context, g *guest, answer func(attached, error)) { g.nics.attach(ctx, w, answer) })
	source := "plug"
	switch {
	case w.trunk:
		source = "trunk"
	case got.warm:
		source = "pool"
	}
	d.metrics.Attached(source, begin, coded(err))
	d.logAttachment(ctx, "attach", c.record, w.key, begin, err, got.logAttrs()...)
	answer := &hostdpb.AttachNICResponse{Nic: got.nic}
	for _, a := range got.addresses {
		answer.Addresses = append(answer.Addresses, wireAddress(a))
	}
	return answer, err
}

// wantedNIC checks a request and returns the NIC that it asks for, as far as the tenant
// may have it.
func (d *daemon) wantedNIC(t *tenant, r *hostdpb.AttachNICRequest) (w wantedNIC, err error) {
	w = wantedNIC{allocate: r.GetAllocate(), services: r.GetServices(), cold: r.GetCold(), trunk: r.GetMode() == hostdpb.Mode_MODE_TRUNK}
	if w.key, err = attachmentKey(attachment.NIC, r.GetContainerId(), r.GetInterface()); err != nil {
		return w, err
	}
	if r.GetMode() == hostdpb.Mode_MODE_SEGMENT {
		return w, grpcstatus.Error(codes.InvalidArgument, "mode segment: an endpoint is not a NIC of a bridge: use JoinSegment")
	}
	n := &w.record
	if n.Network, err = networkName(r.GetNetwork()); err != nil {
		return w, err
	}
	if n.Bridge, err = t.now().BridgeFor(r.GetBridge()); err != nil {
		return w, err
	}
	if n.MTU, err = t.MTUFor(int(r.GetMtu())); err != nil {
		return w, err
	}
	if given := len(r.GetAddresses()); given > maxAddresses {
		return w, grpcstatus.Errorf(codes.InvalidArgument, "%d addresses: want at most %d", given, maxAddresses)
	}
	for _, s := range r.GetAddresses() {
		a, err := netip.ParsePrefix(s)
		if err != nil {
			return w, grpcstatus.Errorf(codes.InvalidArgument, "address %.60q: want ADDRESS/PREFIX-LENGTH", s)
		}
		n.Addresses = append(n.Addresses, a)
	}
	if w.allocate && len(n.Addresses) > 0 {
		return w, grpcstatus.Error(codes.InvalidArgument, "allocate and addresses exclude each other")
	}
	n.DHCP = r.GetDhcp()
	b := r.GetBandwidth()
	n.Bandwidth = t.now().BandwidthFor(policy.Bandwidth{
		IngressRate: b.GetIngressRate(), IngressBurst: b.GetIngressBurst(), EgressRate: b.GetEgressRate(), EgressBurst: b.GetEgressBurst(),
	})
	if w.trunk && !d.policy().Trunk {
		return w, errNoTrunk
	}
	return w, nil
}

func wireAddress(a ipam.Address) *hostdpb.Address {
	w := &hostdpb.Address{Address: a.Prefix.String()}
	if a.Gateway.IsValid() {
		w.Gateway = a.Gateway.String()
	}
	return w
}

func (a attached) logAttrs() []slog.Attr {
	if a.nic == nil {
		return a.steps
	}
	return append([]slog.Attr{
		slog.String("mac", a.nic.GetMac()), slog.Int("slot", int(a.nic.GetSlot())), slog.Int("vlan", int(a.nic.GetVlan())),
		slog.Bool("warm", a.warm), slog.Any("addresses", a.nic.GetAddresses()),
	}, a.steps...)
}

// DetachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) DetachNIC(ctx context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	key, err := attachmentKey(attachment.NIC, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	return &hostdpb.DetachNICResponse{}, d.detach(ctx, key)
}

// detach takes a NIC or an endpoint away from the guest that calls.
func (d *daemon) detach(ctx context.Context, key attachment.Key) error {
	begin := time.Now()
	vlan, err := onGuest(ctx, d, func(ctx context.Context, g *guest, answer func(bool, error)) { g.nics.detach(ctx, key, answer) })
	mode, what := "hotplug", "detach"
	switch {
	case vlan:
		mode = "trunk"
	case key.Kind == attachment.Endpoint:
		mode, what = "segment", "leave segment"
	}
	d.metrics.Detached(mode, begin, coded(err))
	d.logAttachment(ctx, what, caller(ctx).record, key, begin, err)
	return err
}

// ListNICs implements hostdpb.HostDaemonServer.
func (d *daemon) ListNICs(ctx context.Context, _ *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	nics, err := onGuest(ctx, d, func(_ context.Context, g *guest, answer func([]*hostdpb.NIC, error)) { answer(g.nics.list(), nil) })
	return &hostdpb.ListNICsResponse{Nics: nics}, err
}

// Check implements hostdpb.HostDaemonServer.
func (d *daemon) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	kind := attachment.NIC
	if r.GetEndpoint() {
		kind = attachment.Endpoint
	}
	key, err := attachmentKey(kind, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	return onGuest(ctx, d, func(_ context.Context, g *guest, answer func(*hostdpb.CheckResponse, error)) {
		if kind == attachment.Endpoint {
			e, err := g.nics.checkEndpoint(key, r)
			answer(&hostdpb.CheckResponse{Endpoint: e}, err)
			return
		}
		nic, err := g.nics.checkNIC(key, r)
		answer(&hostdpb.CheckResponse{Nic: nic}, err)
	})
}

// GC implements hostdpb.HostDaemonServer.
func (d *daemon) GC(ctx context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
	network, err := networkName(r.GetNetwork())
	if err != nil {
		return nil, err
	}
	valid := map[attachment.Key]bool{}
	for _, a := range r.GetValid() {
		key, err := attachmentKey(attachment.NIC, a.GetContainerId(), a.GetInterface())
		if err != nil {
			return nil, err
		}
		valid[key] = true
	}
	leaked, err := onGuest(ctx, d, func(_ context.Context, g *guest, answer func([]attachment.Key, error)) {
		answer(g.nics.leaked(network, valid), nil)
	})
	answer := &hostdpb.GCResponse{}
	for _, key := range leaked { // a failure does not stop the others
		if failed := d.detach(ctx, key); failed != nil {
			err = failed
			continue
		}
		answer.Removed = append(answer.Removed, &hostdpb.Attachment{ContainerId: key.Owner, Interface: key.Name})
	}
	return answer, err
}

// Status implements hostdpb.HostDaemonServer.
func (d *daemon) Status(ctx context.Context, r *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	c := caller(ctx)
	s, err := onGuest(ctx, d, func(_ context.Context, g *guest, answer func(status.Guest, error)) { answer(g.status(), nil) })
	if err != nil {
		return nil, err
	}
	return &hostdpb.StatusResponse{
		Version: Version(), Guest: c.record.Name, SlotsFree: uint32(s.SlotsFree), SlotsTotal: uint32(s.Slots),
		Protocol: protocol, Tenant: c.tenant.Name, Pool: uint32(s.Pool), PoolTarget: uint32(s.PoolTarget),
		SlotsQuarantined: uint32(s.SlotsQuarantined), Limited: c.tenant.limited(s, r.GetAllocate()),
		SegmentModes: wireModes(c.tenant.now().SegmentModes()), SegmentsLimited: d.segmentsLimited(c.tenant, s),
		Nics: &hostdpb.NICCount{Attached: uint32(s.Attachments), Free: uint32(c.tenant.freeNICs(s, r.GetAllocate()))},
	}, nil
}

// limited says why the daemon would refuse an attachment now, "" when it would not.
func (t *tenant) limited(s status.Guest, allocate bool) string {
	stats, owned := t.stats()
	if err := t.now().AdmitNIC(s.Attachments, owned); err != nil {
		return err.Error()
	}
	if s.SlotsFree+s.Pool == 0 { // a warm NIC makes room
		return fmt.Sprintf("no free NIC slot of %d (%d with other devices, %d quarantined)", s.Slots, s.SlotsForeign, s.SlotsQuarantined)
	}
	if allocate {
		return exhausted(stats)
	}
	return ""
}

// freeNICs returns how many more NICs the guest's pods can get, with allocate also an address of
// each family for each.
func (t *tenant) freeNICs(s status.Guest, allocate bool) int {
	stats, owned := t.stats()
	free := min(s.SlotsFree+s.Pool, t.now().FreeNICs(s.Attachments, owned))
	if !allocate {
		return free
	}
	for _, r := range stats.Ranges {
		free = int(min(uint64(free), r.Free))
	}
	if held, each := t.held(s.Name); each > 0 {
		free = min(free, t.now().FreeAddresses(held)/each)
	}
	return free
}

// segmentsLimited says why the daemon would refuse a segment now, "" when it would not.
func (d *daemon) segmentsLimited(t *tenant, g status.Guest) string {
	if err := t.now().AdmitSegment(d.host.segments.Count(t.Name)); err != nil {
		return err.Error()
	}
	return t.limited(g, false)
}

func (d *daemon) log(ctx context.Context, what, guest string, err error, attrs ...slog.Attr) {
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelError, append(attrs, slog.Any("error", err))
	}
	d.logs.of(guest).LogAttrs(context.WithoutCancel(ctx), level, what, append([]slog.Attr{slog.String("guest", guest)}, attrs...)...)
}

func (d *daemon) logAttachment(ctx context.Context, what string, r GuestRecord, key attachment.Key, begin time.Time, err error, more ...slog.Attr) {
	d.log(ctx, what, r.Name, err, append([]slog.Attr{
		slog.String("container", key.Owner), slog.String("interface", key.Name),
		slog.Duration("total", time.Since(begin)),
	}, more...)...)
}
