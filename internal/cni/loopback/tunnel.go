package loopback

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/segment"
)

// TunnelPort is the UDP port of the tunnels: one that no other VXLAN has by default.
const TunnelPort = 26677

// Bytes before an IP packet in a tunnel: Ethernet, VXLAN, UDP, and the IP header of the node's packet.
const (
	tunnelHeader  = 14 + 8 + 8
	tunnelHeader4 = 20
	tunnelHeader6 = 40
)

// Tunnel connects the fractions of a segment over the network of their nodes, without the host of these
// nodes: the NIC of a pod is a VXLAN device of the node's kernel (RFC 7348), with the other
// fractions' nodes as its static peers. It says between which nodes a segment is.
//
// The device has its tunnel's end in the network namespace of the calling thread, which is the node's, and is
// itself in the pod's. A packet filter in the node accepts of the segment only what a peer's address sends with
// the MAC of the peer's fraction. Nothing is encrypted: who can send with the address of a node can send as its
// fraction, and who sees the nodes' packets reads them. With addresses of WireGuardAddress, the device of EnsureWireGuard encrypts and
// authenticates all: the filter drops what does not pass it.
type Tunnel struct {
	VNI      uint32           // of the segment, from 1 to segment.MaxVNI; no other segment of these nodes has it
	Fraction segment.Fraction // this one
	Nodes    []netip.Addr     // address of each fraction's node, from fraction 1 on: all IPv4, or all IPv6
}

// Check returns an error that names what is wrong, and how it has to be.
func (t Tunnel) Check() error {
	switch {
	case t.VNI < 1 || t.VNI > segment.MaxVNI:
		return fmt.Errorf("vni %d: want 1 to %d", t.VNI, segment.MaxVNI)
	case len(t.Nodes) < 2 || len(t.Nodes) > segment.MaxFractions:
		return fmt.Errorf("nodes: %d addresses: want 2 to %d", len(t.Nodes), segment.MaxFractions)
	case t.Fraction < 1 || int(t.Fraction) > len(t.Nodes):
		return fmt.Errorf("fraction %d: want 1 to %d, the number of nodes", t.Fraction, len(t.Nodes))
	}
	seen := map[netip.Addr]bool{}
	for _, n := range t.Nodes {
		switch {
		case !n.IsValid() || n.Zone() != "" || n.Is4In6() || n.IsUnspecified() || n.IsMulticast() || n.IsLoopback():
			return fmt.Errorf("nodes: %q: want the address of a node", n)
		case n.Is4() != t.Nodes[0].Is4() || wireGuardNetwork.Contains(n) != wireGuardNetwork.Contains(t.Nodes[0]):
			return fmt.Errorf("nodes: %s and %s: want addresses of one family, all or none inside WireGuard", t.Nodes[0], n)
		case seen[n]:
			return fmt.Errorf("nodes: %s is there twice: want a node for each fraction", n)
		}
		seen[n] = true
	}
	return nil
}

// Members are all fractions.
func (t Tunnel) Members() (all segment.Set) {
	for i := range t.Nodes {
		all = all.With(segment.Fraction(i + 1))
	}
	return all
}

func (t Tunnel) local() netip.Addr { return t.Nodes[t.Fraction-1] }

// peers yields the other fractions and their nodes.
func (t Tunnel) peers(yield func(segment.Fraction, netip.Addr) bool) {
	for i, n := range t.Nodes {
		if f := segment.Fraction(i + 1); f != t.Fraction && !yield(f, n) {
			return
		}
	}
}

func (t Tunnel) headers() int {
	if t.local().Is4() {
		return tunnelHeader + tunnelHeader4
	}
	return tunnelHeader + tunnelHeader6
}

// MTU is that of the device, in bytes: the largest packet that fits into one IP packet between the nodes, which
// may be sent in fragments.
func (t Tunnel) MTU() int {
	if t.encrypted() {
		return wireGuardMTU - t.headers()
	}
	if t.local().Is4() {
		return 65535 - tunnelHeader - tunnelHeader4
	}
	return 65535 - tunnelHeader // the length of an IPv6 packet does not count its header
}

