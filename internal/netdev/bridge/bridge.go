// Package bridge is the host's side of the tenants' networks: for each a bridge
// with the gateway's addresses, the way to the outside, and none to another
// tenant.
//
// It works in the calling thread's network namespace. All that it changes there
// beside its own bridges is one nftables table and four switches: forwarding of
// IPv4 and of IPv6, if a gateway needs it, is turned on, and bridge-nf-call off, so
// that a frame that stays on a bridge meets the bridge's filters only. Kubernetes
// and Docker want bridge-nf-call on: a host of theirs keeps the tenants' networks
// in a network namespace of their own. Docker also sets the policy of the FORWARD
// chain to DROP, which no other table can lift: on its host the operator has to
// accept the bridges in the chain DOCKER-USER. A host that gets its own IPv6
// address by router advertisements needs accept_ra=2 once forwarding is on.
//
// What a guest may send is filtered by package antispoof; addresses of pods are
// the tenant's IPAM's.
package bridge

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Network is one tenant's.
type Network struct {
	Bridge string
	MTU    int // bytes
	// Gateways are the host's addresses in the network, of IPv4 and IPv6, with
	// the lengths of the network's prefixes. None: the bridge is the operator's
	// own. It has to exist and is not touched, but no packet goes through the
	// host between it and another network.
	Gateways []netip.Prefix
	NAT      bool // to the outside, for the gateways' subnets
}

// bridgeAlias marks the bridges that are ours to change.
const bridgeAlias = "unnest tenant network"

// Ensure makes the networks as they are given: bridges that are missing are
// added, those of an earlier Ensure are corrected, and the packet filter is made
// anew from this list, atomically. When a step fails, what was done is undone.
// A bridge that somebody else has made is refused if it is to have gateways.
func Ensure(networks []Network) (err error) {
	var done undo
	defer func() {
		if err != nil {
			err = errors.Join(err, done.run())
		}
	}()
	for _, s := range switches(networks) {
		if err := done.sysctl(s.file, s.value); err != nil {
			return err
		}
	}
	for _, n := range networks {
		if err := done.network(n); err != nil {
			return fmt.Errorf("make network of bridge %s: %w", n.Bridge, err)
		}
	}
	return filter(networks)
}

// find returns the interface, or nil when there is none.
func find(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	return link, err
}

type setting struct{ file, value string }

func switches(networks []Network) []setting {
	s := []setting{
		{"net/bridge/bridge-nf-call-iptables", "0"},
		{"net/bridge/bridge-nf-call-ip6tables", "0"},
	}
	has := func(is func(netip.Addr) bool) bool {
		return slices.ContainsFunc(networks, func(n Network) bool {
			return slices.ContainsFunc(n.Gateways, func(p netip.Prefix) bool { return is(p.Addr()) })
		})
	}
	if has(netip.Addr.Is4) {
		s = append(s, setting{"net/ipv4/ip_forward", "1"})
	}
	if has(netip.Addr.Is6) {
		s = append(s, setting{"net/ipv6/conf/all/forwarding", "1"})
	}
	return s
}

// undo is what takes back the steps so far.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

func (u *undo) run() error {
	var errs []error
	for _, f := range slices.Backward(*u) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// sysctl sets a switch. A kernel that has it not does not need it.
func (u *undo) sysctl(file, value string) error {
	old, err := os.ReadFile(filepath.Join("/proc/sys", file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && strings.TrimSpace(string(old)) == value {
		return nil
	}
	if err == nil {
		err = writeSysctl(file, value)
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", file, err)
	}
	u.add(func() error { return writeSysctl(file, string(old)) })
	return nil
}

func writeSysctl(file, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", file), []byte(value), 0)
}

// network makes one tenant's bridge, if it is ours to make.
func (u *undo) network(n Network) error {
	link, err := find(n.Bridge)
	if err != nil {
		return err
	}
	_, isBridge := link.(*netlink.Bridge)
	switch {
	case link == nil && len(n.Gateways) == 0:
		return errors.New("there is no such bridge; add it, or give the network gateways to have it made")
	case link == nil:
		if link, err = u.addBridge(n); err != nil {
			return err
		}
	case !isBridge:
		return fmt.Errorf("there is an interface of that name that is no bridge, but of type %s", link.Type())
	case len(n.Gateways) == 0:
		return nil
	case link.Attrs().Alias != bridgeAlias:
		return errors.New("the bridge is there, and not ours to give gateways to; give the network none, or another bridge")
	}
	return u.configure(link, n)
}

// addBridge adds an empty bridge with a MAC of its own: without one it takes one
// of its ports', and changes it as they come and go.
func (u *undo) addBridge(n Network) (netlink.Link, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return nil, err
	}
	mac[0] = mac[0]&^1 | 2 // locally administered, unicast
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.Bridge, HardwareAddr: mac}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("add: %w", err)
	}
	u.add(func() error { return netlink.LinkDel(bridge) })
	if err := netlink.LinkSetAlias(bridge, bridgeAlias); err != nil {
		return nil, fmt.Errorf("set alias: %w", err)
	}
	return bridge, nil
}

