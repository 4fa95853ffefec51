package daemon

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
)

// maxContainerID leaves room in an alias for the rest. Runtimes use 64.
const maxContainerID = 128

// maxNetwork leaves room in an alias for the rest.
const maxNetwork = 63

var containerID = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// The ephemeral ports of Linux. Each fraction of a segment has all of them; plugins of
// earlier versions know that they have fewer.
const firstPort, lastPort = 32768, 60999

// attachmentKey checks what a guest has sent. The rules are CNI's, except that an
// interface's name is ASCII.
func attachmentKey(kind attachment.Kind, container, iface string) (attachment.Key, error) {
	key := attachment.Key{Kind: kind, Owner: container, Name: iface}
	if len(container) > maxContainerID || !containerID.MatchString(container) {
		return key, grpcstatus.Errorf(codes.InvalidArgument,
			"container_id %.160q: want 1 to %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", container, maxContainerID)
	}
	if err := checkInterface(iface); err != nil {
		return key, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	if err := key.Validate(); err != nil {
		return key, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	return key, nil
}

// checkInterface follows the kernel (dev_valid_name in net/core/dev.c).
func checkInterface(name string) error {
	invalid := func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsFunc(name, invalid) {
		return fmt.Errorf("interface %.40q: want 1 to 15 bytes without '/', ':' and white space", name)
	}
	return nil
}

// networkName checks the name of a CNI network, which an older plugin does not send.
func networkName(name string) (string, error) {
	if name != "" && (len(name) > maxNetwork || !containerID.MatchString(name)) {
		return "", grpcstatus.Errorf(codes.InvalidArgument,
			"network %.80q: want at most %d of a-z, A-Z, 0-9, '_', '.' and '-', beginning with a letter or digit", name, maxNetwork)
	}
	return name, nil
}

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
		Mtu: uint32(n.tenant.MTU), Mac: s.MAC(n.record.macPrefix()),
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
	mode, m := n.host.segments.Membership(a.TAP)
	e.Mode, e.Members, e.Generation = wireMode(mode), uint32(m.Members), m.Generation
	return e
}

func describeRecord(nic *hostdpb.NIC, r attachment.Record) {
	nic.Network, nic.Bridge, nic.Mtu = r.Network, r.Bridge, uint32(r.MTU)
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