// MakeTunnel makes the device under the name in the pod, with the MAC of the fraction, for Join. id names the packet
// filter in the node: ReleaseTunnel with the same id removes it. On an error nothing is left.
func MakeTunnel(pod ns.NetNS, name, id string, t Tunnel) (err error) {
	if err := t.Check(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make tunnel %d to %v: %w", t.VNI, t.Nodes, err), RemoveTunnel(pod, name, id))
		}
	}()
	mtu, err := t.pathMTU()
	if err == nil {
		err = guard(id, t)
	}
	if err != nil {
		return err
	}
	mac := segment.MAC(t.Fraction)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU, attrs.Namespace = name, mac[:], t.MTU(), netlink.NsFd(pod.Fd())
	link := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: int(t.VNI), SrcAddr: t.local().AsSlice(), Port: TunnelPort, Learning: false}
	err = netlink.LinkAdd(link)
	if errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("another pod of this node is in a segment with this number: %w", err)
	}
	if err != nil {
		return fmt.Errorf("make VXLAN device %s: %w", name, err)
	}
	return pod.Do(func(ns.NetNS) error { return t.addPeers(name, mtu) })
}

// pathMTU returns the smallest MTU of the links to the peers, without what WireGuard needs of it.
func (t Tunnel) pathMTU() (mtu int, err error) {
	to, err := t.underlay()
	if err != nil {
		return 0, err
	}
	for _, node := range to {
		routes, err := netlink.RouteGet(node.AsSlice())
		if err != nil {
			return 0, fmt.Errorf("find route to node %s: %w", node, err)
		}
		link, err := netlink.LinkByIndex(routes[0].LinkIndex)
		if err != nil {
			return 0, fmt.Errorf("find link to node %s: %w", node, err)
		}
		for _, m := range []int{link.Attrs().MTU, routes[0].MTU} {
			if mtu == 0 || m > 0 && m < mtu {
				mtu = m
			}
		}
	}
	if t.encrypted() {
		mtu = (mtu - wireGuardHeader) / wireGuardBlock * wireGuardBlock
	}
	return mtu, nil
}

// addPeers gives the device its peers, and limits the segments of TCP to what fits into one packet between the nodes. mtu is that
// of the path, in bytes.
func (t Tunnel) addPeers(name string, mtu int) error {
	link, err := netlinksafe.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find device %s: %w", name, err)
	}
	for f, node := range t.peers {
		mac := segment.MAC(f)
		for _, to := range []net.HardwareAddr{mac[:], make(net.HardwareAddr, 6)} { // zeros: frames to all
			entry := &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT, Flags: netlink.NTF_SELF, IP: node.AsSlice(), HardwareAddr: to}
			if err := netlink.NeighAppend(entry); err != nil {
				return fmt.Errorf("add peer %s of %s: %w", node, name, err)
			}
		}
	}
	return limitSegments(mtu-t.headers(), t.MTU())
}

// loMTU is what lo has without us.
const loMTU = 65536

// limitSegments sets the MSS that TCP announces for the pod's local addresses, so that a segment fits into a packet of mtu bytes.
// 0: no limit. lo gets the MTU of the device, most: the kernel sends larger packets in fragments, which do not leave the pod.
func limitSegments(mtu, most int) error {
	if err := errors.Join(netlink.LinkSetMTU(lo, most), netlink.LinkSetUp(lo)); err != nil {
		return fmt.Errorf("set MTU of lo: %w", err)
	}
	for family, headers := range map[int]int{netlink.FAMILY_V4: 40, netlink.FAMILY_V6: 60} {
		local, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		if err != nil {
			return fmt.Errorf("list local addresses: %w", err)
		}
		for _, r := range local {
			before := r
			if r.AdvMSS = 0; mtu > 0 {
				r.AdvMSS = max(mtu-headers, 536)
			}
			old := r
			err := netlink.RouteReplace(&r)
			if errors.Is(err, unix.EEXIST) { // lo was down: with up, the kernel has added its own one next to ours
				err = netlink.RouteDel(&before)
			}
			if err == nil && family == netlink.FAMILY_V6 && r.Priority == 0 { // the kernel took the new one for another, with a metric
				err = netlink.RouteDel(&old)
			}
			if err != nil {
				return fmt.Errorf("limit segments to %s: %w", r.Dst, err)
			}
		}
	}
	return nil
}

// RemoveTunnel removes the device from the pod, if it is there, and undoes what MakeTunnel has changed at lo. Then it
// removes the packet filter with this id from the node.
func RemoveTunnel(pod ns.NetNS, name, id string) error {
	err := pod.Do(func(ns.NetNS) error {
		link, err := netlinksafe.LinkByName(name)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil {
			return fmt.Errorf("remove device %s: %w", name, err)
		}
		return limitSegments(0, loMTU)
	})
	if err != nil {
		return err
	}
	return ReleaseTunnel(id)
}
