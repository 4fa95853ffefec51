package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/hostd/tenant"
)

// Protocol is the number of the protocol that this daemon speaks, as hostd.proto counts.
const Protocol = 3

// maxAddresses bounds the addresses that one request names. A NIC's alias has room for
// hardly more.
const maxAddresses = 16

var errNoTrunk = errors.New("the mode trunk is not offered: use hotplug")

// AttachNIC implements hostdpb.HostDaemonServer.
func (h *Handler) AttachNIC(ctx context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	begin, c := time.Now(), caller(ctx)
	w, err := h.wantedNIC(c.Tenant, r)
	if err != nil {
		return nil, err
	}
	got, err := onGuest(ctx, h, func(g *guestrun.Guest) (guestrun.Attached, error) { return g.Attach(ctx, w) })
	source := "plug"
	switch {
	case w.Trunk:
		source = "trunk"
	case got.Warm:
		source = "pool"
	}
	h.Host.Metrics.Attached(source, begin, coded(err))
	attrs := logAttrs(got)
	if p := r.GetPod(); p != nil {
		attrs = append(attrs, slog.String("pod", fmt.Sprintf("%.63s/%.253s", p.GetNamespace(), p.GetName())), slog.String("uid", w.Record.PodUID))
	}
	h.logAttachment(ctx, "attach", c.Record, w.Key, begin, err, attrs...)
	answer := &hostdpb.AttachNICResponse{Nic: got.NIC}
	for _, a := range got.Addresses {
		answer.Addresses = append(answer.Addresses, wireAddress(a))
	}
	return answer, err
}

// wantedNIC checks a request and returns the NIC that it asks for, as far as the tenant
// may have it.
func (h *Handler) wantedNIC(t *tenant.Tenant, r *hostdpb.AttachNICRequest) (w guestrun.WantedNIC, err error) {
	w = guestrun.WantedNIC{Allocate: r.GetAllocate(), Services: r.GetServices(), Cold: r.GetCold(), Trunk: r.GetMode() == hostdpb.Mode_MODE_TRUNK}
	if w.Key, err = attachmentKey(attachment.NIC, r.GetContainerId(), r.GetInterface()); err != nil {
		return w, err
	}
	if r.GetMode() == hostdpb.Mode_MODE_SEGMENT {
		return w, grpcstatus.Error(codes.InvalidArgument, "mode segment: an endpoint is not a NIC of a bridge: use JoinSegment")
	}
	n := &w.Record
	if n.Network, err = networkName(r.GetNetwork()); err != nil {
		return w, err
	}
	if n.Bridge, err = t.Now().BridgeFor(r.GetBridge()); err != nil {
		return w, err
	}
	if n.MTU, err = t.Now().MTUFor(int(r.GetMtu())); err != nil {
		return w, err
	}
	if given := len(r.GetAddresses()); given > maxAddresses {
		return w, grpcstatus.Errorf(codes.InvalidArgument, "%d addresses: want at most %d", given, maxAddresses)
	}
	for _, s := range r.GetAddresses() {
		a, err := netip.ParsePrefix(s)
		if err != nil || a.Addr().Is4In6() {
			return w, grpcstatus.Errorf(codes.InvalidArgument, "address %.60q: want ADDRESS/PREFIX-LENGTH", s)
		}
		n.Addresses = append(n.Addresses, a)
	}
	if w.Allocate && len(n.Addresses) > 0 {
		return w, grpcstatus.Error(codes.InvalidArgument, "allocate and addresses exclude each other")
	}
	if n.PodUID, err = podUID(t, r.GetPod()); err != nil {
		return w, err
	}
	if n.MAC, err = t.Now().MACFor(r.GetMac()); err != nil {
		return w, err
	}
	if n.MAC != "" && w.Trunk {
		return w, grpcstatus.Error(codes.InvalidArgument, "mac: a VLAN on the trunk has that of the daemon: use the mode hotplug")
	}
	n.DHCP = r.GetDhcp()
	b := r.GetBandwidth()
	n.Bandwidth = t.Now().BandwidthFor(quota.Bandwidth{
		IngressRate: b.GetIngressRate(), IngressBurst: b.GetIngressBurst(), EgressRate: b.GetEgressRate(), EgressBurst: b.GetEgressBurst(),
	})
	if w.Trunk && !h.Quotas().Trunk {
		return w, errNoTrunk
	}
	return w, nil
}

// podUID returns the UID of the pod for which a NIC is asked. A tenant without policies needs
// none, and its NICs can do with less room in their aliases if they are no pod's.
func podUID(t *tenant.Tenant, p *hostdpb.KubernetesPod) (string, error) {
	switch uid := p.GetUid(); {
	case attachment.IsPodUID(uid):
		return uid, nil
	case uid != "":
		return "", grpcstatus.Errorf(codes.InvalidArgument, "UID %.80q of a pod: want 1 to %d letters, digits and '-'", uid, attachment.MaxPodUID)
	case t.Now().NetworkPolicy != "":
		return attachment.NoPod, nil
	}
	return "", nil
}

func wireAddress(a ipam.Address) *hostdpb.Address {
	w := &hostdpb.Address{Address: a.Prefix.String()}
	if a.Gateway.IsValid() {
		w.Gateway = a.Gateway.String()
	}
	return w
}

