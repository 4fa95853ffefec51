package guestrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/vmm"
)

// nics are the NICs of one guest: the state of its slots, and the VLANs on its trunk
// NIC.
type nics struct {
	*Guest
	slots
	plug      plug // the one under way
	trunk     *trunk
	unadopted map[attachment.Key]bool // attachments of an earlier daemon that are not taken over yet
	refilling bool                    // a plug for the pool is scheduled
	asked     time.Time               // the latest request
}

func newNICs(g *Guest) (*nics, error) {
	n := &nics{Guest: g, unadopted: map[attachment.Key]bool{}, trunk: &trunk{Guest: g, ports: map[attachment.Key]vlanPort{}, waiting: map[attachment.Key]*trunkWait{}}}
	n.slots = slots{perform: n.performAction, fed: n.fed}
	count := g.vmm.Slots()
	if count == 0 {
		return n, nil // the zero State has no slots
	}
	var err error
	n.state, err = hotplug.New(hotplug.Config{
		Prefix: g.Record.TAPPrefix(), Slots: count, MAC: g.Record.MACPrefix(), Pool: min(g.Record.Pool, count),
		UnplugTimeout: g.unplugTime, UnplugTries: unplugTries, Cooldown: slotCooldown,
	})
	return n, err
}

// fed ends the plug that was under way and refills the pool.
func (n *nics) fed(ctx context.Context) {
	n.plug = plug{}
	n.refillAfter(ctx, refillQuiet)
}

// explain says how to give a domain more slots, if err is that it has none left.
func (n *nics) explain(err error) error {
	if n.Record.Libvirt == nil || !errors.As(err, new(*hotplug.NoFreeSlotError)) {
		return err
	}
	return fmt.Errorf("domain %s has 0 free root ports: add <controller type='pci' model='pcie-root-port'/> to its definition for each further pod, "+
		"and start it again: %w", n.Record.Libvirt.Name, err)
}

// request is that of guest, for the NICs.
func (n *nics) request(ctx context.Context, event func(hotplug.RequestID) hotplug.Event, reply func(hotplug.Reply)) {
	n.asked = time.Now()
	n.Guest.request(ctx, &n.slots, event, reply)
}

// look lists what is in the guest's slots, and the host's TAPs.
func (n *nics) look(ctx context.Context) (hotplug.Observed, error) {
	devices, err := n.vmm.Devices(ctx)
	if err != nil {
		return hotplug.Observed{}, err
	}
	taps, err := ObserveTAPs()
	seen := hotplug.Observed{TAPs: taps}
	for _, d := range devices {
		seen.Devices = append(seen.Devices, hotplug.ObservedDevice{ID: d.ID, Slot: d.Slot})
	}
	return seen, err
}

// ObserveTAPs lists the TAPs of the network namespace, and the endpoints of its segments
// as TAPs of their own.
func ObserveTAPs() ([]hotplug.ObservedTAP, error) {
	links, err := link.List()
	if err != nil {
		return nil, fmt.Errorf("list TAPs: %w", err)
	}
	var taps []hotplug.ObservedTAP
	for _, l := range links {
		if !l.TAP {
			continue
		}
		t := hotplug.ObservedTAP{Name: l.Name, Warm: l.Alias == attachment.WarmAlias}
		t.Key, t.Record, _ = attachment.ParseAlias(l.Alias)
		taps = append(append(taps, t), segments.Observe(l.Alias, l.AltNames)...)
	}
	return taps, nil
}

// ReviveTAPs keeps the VMM alive if another program has deleted TAPs of its NICs, see tap.Revive.
// The containers of those NICs have no network from then on. there lists the host's TAPs.
func (g *Guest) ReviveTAPs(ctx context.Context, there []hotplug.ObservedTAP) {
	_ = g.submit(ctx, func(context.Context) { // does nothing if the guest's run has ended
		g.nics.revive("", func(name string) bool {
			return !slices.ContainsFunc(there, func(t hotplug.ObservedTAP) bool { return t.Name == name })
		})
	})
}

