package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/vmm/qemu"
)

// The guest's part in segments: endpoints are NICs in its slots, whose end on the
// host is a queue.

var errNoQueues = errors.New("the guest's VMM opens TAPs by their names, which a segment's queue has not: run the guest in QEMU with a QMP socket for the daemon")

// observeEndpoints lists what stands for the TAPs of a segment's endpoints.
func observeEndpoints(tap *netlink.LinkAttrs) (taps []hotplug.ObservedTAP) {
	t, ok := parseTitle(tap.Alias)
	if !ok {
		return nil
	}
	for _, tk := range tickets(tap.AltNames) {
		seen := hotplug.ObservedTAP{Name: tk.port, Bound: true}
		if tk.key != (hotplug.Key{}) {
			n := note{pod: t.pod, network: t.network, fraction: tk.fraction, ownMAC: tk.ownMAC}
			seen.Owner = hotplug.Owner(endpointKey(tk.key), n.String())
		}
		taps = append(taps, seen)
	}
	return taps
}

// deleteEnd deletes the host's end of a NIC: its port, or an endpoint's queue.
func (h *host) deleteEnd(name string) error {
	if endpoint, err := h.segments.close(name); endpoint {
		return err
	}
	return h.deletePort(name)
}

// openQueue gives an endpoint's NIC its queue of the segment.
func (g *guest) openQueue(a hotplug.AddTAP) error {
	n, err := parseNote(a.Note)
	if err != nil {
		return err
	}
	g.plug.endpoint = &n
	g.plug.tap, err = g.host.segments.open(owner(g.record.Name, a.Key), a.Name)
	return err
}

// endpointMAC is the MAC of an endpoint's NIC as it is plugged.
func (g *guest) endpointMAC(n note, o hotplug.Occupant) string {
	if n.ownMAC {
		return o.MAC(g.record.macPrefix())
	}
	return segment.MAC(n.fraction).String()
}

// release takes back what was reserved for an attachment.
func (g *guest) release(key hotplug.Key) error {
	o := owner(g.record.Name, key)
	return errors.Join(g.tenant.release(o), g.host.segments.release(o))
}

// adoptEndpoint takes over an endpoint whose segment has been taken over.
func (g *guest) adoptEndpoint(a hotplug.Attachment) error {
	if err := g.tenant.adopt(owner(g.record.Name, a.Key), nil); err != nil {
		return err
	}
	return g.host.segments.connect(a.TAP, a.Key)
}

// takenFractions are those whose MAC a NIC has that is lost in its slot: it has no
// seat any more.
func (g *guest) takenFractions() (taken segment.Set) {
	for _, s := range g.state.Slots() {
		if n, err := parseNote(s.Note); err == nil && n.pod != "" && !n.ownMAC {
			taken = taken.With(n.fraction)
		}
	}
	return taken
}

// join gives the attachment an endpoint of the segment. key is the endpoint's.
func (g *guest) join(ctx context.Context, key hotplug.Key, w wanted) (*hostdpb.Endpoint, attached, error) {
	type before struct {
		count  int
		taken  segment.Set
		queues bool
	}
	b, err := ask(ctx, g, func() before { return before{g.attachments(), g.takenFractions(), !g.vmm.PersistentTAPs()} })
	if err != nil {
		return nil, attached{}, err
	}
	if !b.queues {
		return nil, attached{}, errNoQueues
	}
	o := owner(g.record.Name, key)
	if err := g.tenant.admit(o, b.count); err != nil {
		return nil, attached{}, err
	}
	n, err := g.host.segments.reserve(g.tenant.Tenant, w, g.record.Name, o, b.taken)
	if err != nil {
		g.giveBack(context.WithoutCancel(ctx), key)
		return nil, attached{}, err
	}
	done, err := g.request(ctx, func(id hotplug.RequestID) hotplug.Event {
		return hotplug.Attach{Request: id, Key: key, Note: n.String(), Bound: true}
	})
	if err != nil {
		g.giveBack(context.WithoutCancel(ctx), key)
		return nil, attached{steps: done.steps}, err
	}
	e, err := ask(ctx, g, func() *hostdpb.Endpoint { return g.endpoint(key) })
	if err == nil && e == nil {
		err = hotplug.ErrDetached
	}
	return e, attached{steps: done.steps}, err
}

// endpoint describes an attachment's endpoint; nil if it has none.
func (g *guest) endpoint(key hotplug.Key) *hostdpb.Endpoint {
	for _, s := range g.state.Slots() {
		if s.Key != key || s.Status != hotplug.Plugged {
			continue
		}
		n, err := parseNote(s.Note)
		if err != nil {
			return nil
		}
		plain, _ := plainKey(key)
		e := &hostdpb.Endpoint{
			ContainerId: plain.ContainerID, Interface: plain.Interface, Mac: g.endpointMAC(n, s.Occupant),
			SegmentMac: segment.MAC(n.fraction).String(), Mtu: segment.MTU, Slot: uint32(s.Slot), State: states[s.Status],
			Pod: n.pod, Network: n.network, Fraction: uint32(n.fraction),
		}
		low, high := segment.Ports(n.fraction)
		e.PortLow, e.PortHigh = uint32(low), uint32(high)
		mode, m := g.host.segments.membership(s.TAP(g.record.tapPrefix()))
		e.Mode, e.Members, e.Generation = wireMode(mode), uint32(m.Members), m.Generation
		return e
	}
	return nil
}

// describeEndpoint completes the description of an endpoint as a NIC.
func (g *guest) describeEndpoint(nic *hostdpb.NIC, n note, o hotplug.Occupant) {
	nic.Mode, nic.Pod, nic.Fraction = hostdpb.Mode_MODE_SEGMENT, n.pod, uint32(n.fraction)
	nic.Mac, nic.Mtu = g.endpointMAC(n, o), segment.MTU
}

// checkEndpoint compares an attachment's endpoint with what is there.
func (g *guest) checkEndpoint(key hotplug.Key, r *hostdpb.CheckRequest) (*hostdpb.Endpoint, error) {
	e := g.endpoint(endpointKey(key))
	if e == nil {
		return nil, fmt.Errorf("check %s: %w", key, errNoEndpoint)
	}
	err := g.host.segments.check(owner(g.record.Name, endpointKey(key)))
	switch {
	case r.GetMac() != "" && r.GetMac() != e.GetMac():
		err = fmt.Errorf("MAC is %s, want %s", e.GetMac(), r.GetMac())
	case r.GetPod() != "" && r.GetPod() != e.GetPod():
		err = fmt.Errorf("it is in the segment of %s, want %s", e.GetPod(), r.GetPod())
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w: %w", key, errDamaged, err)
	}
	return e, nil
}

// departTime is how long the VMM's process may take to end after its connection has.
const departTime = 200 * time.Millisecond

// depart takes a guest whose run has ended by itself out of its segments, if its VMM
// has ended: the others are not to wait for it. ctx is the run's.
func (d *daemon) depart(ctx context.Context, g *guest) {
	if ctx.Err() != nil || g.record.QMP == "" || !d.host.segments.has(g.record.Name) {
		return
	}
	pid, err := qemu.PID(ctx, g.record.QMP)
	if err == nil && !exits(pid, departTime) || err != nil && !notListening(err) {
		return
	}
	if err := d.host.segments.drop(g.record.Name); err != nil {
		g.log.Warn("leave segments", "error", err)
	}
}

// exits reports whether a process has ended, or does so in time.
func exits(pid int, within time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
