package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/hotplug"
	"unnest/internal/ipam"
	"unnest/internal/policy"
	"unnest/internal/trunk"
	"unnest/internal/vmm"
)

// protocol is the number of what this daemon speaks, as the protocol's
// description counts.
const protocol = 2

// called returns the guest that calls, whose system is thus up.
func (d *daemon) called(ctx context.Context, c client) (*guest, error) {
	g, err := d.guest(ctx, c)
	if err == nil {
		g.wake(ctx)
	}
	return g, err
}

// AttachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) AttachNIC(ctx context.Context, r *hostdpb.AttachNICRequest) (_ *hostdpb.AttachNICResponse, err error) {
	begin, c := time.Now(), caller(ctx)
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	n, err := c.tenant.noteFor(r)
	if err != nil {
		return nil, coded(err)
	}
	g, err := d.called(ctx, c)
	if err != nil {
		return nil, coded(err)
	}
	if r.GetMode() == hostdpb.Mode_MODE_TRUNK && !d.config.Policy.Trunk {
		return nil, coded(errNoTrunk)
	}
	var got attached
	defer func() {
		d.metrics.attached(r.GetMode(), got.warm, begin, err)
		d.log(ctx, "attach", c.record, key, begin, err, got.attrs()...)
	}()
	chosen, err := g.takeAddresses(ctx, key, &n, r.GetAllocate())
	if err != nil {
		return nil, coded(err)
	}
	if r.GetMode() == hostdpb.Mode_MODE_TRUNK {
		got, err = g.attachVLAN(ctx, key, n)
	} else {
		got, err = g.attachNIC(ctx, key, n, r.GetCold())
	}
	if err != nil {
		g.giveBack(context.WithoutCancel(ctx), key)
		return nil, coded(err)
	}
	answer := &hostdpb.AttachNICResponse{Nic: got.nic}
	for _, a := range chosen {
		answer.Addresses = append(answer.Addresses, wireAddress(a))
	}
	return answer, nil
}

func wireAddress(a ipam.Address) *hostdpb.Address {
	w := &hostdpb.Address{Address: a.Prefix.String()}
	if a.Gateway.IsValid() {
		w.Gateway = a.Gateway.String()
	}
	return w
}

// noteFor is what an attachment is to be, as far as the tenant may have it.
func (t *tenant) noteFor(r *hostdpb.AttachNICRequest) (n note, err error) {
	if n.network, err = networkName(r.GetNetwork()); err != nil {
		return n, err
	}
	if n.bridge, err = t.BridgeFor(r.GetBridge()); err != nil {
		return n, err
	}
	if n.mtu, err = t.MTUFor(int(r.GetMtu())); err != nil {
		return n, err
	}
	for _, s := range r.GetAddresses() {
		a, err := netip.ParsePrefix(s)
		if err != nil {
			return n, status.Errorf(codes.InvalidArgument, "address %.60q: want ADDRESS/PREFIX-LENGTH", s)
		}
		n.addresses = append(n.addresses, a)
	}
	if r.GetAllocate() && len(n.addresses) > 0 {
		return n, status.Error(codes.InvalidArgument, "allocate and addresses exclude each other")
	}
	n.dhcp = r.GetDhcp()
	n.limits = limitsFor(t.Tenant, r.GetBandwidth())
	return n, nil
}

// attached is an attachment that has been made.
type attached struct {
	nic   *hostdpb.NIC
	warm  bool
	steps []slog.Attr
}

func (a attached) attrs() []slog.Attr {
	if a.nic == nil {
		return a.steps
	}
	return append([]slog.Attr{
		slog.String("mac", a.nic.GetMac()), slog.Int("slot", int(a.nic.GetSlot())), slog.Int("vlan", int(a.nic.GetVlan())),
		slog.Bool("warm", a.warm), slog.Any("addresses", a.nic.GetAddresses()),
	}, a.steps...)
}

// takeAddresses admits the attachment and gives it its addresses, which it
// writes into the note when it has chosen them.
func (g *guest) takeAddresses(ctx context.Context, key hotplug.Key, n *note, allocate bool) ([]ipam.Address, error) {
	count, err := ask(ctx, g, g.attachments)
	if err != nil {
		return nil, err
	}
	o := owner(g.record.Name, key)
	if err := g.tenant.admit(o, count); err != nil {
		return nil, err
	}
	if !allocate && len(n.addresses) == 0 { // those that it may have stay
		return nil, nil
	}
	chosen, err := g.tenant.take(o, n.addresses, allocate)
	if err != nil {
		g.giveBack(ctx, key)
		return nil, err
	}
	for _, a := range chosen {
		n.addresses = append(n.addresses, a.Prefix)
	}
	return chosen, nil
}

