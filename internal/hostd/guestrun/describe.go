package guestrun

import (
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
)

// The ephemeral ports of Linux. Each fraction of a segment has all of them; plugins of
// earlier versions know that they have fewer.
const firstPort, lastPort = 32768, 60999

// list describes the NICs in the guest's slots, and its VLANs.
func (n *nics) list() (nics []*hostdpb.NIC) {
	for _, s := range n.state.Slots() {
		if s.Device != "" && s.Status != hotplug.Foreign && s.Key.Kind != attachment.Trunk {
			nics = append(nics, n.describe(s))
		}
	}
	for key, v := range n.trunk.ports {
		nics = append(nics, n.trunk.describe(key, v))
	}
	return nics
}

// describe returns a slot with a NIC in the form of the protocol.
func (n *nics) describe(s hotplug.Slot) *hostdpb.NIC {
	nic := &hostdpb.NIC{
		ContainerId: s.Key.Owner, Interface: s.Key.Name, Slot: uint32(s.Slot), State: states[s.Status],
		Mtu: uint32(n.Tenant.Now().MTU), Mac: s.MAC(n.Record.MACPrefix()),
	}
	r := s.Record
	switch {
	case s.Key.Kind == attachment.Endpoint:
		nic.Network, nic.Mode, nic.Pod, nic.Fraction = r.Network, hostdpb.Mode_MODE_SEGMENT, r.Pod, uint32(r.Fraction)
		nic.Mac, nic.Mtu = n.endpointMAC(r, s.Occupant), segment.MTU
	case !r.IsZero():
		describeRecord(nic, r)
	}
	return nic
}

// endpoint describes an attachment's endpoint; nil if it has none.
func (n *nics) endpoint(key attachment.Key) *hostdpb.Endpoint {
	a, ok := n.state.Lookup(key)
	if !ok {
		return nil
	}
	r := a.Record
	e := &hostdpb.Endpoint{
		ContainerId: key.Owner, Interface: key.Name, Mac: n.endpointMAC(r, a.Occupant),
		SegmentMac: segment.MAC(r.Fraction).String(), Mtu: segment.MTU, Slot: uint32(a.Slot), State: states[hotplug.Plugged],
		Pod: r.Pod, Network: r.Network, Fraction: uint32(r.Fraction),
	}
	e.PortLow, e.PortHigh = firstPort, lastPort
	mode, m := n.host.Segments.Membership(a.TAP)
	e.Mode, e.Members, e.Generation = WireMode(mode), uint32(m.Members), m.Generation
	return e
}

func describeRecord(nic *hostdpb.NIC, r attachment.Record) {
	nic.Network, nic.Bridge, nic.Mtu = r.Network, r.Bridge, uint32(r.MTU)
	nic.PodMac = r.MAC
	for _, a := range r.Addresses {
		nic.Addresses = append(nic.Addresses, a.String())
	}
	for _, a := range r.Services {
		nic.ServiceAddresses = append(nic.ServiceAddresses, a.String())
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

// WireMode returns the mode of a segment in the form of the protocol.
func WireMode(mode string) hostdpb.SegmentMode {
	switch mode {
	case quota.SegmentUnicast:
		return hostdpb.SegmentMode_SEGMENT_MODE_UNICAST
	case quota.SegmentPlain:
		return hostdpb.SegmentMode_SEGMENT_MODE_PLAIN
	}
	return hostdpb.SegmentMode_SEGMENT_MODE_UNSPECIFIED
}
