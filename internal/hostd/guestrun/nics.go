package guestrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/segments"
	"unnest/internal/netdev/link"
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
	n := &nics{Guest: g, unadopted: map[attachment.Key]bool{}, trunk: &trunk{Guest: g, ports: map[attachment.Key]vlanPort{}}}
	n.slots = slots{perform: n.performAction, fed: n.fed}
	count := g.vmm.Slots()
	if count == 0 {
		return n, nil // the zero State has no slots
	}
	var err error
	n.state, err = hotplug.New(hotplug.Config{
		Prefix: g.Record.TapPrefix(), Slots: count, MAC: g.Record.MacPrefix(), Pool: min(g.Record.Pool, count),
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
	taps, err := observeTAPs()
	seen := hotplug.Observed{TAPs: taps}
	for _, d := range devices {
		seen.Devices = append(seen.Devices, hotplug.ObservedDevice{ID: d.ID, Slot: d.Slot})
	}
	return seen, err
}

// observeTAPs lists the TAPs of the network namespace, and the endpoints of its segments
// as TAPs of their own.
func observeTAPs() ([]hotplug.ObservedTAP, error) {
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

func (n *nics) count() int {
	count := len(n.trunk.ports)
	for _, s := range n.state.Slots() {
		if s.Key != (attachment.Key{}) && s.Key.Kind != attachment.Trunk && s.Status != hotplug.Quarantined {
			count++
		}
	}
	return count
}
