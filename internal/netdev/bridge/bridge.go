// Package bridge makes the host's side of the tenants' networks: for each tenant a
// bridge with the gateway addresses, a route to the outside, and none to other
// tenants.
//
// Besides its bridges it changes one nftables table and eight sysctls: it turns IPv4 and IPv6 forwarding on, if a
// gateway needs them, and bridge-nf-call off, so that only the bridge's filters see
// frames that stay on a bridge. It gives unfinished datagrams more memory and less time, and each
// tenant a share. On some hosts the operator has to act:
//   - Kubernetes and Docker need bridge-nf-call on for bridges of their own. StopCalls turns it on at
//     these, when it turns it off for the others. For a node of Kubernetes on the same host keep the
//     tenants' networks in a network namespace of their own.
//   - Docker sets the policy of the FORWARD chain to DROP, which no other table can
//     override: accept the bridges in the chain DOCKER-USER. Droppers tells.
//   - A host that gets its IPv6 address by router advertisements needs accept_ra=2
//     once forwarding is on.
//
// Filtering what a guest may send (package antispoof) and assigning addresses to
// pods do not belong here.
package bridge

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is the network of one tenant.
type Network struct {
	Bridge string
	MTU    int // bytes
	// Further bridges of the tenant, which are the operator's and need not exist yet.
	// The host forwards between the bridges of a tenant, not to those of another.
	Further []string
	// Gateways are the host's IPv4 and IPv6 addresses in the network, with the
	// network's prefix lengths. None: the operator owns the bridge. Then it has to
	// exist and is not changed, but for bridge-nf-call, and the host forwards nothing
	// between it and another network.
	Gateways []netip.Prefix
	NAT      bool // to the outside, for the gateways' subnets
	// Guard protects the host from the pods. nil: not.
	Guard *Guard
}

// bridgeAlias marks the bridges that Ensure may change. bridgeGroup marks them before they have the alias, which
// the kernel does not take when it adds a bridge: the process may end in between.
const (
	bridgeAlias = "unnest tenant network"
	bridgeGroup = 0x756e6e65
)

// Ensure makes these networks, in the calling thread's network namespace: it adds missing bridges, corrects those of an earlier
// Ensure, replaces the packet filter atomically, and turns bridge-nf-call off as StopCalls does. When a step before that fails, it undoes
// the others. It refuses gateways for a bridge that it has not made.
func (f *Filter) Ensure(networks []Network) (err error) {
	var done undo
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		if err != nil {
			err = errors.Join(err, done.run())
		}
	}()
	if err := done.sysctls(sysctls(networks)); err != nil {
		return err
	}
	var ours []string
	for _, n := range networks {
		if err := done.network(n); err != nil {
			return fmt.Errorf("make network of bridge %s: %w", n.Bridge, err)
		}
		ours = append(append(ours, n.Bridge), n.Further...)
	}
	if err := f.apply(networks); err != nil {
		return err
	}
	if former := f.networks; len(former) > 0 { // else the new rules stay: an earlier process may have left bridges
		done.add("set packet filter", func() error { return f.apply(former) })
	}
	if err := done.sysctls(fragmentSettings()); err != nil {
		return err
	}
	if len(ours) > 0 {
		if _, err := StopCalls(ours); err != nil {
			return err
		}
		if err := stopOwnCalls(ours); err != nil {
			return err
		}
	}
	f.networks = networks
	return nil
}

// network makes one tenant's bridge, unless the operator owns it.
func (u *undo) network(n Network) error {
	link, err := netlink.LinkByName(n.Bridge)
	_, isBridge := link.(*netlink.Bridge)
	missing := errors.As(err, new(netlink.LinkNotFoundError))
	switch {
	case missing && len(n.Gateways) == 0:
		return errors.New("bridge does not exist: add it, or give the network gateways to have it made")
	case missing:
		if link, err = u.addBridge(n); err != nil {
			return err
		}
	case err != nil:
		return err
	case !isBridge:
		return fmt.Errorf("interface has type %s, want a bridge: choose another name", link.Type())
	case len(n.Gateways) == 0:
		return nil
	case link.Attrs().Alias != bridgeAlias && (link.Attrs().Alias != "" || link.Attrs().Group != bridgeGroup):
		return errors.New("bridge exists and was not made by unnest: remove the gateways from the network, or choose another bridge")
	}
	return u.configure(link, n)
}