// configure corrects a bridge of ours.
func (u *undo) configure(bridge netlink.Link, n Network) error {
	// The host answers for the gateway's addresses only, at once, and takes no
	// address or route from the tenant.
	for _, s := range []setting{
		{"net/ipv4/conf/" + n.Bridge + "/arp_ignore", "1"},
		{"net/ipv6/conf/" + n.Bridge + "/accept_dad", "0"},
		{"net/ipv6/conf/" + n.Bridge + "/accept_ra", "0"},
	} {
		if err := u.sysctl(s.file, s.value); err != nil {
			return err
		}
	}
	if err := learnNothingFromControlFrames(bridge); err != nil {
		return fmt.Errorf("set no_linklocal_learn: %w", err)
	}
	old := bridge.Attrs().MTU
	if err := netlink.LinkSetMTU(bridge, n.MTU); err != nil { // also when it is: else the ports' changes it
		return fmt.Errorf("set MTU %d: %w", n.MTU, err)
	}
	u.add(func() error { return netlink.LinkSetMTU(bridge, old) })
	if err := u.addresses(bridge, n.Gateways); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// learnNothingFromControlFrames keeps the bridge from learning the source of
// frames that are addressed to itself, such as LLDP's. They pass no filter, so that
// a guest could draw another's frames to itself.
func learnNothingFromControlFrames(bridge netlink.Link) error {
	const noLinkLocalLearn = 1 << 0 // BR_BOOLOPT_NO_LL_LEARN in linux/if_bridge.h
	value := binary.NativeEndian.AppendUint32(nil, noLinkLocalLearn)
	mask := binary.NativeEndian.AppendUint32(nil, noLinkLocalLearn)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated(bridge.Type()))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(unix.IFLA_BR_MULTI_BOOLOPT, append(value, mask...))
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(bridge.Attrs().Index)
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	request.AddData(message)
	request.AddData(info)
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// addresses gives the bridge the gateways' addresses, and takes others away.
func (u *undo) addresses(bridge netlink.Link, gateways []netip.Prefix) error {
	old, err := addressesOf(bridge)
	if err != nil {
		return err
	}
	u.add(func() error { return setAddresses(bridge, old) })
	return setAddresses(bridge, gateways)
}

// addressesOf lists the addresses of a bridge, but those of the link: the kernel's
// own is among them.
func addressesOf(bridge netlink.Link) ([]netip.Prefix, error) {
	all, err := netlink.AddrList(bridge, netlink.FAMILY_ALL)
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

// setAddresses deletes first and then looks anew: with an address the kernel
// deletes the later ones of its subnet.
func setAddresses(bridge netlink.Link, want []netip.Prefix) error {
	there, err := addressesOf(bridge)
	if err != nil {
		return err
	}
	for _, p := range there {
		if slices.Contains(want, p) {
			continue
		}
		if err := netlink.AddrDel(bridge, address(p)); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("delete address %s: %w", p, err)
		}
	}
	if there, err = addressesOf(bridge); err != nil {
		return err
	}
	for _, p := range want {
		if slices.Contains(there, p) {
			continue
		}
		if err := netlink.AddrReplace(bridge, address(p)); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}

func address(p netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // else it works only after a second
	}
	return a
}