func logAttrs(a guestrun.Attached) []slog.Attr {
	if a.NIC == nil {
		return a.Steps
	}
	return append([]slog.Attr{
		slog.String("mac", a.NIC.GetMac()), slog.Int("slot", int(a.NIC.GetSlot())), slog.Int("vlan", int(a.NIC.GetVlan())),
		slog.Bool("warm", a.Warm), slog.Any("addresses", a.NIC.GetAddresses()),
	}, a.Steps...)
}

// DetachNIC implements hostdpb.HostDaemonServer.
func (h *Handler) DetachNIC(ctx context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	key, err := attachmentKey(attachment.NIC, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	return &hostdpb.DetachNICResponse{}, h.detach(ctx, key, r.GetMac())
}

// detach takes a NIC or an endpoint away from the guest that calls: only the one with the MAC, if that is not empty.
func (h *Handler) detach(ctx context.Context, key attachment.Key, mac string) error {
	begin := time.Now()
	vlan, err := onGuest(ctx, h, func(g *guestrun.Guest) (bool, error) { return g.Detach(ctx, key, mac) })
	mode, what := "hotplug", "detach"
	switch {
	case vlan:
		mode = "trunk"
	case key.Kind == attachment.Endpoint:
		mode, what = "segment", "leave segment"
	}
	h.Host.Metrics.Detached(mode, begin, coded(err))
	h.logAttachment(ctx, what, caller(ctx).Record, key, begin, err)
	return err
}

// ListNICs implements hostdpb.HostDaemonServer.
func (h *Handler) ListNICs(ctx context.Context, _ *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	nics, err := onGuest(ctx, h, func(g *guestrun.Guest) ([]*hostdpb.NIC, error) { return g.List(ctx) })
	return &hostdpb.ListNICsResponse{Nics: nics}, err
}

// Check implements hostdpb.HostDaemonServer.
func (h *Handler) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	kind := attachment.NIC
	if r.GetEndpoint() {
		kind = attachment.Endpoint
	}
	key, err := attachmentKey(kind, r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	return onGuest(ctx, h, func(g *guestrun.Guest) (*hostdpb.CheckResponse, error) { return g.Check(ctx, key, r) })
}

// GC implements hostdpb.HostDaemonServer.
func (h *Handler) GC(ctx context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
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
	leaked, err := onGuest(ctx, h, func(g *guestrun.Guest) ([]attachment.Key, error) { return g.Leaked(ctx, network, valid) })
	answer := &hostdpb.GCResponse{}
	for _, key := range leaked { // a failure does not stop the others
		if failed := h.detach(ctx, key, ""); failed != nil {
			err = failed
			continue
		}
		answer.Removed = append(answer.Removed, &hostdpb.Attachment{ContainerId: key.Owner, Interface: key.Name})
	}
	return answer, err
}

// Status implements hostdpb.HostDaemonServer.
func (h *Handler) Status(ctx context.Context, r *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	c := caller(ctx)
	s, err := onGuest(ctx, h, func(g *guestrun.Guest) (status.Guest, error) { return g.RequestStatus(ctx) })
	if err != nil {
		return nil, err
	}
	return &hostdpb.StatusResponse{
		Version: h.Version, Guest: c.Record.Name, SlotsFree: uint32(s.SlotsFree), SlotsTotal: uint32(s.Slots),
		Protocol: Protocol, Tenant: c.Tenant.Name, Pool: uint32(s.Pool), PoolTarget: uint32(s.PoolTarget),
		SlotsQuarantined: uint32(s.SlotsQuarantined), Limited: c.Tenant.Limited(s, r.GetAllocate()),
		SegmentModes: wireModes(c.Tenant.Now().SegmentModes()), SegmentsLimited: h.segmentsLimited(c.Tenant, s),
		Nics:     &hostdpb.NICCount{Attached: uint32(s.Attachments), Free: uint32(c.Tenant.FreeNICs(s, r.GetAllocate()))},
		Policies: h.Host.Ports.Policies.State(c.Tenant.Name),
		Subnets:  wireSubnets(c.Tenant.Now().Ranges),
	}, nil
}

// wireSubnets are the subnets of ranges, each once.
func wireSubnets(ranges []ipam.Range) (all []*hostdpb.Subnet) {
	for i, r := range ranges {
		if slices.ContainsFunc(ranges[:i], func(before ipam.Range) bool { return before.Subnet == r.Subnet }) {
			continue
		}
		s := &hostdpb.Subnet{Prefix: r.Subnet.String()}
		if r.Gateway.IsValid() {
			s.Gateway = r.Gateway.String()
		}
		all = append(all, s)
	}
	return all
}

// segmentsLimited says why the daemon would refuse a segment now, "" when it would not.
func (h *Handler) segmentsLimited(t *tenant.Tenant, g status.Guest) string {
	if err := t.Now().AdmitSegment(h.Host.Segments.Count(t.Name)); err != nil {
		return err.Error()
	}
	return t.Limited(g, false)
}

func (h *Handler) logCall(ctx context.Context, what, guest string, err error, attrs ...slog.Attr) {
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelError, append(attrs, slog.Any("error", err))
	}
	h.Logs.Of(guest).LogAttrs(context.WithoutCancel(ctx), level, what, append([]slog.Attr{slog.String("guest", guest)}, attrs...)...)
}

func (h *Handler) logAttachment(ctx context.Context, what string, r record.Guest, key attachment.Key, begin time.Time, err error, more ...slog.Attr) {
	h.logCall(ctx, what, r.Name, err, append([]slog.Attr{
		slog.String("container", key.Owner), slog.String("interface", key.Name),
		slog.Duration("total", time.Since(begin)),
	}, more...)...)
}