// addBridge adds a bridge with a MAC of its own. Without one it would take that of a
// port, and change it as ports come and go.
func (u *undo) addBridge(n Network) (netlink.Link, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return nil, err
	}
	mac[0] = mac[0]&^1 | 2 // locally administered, unicast
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.Bridge, HardwareAddr: mac, Group: bridgeGroup}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("add: %w", err)
	}
	u.add("add "+n.Bridge, func() error { return netlink.LinkDel(bridge) })
	return bridge, nil
}

// configure corrects a bridge that we own.
func (u *undo) configure(bridge netlink.Link, n Network) error {
	if err := netlink.LinkSetAlias(bridge, bridgeAlias); err != nil {
		return fmt.Errorf("set alias: %w", err)
	}
	err := u.sysctls([]setting{
		{file: "net/ipv4/conf/" + n.Bridge + "/arp_ignore", value: "1"}, // answer for the gateway's addresses only
		{file: "net/ipv6/conf/" + n.Bridge + "/accept_dad", value: "0"}, // have them at once
		{file: "net/ipv6/conf/" + n.Bridge + "/accept_ra", value: "0"},  // accept no address or route from the tenant
	})
	if err != nil {
		return err
	}
	if err := disableLinkLocalLearning(bridge); err != nil {
		return fmt.Errorf("set no_linklocal_learn: %w", err)
	}
	old := bridge.Attrs().MTU
	if err := netlink.LinkSetMTU(bridge, n.MTU); err != nil { // even if unchanged: a set MTU no longer follows the ports
		return fmt.Errorf("set MTU %d: %w", n.MTU, err)
	}
	if old > 0 { // else addBridge has made it, and deletes it
		u.add("set MTU of "+n.Bridge, func() error { return netlink.LinkSetMTU(bridge, old) })
	}
	if err := u.addresses(bridge, n.Gateways); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// disableLinkLocalLearning keeps the bridge from learning the source of frames to
// itself, such as LLDP. No filter sees them, so a guest could use them to attract
// another guest's frames.
func disableLinkLocalLearning(bridge netlink.Link) error {
	const noLinkLocalLearn = 1 << 0 // BR_BOOLOPT_NO_LL_LEARN in linux/if_bridge.h
	option := binary.NativeEndian.AppendUint32(nil, noLinkLocalLearn)
	return setBridge(bridge, unix.IFLA_BR_MULTI_BOOLOPT, slices.Repeat(option, 2) /* value and mask */)
}

// addresses gives the bridge the gateways' addresses and no others.
func (u *undo) addresses(bridge netlink.Link, gateways []netip.Prefix) error {
	old, err := addressesOf(bridge)
	if err != nil {
		return err
	}
	u.add("set addresses of "+bridge.Attrs().Name, func() error { return setAddresses(bridge, old) })
	return setAddresses(bridge, gateways)
}

// addressesOf lists the addresses of a bridge, except link-local ones, which the
// kernel adds.
func addressesOf(bridge netlink.Link) ([]netip.Prefix, error) {
	all, err := netlinksafe.AddrList(bridge, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var global []netip.Prefix
	for _, a := range all {
		ip, _ := netip.AddrFromSlice(a.IP)
		bits, _ := a.Mask.Size()
		if ip = ip.Unmap(); !ip.IsLinkLocalUnicast() {
			global = append(global, netip.PrefixFrom(ip, bits))
		}
	}
	return global, nil
}

// setAddresses sets also wanted addresses that exist: with an address the kernel
// deletes later addresses of its subnet.
func setAddresses(bridge netlink.Link, want []netip.Prefix) error {
	current, err := addressesOf(bridge)
	if err != nil {
		return err
	}
	for _, p := range current {
		if slices.Contains(want, p) {
			continue
		}
		if err := netlink.AddrDel(bridge, address(p)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s: %w", p, err)
		}
	}
	for _, p := range want {
		if err := netlink.AddrReplace(bridge, address(p)); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}

func address(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // else it is usable only after a second
	}
	return a
}