// attachments counts the guest's.
func (g *guest) attachments() int {
	n := len(g.vlans)
	for _, s := range g.state.Slots() {
		if s.Key != (hotplug.Key{}) && s.Key != trunkKey && s.Status != hotplug.Quarantined {
			n++
		}
	}
	return n
}

// giveBack takes back what an attachment that has failed was given, unless it
// has a NIC none the less.
func (g *guest) giveBack(ctx context.Context, key hotplug.Key) {
	release := func(context.Context) {
		if g.holds(key) {
			return
		}
		if err := g.tenant.release(owner(g.record.Name, key)); err != nil {
			g.log.Warn("release addresses", "key", key, "error", err)
		}
	}
	if g.submit(ctx, release) != nil { // its run has ended
		release(ctx)
	}
}

// holds reports whether key has a NIC, is getting one or losing it.
func (g *guest) holds(key hotplug.Key) bool {
	if _, ok := g.vlans[key]; ok {
		return true
	}
	for _, s := range g.state.Slots() {
		if s.Key == key && s.Status != hotplug.Quarantined {
			return true
		}
	}
	return false
}

// attachNIC gives the attachment a NIC of its own. One without addresses keeps
// those that it has.
func (g *guest) attachNIC(ctx context.Context, key hotplug.Key, n note, cold bool) (attached, error) {
	if err := checkOwner(key, n); err != nil {
		return attached{}, err
	}
	done, err := g.request(ctx, func(id hotplug.RequestID) hotplug.Event {
		return hotplug.Attach{Request: id, Key: key, Note: g.merge(key, n).String(), Cold: cold}
	})
	if err != nil {
		return attached{steps: done.steps}, err
	}
	nic, err := ask(ctx, g, func() *hostdpb.NIC {
		for _, s := range g.state.Slots() {
			if s.Key == key && s.Status == hotplug.Plugged {
				return g.describe(s)
			}
		}
		return nil
	})
	if err == nil && nic == nil {
		err = hotplug.ErrDetached
	}
	return attached{nic: nic, warm: done.warm, steps: done.steps}, err
}

var (
	errNoTrunk = errors.New("the mode trunk is not offered: use hotplug")
	errOwner   = errors.New("container ID, names and addresses are too long together")
)

// maxAlias is the most that the kernel keeps (IFALIASZ in include/uapi/linux/if.h,
// without the end).
const maxAlias = 255

func checkOwner(key hotplug.Key, n note) error {
	if l := len(hotplug.Owner(key, n.String())); l > maxAlias {
		return fmt.Errorf("%w: %d bytes of at most %d", errOwner, l, maxAlias)
	}
	return nil
}

// merge keeps the addresses that key has when the new note has none.
func (g *guest) merge(key hotplug.Key, n note) note {
	if len(n.addresses) > 0 {
		return n
	}
	for _, s := range g.state.Slots() {
		if s.Key == key && s.Note != "" {
			if old, err := parseNote(s.Note); err == nil {
				n.addresses = old.addresses
			}
		}
	}
	if v, ok := g.vlans[key]; ok {
		n.addresses = v.note.addresses
	}
	return n
}

// DetachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) DetachNIC(ctx context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.called(ctx, caller(ctx))
	if err == nil {
		err = d.detach(ctx, g, key)
	}
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.DetachNICResponse{}, nil
}

func (d *daemon) detach(ctx context.Context, g *guest, key hotplug.Key) error {
	begin := time.Now()
	vlan, err := ask(ctx, g, func() bool { return g.dropVLAN(key) })
	if err == nil && !vlan {
		_, err = g.request(ctx, func(id hotplug.RequestID) hotplug.Event { return hotplug.Detach{Request: id, Key: key} })
	}
	d.metrics.detached(vlan, begin, err)
	d.log(ctx, "detach", g.record, key, begin, err)
	return err
}

// ListNICs implements hostdpb.HostDaemonServer.
func (d *daemon) ListNICs(ctx context.Context, _ *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	nics, err := ask(ctx, g, g.nics)
	if err != nil {
		return nil, coded(err)
	}
	return &hostdpb.ListNICsResponse{Nics: nics}, nil
}

// Check implements hostdpb.HostDaemonServer.
func (d *daemon) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	type answer struct {
		nic *hostdpb.NIC
		err error
	}
	a, err := ask(ctx, g, func() answer {
		nic, err := g.checkNIC(key, r)
		return answer{nic, err}
	})
	if err = errors.Join(err, a.err); err != nil {
		return nil, coded(err)
	}
	return &hostdpb.CheckResponse{Nic: a.nic}, nil
}

