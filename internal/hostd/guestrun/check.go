package guestrun

import (
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
)

// Why a check fails.
var (
	ErrNoAttachment = errors.New("it has no NIC")
	ErrNoEndpoint   = errors.New("it has no endpoint of a segment")
	ErrDamaged      = errors.New("it is not as it was made")
)

// ErrOtherNIC is the error of who would detach a NIC that the attachment does not have any more.
var ErrOtherNIC = errors.New("it has another NIC by now")

// checkMAC returns an error if the attachment has a NIC with another MAC than the given one, if that is not empty. A NIC's MAC
// is not used again for 65,536 NICs of its slot. A quarantined NIC is no attachment's any more.
func (n *nics) checkMAC(key attachment.Key, mac string) error {
	for _, nic := range n.list() {
		kind := attachment.NIC
		if nic.GetMode() == hostdpb.Mode_MODE_SEGMENT {
			kind = attachment.Endpoint
		}
		if nic.GetState() == hostdpb.NICState_NIC_STATE_QUARANTINED {
			continue
		}
		if mac != "" && (attachment.Key{Kind: kind, Owner: nic.GetContainerId(), Name: nic.GetInterface()}) == key && nic.GetMac() != mac {
			return fmt.Errorf("detach %s: %w: want %s, has %s", key, ErrOtherNIC, mac, nic.GetMac())
		}
	}
	return nil
}

func (n *nics) checkNIC(key attachment.Key, r *hostdpb.CheckRequest) (*hostdpb.NIC, error) {
	nic, port, record := n.find(key)
	if nic == nil {
		return nil, fmt.Errorf("check %s: %w", key, ErrNoAttachment)
	}
	err := matchRequest(nic, r)
	if err == nil {
		err = n.host.Ports.Check(port, record.Bridge, record.Addrs())
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w: %w", key, ErrDamaged, err)
	}
	return nic, nil
}

// find returns the NIC of an attachment, its port on the host and its record.
func (n *nics) find(key attachment.Key) (*hostdpb.NIC, string, attachment.Record) {
	if v, ok := n.trunk.ports[key]; ok {
		return n.trunk.describe(key, v), v.port, v.record
	}
	for _, s := range n.state.Slots() {
		if s.Key == key && s.Status == hotplug.Plugged {
			return n.describe(s), s.TAP(n.Record.TAPPrefix()), s.Record
		}
	}
	return nil, "", attachment.Record{}
}

func matchRequest(nic *hostdpb.NIC, r *hostdpb.CheckRequest) error {
	if r.GetMac() != "" && r.GetMac() != nic.GetMac() {
		return fmt.Errorf("MAC is %s, want %s", nic.GetMac(), r.GetMac())
	}
	for _, a := range r.GetAddresses() {
		if !slices.Contains(nic.GetAddresses(), a) {
			return fmt.Errorf("it may send from %v only, want %s", nic.GetAddresses(), a)
		}
	}
	return nil
}

// checkEndpoint compares an attachment's endpoint with what is there.
func (n *nics) checkEndpoint(key attachment.Key, r *hostdpb.CheckRequest) (*hostdpb.Endpoint, error) {
	e := n.endpoint(key)
	if e == nil {
		return nil, fmt.Errorf("check %s: %w", key, ErrNoEndpoint)
	}
	err := n.host.Segments.Check(n.Record.Name, key)
	switch {
	case r.GetMac() != "" && r.GetMac() != e.GetMac():
		err = fmt.Errorf("MAC is %s, want %s", e.GetMac(), r.GetMac())
	case r.GetPod() != "" && r.GetPod() != e.GetPod():
		err = fmt.Errorf("it is in the segment of %s, want %s", e.GetPod(), r.GetPod())
	}
	if err != nil {
		return nil, fmt.Errorf("check %s: %w: %w", key, ErrDamaged, err)
	}
	return e, nil
}

// leaked lists the attachments that were made for a network and are not valid. A valid
// container keeps both its NIC and its endpoint.
func (n *nics) leaked(network string, valid map[attachment.Key]bool) (keys []attachment.Key) {
	collect := func(key attachment.Key, r attachment.Record) {
		if r.Network == network && !valid[attachment.Key{Owner: key.Owner, Name: key.Name}] {
			keys = append(keys, key)
		}
	}
	for _, s := range n.state.Slots() {
		if s.Status == hotplug.Plugged && s.Key.Kind != attachment.Trunk {
			collect(s.Key, s.Record)
		}
	}
	for key, v := range n.trunk.ports {
		collect(key, v.record)
	}
	return keys
}
