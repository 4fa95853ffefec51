package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/ipam"
)

// AttachNIC implements hostdpb.HostDaemonServer.
func (d *daemon) AttachNIC(ctx context.Context, r *hostdpb.AttachNICRequest) (_ *hostdpb.AttachNICResponse, err error) {
	begin, c := time.Now(), caller(ctx)
	key, err := attachmentKey(r.GetContainerId(), r.GetInterface())
	if err != nil {
		return nil, err
	}
	if r.GetMode() == hostdpb.Mode_MODE_SEGMENT {
		return nil, status.Error(codes.InvalidArgument, "an endpoint of a segment is no NIC of a bridge: use JoinSegment")
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
		if err := g.release(key); err != nil {
			g.log.Warn("release what it was given", "key", key, "error", err)
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
