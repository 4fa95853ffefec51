package daemon

import (
	"errors"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/vlan"
)

// guardBootNICs keeps the NICs that the guest has from its start to their own
// addresses, and those from the tenant's pods.
func (g *guest) guardBootNICs() error {
	for _, n := range g.record.NICs {
		for _, a := range n.Addresses {
			g.tenant.reserve(a, g.record.Name)
		}
		if n.TAP == "" {
			continue
		}
		if err := g.host.guardBoot(n); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over an attachment of an earlier daemon, which may have died in the
// middle of a change: whose the addresses are, and what the port may send.
func (g *guest) adopt(a hotplug.Attachment) error {
	if a.Key == trunkKey {
		return g.adoptTrunk(a.TAP, a.MAC)
	}
	n, err := parseNote(a.Note)
	if err != nil {
		return err
	}
	if n.pod != "" {
		return g.adoptEndpoint(a)
	}
	return g.adoptPort(a.Key, n, a.TAP, a.MAC)
}

func (g *guest) adoptTrunk(port, mac string) (err error) {
	if g.trunk != nil {
		return nil
	}
	if g.trunk, err = vlan.Open(port, g.vlanPrefix()); err != nil {
		return err
	}
	return errors.Join(g.host.guard(port, mac, note{}), g.adoptVLANs())
}

// adoptPort counts an attachment and its addresses, and connects its port as the
// note says. When another has one of the addresses by now, it may send from none.
func (g *guest) adoptPort(key hotplug.Key, n note, port, mac string) error {
	alias := hotplug.Owner(key, n.String())
	if err := g.tenant.adopt(owner(g.record.Name, key), n.addresses); err != nil {
		g.log.Error("take over addresses", "container", key.ContainerID, "interface", key.Interface, "error", err)
		n.addresses = nil
	}
	return g.host.connect(port, mac, n, alias)
}

// nics lists what is in the guest's slots, and its VLANs.
func (g *guest) nics() (nics []*hostdpb.NIC) {
	for _, s := range g.state.Slots() {
		if s.Device != "" && s.Key != trunkKey {
			nics = append(nics, g.describe(s))
		}
	}
	for key, v := range g.vlans {
		nics = append(nics, g.describeVLAN(key, v))
	}
	return nics
}

// describe puts a slot that is not free in the words of the protocol.
func (g *guest) describe(s hotplug.Slot) *hostdpb.NIC {
	key, _ := plainKey(s.Key)
	nic := &hostdpb.NIC{
		ContainerId: key.ContainerID, Interface: key.Interface, Slot: uint32(s.Slot), State: states[s.Status],
		Mtu: uint32(g.tenant.MTU),
	}
	if s.Generation > 0 { // else it is a device of somebody else
		nic.Mac = s.MAC(g.record.macPrefix())
	}
	if n, err := parseNote(s.Note); err == nil && s.Note != "" {
		n.describe(nic)
		if n.pod != "" {
			g.describeEndpoint(nic, n, s.Occupant)
		}
	}
	return nic
}

func (n note) describe(nic *hostdpb.NIC) {
	nic.Network, nic.Bridge, nic.Mtu = n.network, n.bridge, uint32(n.mtu)
	for _, a := range n.addresses {
		nic.Addresses = append(nic.Addresses, a.String())
	}
}

var states = map[hotplug.Status]hostdpb.NICState{
	hotplug.Plugging:    hostdpb.NICState_NIC_STATE_ATTACHING,
	hotplug.Connecting:  hostdpb.NICState_NIC_STATE_ATTACHING,
	hotplug.Warm:        hostdpb.NICState_NIC_STATE_WARM,
	hotplug.Plugged:     hostdpb.NICState_NIC_STATE_ATTACHED,
	hotplug.Unplugging:  hostdpb.NICState_NIC_STATE_DETACHING,
	hotplug.Quarantined: hostdpb.NICState_NIC_STATE_QUARANTINED,
}