// reviveTAP is ReviveTAPs for the NIC of a device, before the daemon asks the guest for that NIC.
func (n *nics) reviveTAP(device string) {
	n.revive(device, func(name string) bool {
		endpoint, gone := n.host.Segments.Gone(name)
		if !endpoint {
			_, err := link.Find(name)
			gone = link.IsGone(err)
		}
		return gone
	})
}

// revive revives the VMM's TAPs if lacks says that the TAP of a device is gone, or that of any NIC of ours if device is "".
func (n *nics) revive(device string, lacks func(name string) bool) {
	pid := n.ProcessID()
	if pid == 0 || !slices.ContainsFunc(n.state.Slots(), func(s hotplug.Slot) bool {
		return s.Generation > 0 && s.Device == s.DeviceID() && (device == "" || s.Device == device) && lacks(s.TAP(n.Record.TAPPrefix()))
	}) {
		return
	}
	count, err := tap.Revive(pid)
	if count > 0 {
		n.log.Warn("another program deleted TAPs of the guest: their containers have no network", "taps", count)
	}
	if err != nil {
		n.log.Warn("keep the VMM alive without the TAPs that another program deleted", "error", err)
	}
}

func (n *nics) count() int {
	count := len(n.trunk.ports)
	for _, s := range n.state.Slots() {
		if s.Key != (attachment.Key{}) && s.Key.Kind != attachment.Trunk && s.Status != hotplug.Quarantined {
			count++
		}
	}
	return count
}

// performAction performs one action. It returns the event that follows, if one does.
func (n *nics) performAction(ctx context.Context, action hotplug.Action) hotplug.Event {
	if n.performCommon(ctx, &n.slots, action) {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	switch a := action.(type) {
	case hotplug.AddTAP:
		n.plug = plug{}
		return n.plug.do(a.Occupant, hotplug.StepTAP, func() error { return n.addTAP(a) })
	case hotplug.NetdevAdd:
		return n.plug.do(a.Occupant, hotplug.StepNetdev, func() error { return n.addNetdev(bound, a) })
	case hotplug.DeviceAdd:
		e := n.plug.do(a.Occupant, hotplug.StepDevice, func() error { return n.addDevice(bound, a) })
		if failed, ok := e.(hotplug.PlugFailed); ok && !failed.Uncertain {
			n.after(ctx, 0, n.repair) // others may have plugged a device into the slot
		}
		return e
	case hotplug.Connect:
		begin := time.Now()
		err := n.connect(a)
		n.plug.took("connect", begin)
		if err != nil {
			return hotplug.ConnectFailed{Occupant: a.Occupant, Err: err}
		}
		return hotplug.Connected{Occupant: a.Occupant}
	case hotplug.Disconnect:
		n.checkRemoved(ctx, a, n.disconnect(ctx, a))
	case hotplug.Adopted:
		n.tryAdopt(ctx, a.Attachment.Key)
	case hotplug.DeviceDel:
		n.reviveTAP(a.ID)
		return n.deleteDevice(bound, a)
	case hotplug.NetdevDel:
		n.checkRemoved(ctx, a, n.vmm.DeleteNetdev(bound, a.ID))
	case hotplug.CutTAP:
		n.checkRemoved(ctx, a, n.cutTAP(a.TAP))
	case hotplug.DelTAP:
		n.checkRemoved(ctx, a, n.deleteTAP(a.TAP))
	case hotplug.Released:
		n.checkRemoved(ctx, a, n.release(a.Key))
	case hotplug.Lost:
		key := a.Attachment.Key
		if a.Reset {
			n.log.Info("NIC is free: the guest was reset", "container", key.Owner, "interface", key.Name, "slot", a.Attachment.Slot)
			break
		}
		n.host.Metrics.Lost(n.Record.Name)
		n.log.Warn("NIC is lost: the guest has given it up unasked", "container", key.Owner, "interface", key.Name,
			"endpoint", key.Kind == attachment.Endpoint, "slot", a.Attachment.Slot)
	}
	return nil
}

// deleteDevice asks the guest for a device of either state.
func (g *Guest) deleteDevice(ctx context.Context, a hotplug.DeviceDel) hotplug.Event {
	err := g.vmm.DeleteDevice(ctx, a.ID)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vmm.ErrNotFound):
		return hotplug.DeviceDeleted{Device: a.ID}
	}
	return hotplug.UnplugRefused{Device: a.ID, Err: err}
}

