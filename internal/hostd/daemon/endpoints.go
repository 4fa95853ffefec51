package daemon

import (
	"errors"
	"fmt"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
)

var errNoEndpoint = errors.New("it has no endpoint of a segment")

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
	low, high := segment.Ports(r.Fraction)
	e.PortLow, e.PortHigh = uint32(low), uint32(high)
	mode, m := n.host.segments.Membership(a.TAP)
	e.Mode, e.Members, e.Generation = wireMode(mode), uint32(m.Members), m.Generation
	return e
}

// checkEndpoint compares an attachment's endpoint with what is there.
func (n *nics) checkEndpoint(key attachment.Key, r *hostdpb.CheckRequest) (*hostdpb.Endpoint, error) {
	e := n.endpoint(key)
	if e == nil {
		return nil, fmt.Errorf("check %s: %w", key, errNoEndpoint)
	}
	err := n.host.segments.Check(n.record.Name, key)
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
