package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/hotplug"
)

var (
	errNoAttachment = errors.New("it has no NIC")
	errNoEndpoint   = errors.New("it has no endpoint of a segment")
	errDamaged      = errors.New("it is not as it was made")
)

// checkNIC compares an attachment with what is there.
func (g *guest) checkNIC(key hotplug.Key, r *hostdpb.CheckRequest) (*hostdpb.NIC, error) {
	nic, port := g.find(key)
	if nic == nil {
		return nil, fmt.Errorf("check %s: %w", key, errNoAttachment)
	}
	if err := g.checkPort(nic, port, r); err != nil {
		return nil, fmt.Errorf("check %s: %w: %w", key, errDamaged, err)
	}
	return nic, nil
}

// find returns the NIC of an attachment and the name of its port on the host.
func (g *guest) find(key hotplug.Key) (*hostdpb.NIC, string) {
	if v, ok := g.vlans[key]; ok {
		return g.describeVLAN(key, v), v.port
	}
	for _, s := range g.state.Slots() {
		if s.Key == key && s.Status == hotplug.Plugged {
			return g.describe(s), s.TAP(g.record.tapPrefix())
		}
	}
	return nil, ""
}

func (g *guest) checkPort(nic *hostdpb.NIC, port string, r *hostdpb.CheckRequest) error {
	if r.GetMac() != "" && r.GetMac() != nic.GetMac() {
		return fmt.Errorf("MAC is %s, want %s", nic.GetMac(), r.GetMac())
	}
	for _, a := range r.GetAddresses() {
		if !slices.Contains(nic.GetAddresses(), a) {
			return fmt.Errorf("it may not send from %s, but from %v", a, nic.GetAddresses())
		}
	}
	link, err := netlinksafe.LinkByName(port)
	if err != nil {
		return fmt.Errorf("port %s: %w", port, err)
	}
	bridge, err := netlinksafe.LinkByName(nic.GetBridge())
	switch {
	case err != nil:
		return fmt.Errorf("bridge %s: %w", nic.GetBridge(), err)
	case link.Attrs().MasterIndex != bridge.Attrs().Index:
		return fmt.Errorf("port %s is not on bridge %s", port, nic.GetBridge())
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("port %s is down", port)
	}
	return g.checkFilter(nic, port)
}

func (g *guest) checkFilter(nic *hostdpb.NIC, port string) error {
	t, err := g.host.table()
	if err != nil {
		return err
	}
	ports, err := t.Ports()
	if err != nil {
		return err
	}
	for _, p := range ports {
		if p.Interface != port {
			continue
		}
		for _, s := range nic.GetAddresses() {
			if a, err := netip.ParsePrefix(s); err != nil || !slices.Contains(p.Addresses, a.Addr()) {
				return fmt.Errorf("port %s is kept from sending from %s", port, s)
			}
		}
		return nil
	}
	return fmt.Errorf("port %s is not guarded", port)
}

// leaked lists the attachments that were made for a network and are not valid.
func (g *guest) leaked(network string, valid map[hotplug.Key]bool) (keys []hotplug.Key) {
	of := func(key hotplug.Key, n note, err error) {
		if err == nil && n.network == network && !valid[key] {
			keys = append(keys, key)
		}
	}
	for _, s := range g.state.Slots() {
		if key, _ := plainKey(s.Key); s.Status == hotplug.Plugged && s.Key != trunkKey && !valid[key] {
			n, err := parseNote(s.Note)
			of(s.Key, n, err)
		}
	}
	for key, v := range g.vlans {
		of(key, v.note, nil)
	}
	return keys
}