// turn waits until the guest's tenant may change the host's network.
func (g *Guest) turn() *turns.Turn { return g.host.Turns.Take(g.Tenant.Name, g.Record.Name) }

// connect gives a NIC to its pod.
func (n *nics) connect(a hotplug.Connect) error {
	switch a.Key.Kind {
	case attachment.Trunk:
		return n.trunk.open(a.TAP)
	case attachment.Endpoint:
		return n.host.Segments.Connect(a.TAP, a.Key)
	}
	if err := n.changeMAC(a); err != nil {
		return err
	}
	err := n.connectNIC(a.Attachment, a.Record)
	if err != nil && a.Change {
		err = errors.Join(err, n.connectNIC(a.Attachment, a.Was))
	}
	return err
}

// changeMAC returns an error, and changes nothing, if another one has the pod's MAC. It has the bridge forget the MAC before.
func (n *nics) changeMAC(a hotplug.Connect) error {
	if a.Record.MAC == "" && a.Was.MAC == "" {
		return nil
	}
	turn := n.turn()
	defer turn.Done()
	err := n.host.Ports.CheckMAC(a.TAP, a.Record)
	if err == nil && a.Change && a.Was.MAC != a.Record.MAC {
		err = n.host.Ports.Leave(a.TAP)
	}
	return err
}

// connectNIC connects a NIC as a record says. It claims the addresses again: if the
// request has failed since it claimed them, they were released.
func (n *nics) connectNIC(a hotplug.Attachment, r attachment.Record) error {
	if err := n.Tenant.Hold(n.owner(a.Key), r); err != nil {
		return err
	}
	turn := n.turn()
	defer turn.Done()
	return n.host.Ports.Connect(turn, a.TAP, a.MAC, r, attachment.Alias(a.Key, r), n.Tenant.Multicasts())
}

// disconnect takes a NIC away from its pod, but not from the guest.
func (n *nics) disconnect(ctx context.Context, a hotplug.Disconnect) error {
	if a.Key.Kind == attachment.Trunk {
		n.trunk.removeAll(ctx)
		n.trunk.close()
	}
	if endpoint, err := n.host.Segments.Disconnect(a.TAP); endpoint {
		return err
	}
	turn := n.turn()
	defer turn.Done()
	return n.host.Ports.Disconnect(turn, a.TAP, a.MAC)
}

// cutTAP takes the host's end of a NIC that is still there off the network: its TAP, or an
// endpoint's queue.
func (n *nics) cutTAP(name string) error {
	if endpoint, err := n.host.Segments.ClosePort(name); endpoint {
		return err
	}
	turn := n.turn()
	defer turn.Done()
	_, err := n.host.Ports.Cut(turn, name)
	return err
}

// deleteTAP deletes the host's end of a NIC: its TAP, or an endpoint's queue.
func (n *nics) deleteTAP(name string) error {
	if endpoint, err := n.host.Segments.ClosePort(name); endpoint {
		return err
	}
	turn := n.turn()
	defer turn.Done()
	return n.host.Ports.Delete(turn, name)
}

// release takes back what was reserved for an attachment.
func (n *nics) release(key attachment.Key) error {
	n.Tenant.Release(n.owner(key))
	return n.host.Segments.Release(n.Record.Name, key)
}

// endpointMAC returns the MAC with which an endpoint's NIC is plugged.
func (n *nics) endpointMAC(r attachment.Record, o hotplug.Occupant) string {
	if r.OwnMAC {
		return o.MAC(n.Record.MACPrefix())
	}
	return segment.MAC(r.Fraction).String()
}