// GC implements hostdpb.HostDaemonServer.
func (d *daemon) GC(ctx context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
	network, err := networkName(r.GetNetwork())
	if err != nil {
		return nil, err
	}
	valid := map[hotplug.Key]bool{}
	for _, a := range r.GetValid() {
		key, err := attachmentKey(a.GetContainerId(), a.GetInterface())
		if err != nil {
			return nil, err
		}
		valid[key] = true
	}
	g, err := d.called(ctx, caller(ctx))
	if err != nil {
		return nil, coded(err)
	}
	leaked, err := ask(ctx, g, func() []hotplug.Key { return g.leaked(network, valid) })
	if err != nil {
		return nil, coded(err)
	}
	answer := &hostdpb.GCResponse{}
	for _, key := range leaked {
		if err := d.detach(ctx, g, key); err != nil {
			return nil, coded(err)
		}
		answer.Removed = append(answer.Removed, &hostdpb.Attachment{ContainerId: key.ContainerID, Interface: key.Interface})
	}
	return answer, nil
}

// Status implements hostdpb.HostDaemonServer.
func (d *daemon) Status(ctx context.Context, r *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	c := caller(ctx)
	g, err := d.called(ctx, c)
	if err != nil {
		return nil, coded(err)
	}
	s, err := ask(ctx, g, g.status)
	if err != nil {
		return nil, coded(err)
	}
	limited := c.tenant.limited(s, r.GetAllocate())
	return &hostdpb.StatusResponse{
		Version: Version(), Guest: c.record.Name, SlotsFree: uint32(s.SlotsFree), SlotsTotal: uint32(s.Slots),
		Protocol: protocol, Tenant: c.tenant.Name, Pool: uint32(s.Pool), PoolTarget: uint32(s.PoolTarget),
		SlotsQuarantined: uint32(s.SlotsQuarantined), Limited: limited,
	}, nil
}

// limited says why an attachment would be refused now, "" when it would not.
func (t *tenant) limited(s GuestStatus, allocate bool) string {
	stats, owned := t.stats()
	if err := t.AdmitNIC(s.Attachments, owned); err != nil {
		return err.Error()
	}
	if s.SlotsFree+s.Pool == 0 {
		return fmt.Sprintf("no free NIC slot of %d (%d quarantined)", s.Slots, s.SlotsQuarantined)
	}
	if !allocate {
		return ""
	}
	if reason := exhausted(stats); reason != "" {
		return reason
	}
	return ""
}

// log writes one line for an attach or detach.
func (d *daemon) log(ctx context.Context, what string, r GuestRecord, key hotplug.Key, begin time.Time, err error, more ...slog.Attr) {
	attrs := append([]slog.Attr{
		slog.String("guest", r.Name), slog.String("container", key.ContainerID), slog.String("interface", key.Interface),
		slog.Duration("total", time.Since(begin)),
	}, more...)
	level := slog.LevelInfo
	if err != nil {
		level, attrs = slog.LevelError, append(attrs, slog.Any("error", err))
	}
	d.config.Logger.LogAttrs(context.WithoutCancel(ctx), level, what, attrs...)
}

// coded gives an error the code that the protocol's description promises.
func coded(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, errUnavailable), errors.Is(err, hotplug.ErrGuestGone), errors.Is(err, errStopping):
		code = codes.Unavailable
	case errors.Is(err, hotplug.ErrQuarantined), errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.As(err, new(*hotplug.NoFreeSlotError)), errors.Is(err, policy.ErrLimit), errors.As(err, new(*ipam.ExhaustedError)), errors.Is(err, trunk.ErrNoVLAN):
		code = codes.ResourceExhausted
	case errors.Is(err, policy.ErrMTU), errors.Is(err, errOwner):
		code = codes.InvalidArgument
	case errors.Is(err, policy.ErrBridge), errors.Is(err, ipam.ErrUnusable), errors.As(err, new(*ipam.TakenError)), errors.Is(err, errNoTrunk):
		code = codes.PermissionDenied
	case errors.Is(err, ipam.ErrNoRange):
		code = codes.FailedPrecondition
	case errors.Is(err, hotplug.ErrDetaching), errors.Is(err, hotplug.ErrDetached), errors.Is(err, hotplug.ErrDeviceLost), errors.Is(err, hotplug.ErrGuestReset):
		code = codes.Aborted
	case errors.Is(err, errNoAttachment):
		code = codes.NotFound
	case errors.Is(err, errDamaged):
		code = codes.FailedPrecondition
	}
	if plug := (*hotplug.PlugError)(nil); code == codes.Internal && errors.As(err, &plug) &&
		plug.Step != hotplug.StepTAP && !errors.As(err, new(*vmm.RefusedError)) {
		code = codes.Unavailable // the VMM has gone in the middle
	}
	return status.Error(code, err.Error())
}
