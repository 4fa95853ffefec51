package antispoof

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// Port says what one interface may send. Its frames have the MAC as source. Their
// payload is
//   - ARP with the MAC and one of the addresses as sender, or a probe for one
//     (RFC 5227);
//   - IPv4 from one of the addresses, but no IGMP query, and not to a DHCP client;
//   - IPv6 from one of the addresses, or from the link-local address that belongs
//     to the MAC (RFC 4291, appendix A), but no router advertisement, no redirect,
//     no multicast listener query, not to a DHCP client, and neighbour advertisements for these addresses only;
//   - from the unspecified IPv6 address, duplicate address detection for these
//     addresses, and the multicast listener reports that go with it.
//
// Without addresses it may send nothing. With DHCP it may also ask a DHCP server for
// an address and probe it, with or without other addresses.
type Port struct {
	Interface string // in the table's network namespace; need not exist
	MAC       net.HardwareAddr
	Addresses []netip.Addr
	DHCP      bool
	// Multicasts is how many broadcast and multicast frames it may send per second, and
	// at once. The bridge copies each to all ports. 0: 1,000; negative: no limit. Ports
	// does not tell.
	Multicasts int
}

const defaultMulticasts = 1000

// normal returns p as Ports would, or an error when p is invalid.
func normal(p Port) (Port, error) {
	if n := len(p.Interface); n == 0 || n >= unix.IFNAMSIZ {
		return p, fmt.Errorf("guard port %q: want a name of 1 to %d bytes", p.Interface, unix.IFNAMSIZ-1)
	}
	if len(p.MAC) != 6 || p.MAC[0]&1 != 0 {
		return p, fmt.Errorf("guard port %s: MAC %s: want a unicast address of 6 bytes", p.Interface, p.MAC)
	}
	p.MAC = slices.Clone(p.MAC)
	var addresses []netip.Addr
	for _, a := range p.Addresses {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() {
			return p, fmt.Errorf("guard port %s: address %s: want a unicast address", p.Interface, a)
		}
		addresses = append(addresses, a.Unmap().WithZone(""))
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	p.Addresses = slices.Compact(addresses)
	return p, nil
}

// implied returns the IPv6 addresses of a port that need not be given: its link-local
// address, and the unspecified one, which allows duplicate address detection. A port
// that Open found without MAC has none.
func (p Port) implied() []netip.Addr {
	m := p.MAC
	if len(m) == 0 {
		return nil
	}
	linkLocal := [16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
	return []netip.Addr{netip.AddrFrom16(linkLocal), netip.IPv6Unspecified()}
}

// element is one element of a set.
type element struct {
	set *nftables.Set
	key string
}

// iface returns the interface in the key.
func (e element) iface() string {
	name, _, _ := strings.Cut(e.key[:unix.IFNAMSIZ], "\x00")
	return name
}

// elements returns the port's elements in the sets.
func (p Port) elements() []element {
	key := func(value ...byte) string {
		padding := make([]byte, -len(value)&3) // up to whole registers
		return string(slices.Concat(nft.Name(p.Interface), value, padding))
	}
	all := []element{{ports, key()}, {inetPorts, key()}, {arpPorts, key()}, {targets, key()}, {floods, key()}}
	if len(p.MAC) > 0 {
		all = append(all, element{macs, key(p.MAC...)})
	}
	if p.DHCP {
		all = append(all, element{dhcp, key()})
	}
	addresses := p.Addresses
	if p.DHCP || len(addresses) > 0 {
		addresses = slices.Concat(addresses, p.implied())
	}
	for _, a := range addresses {
		e := element{v6, key(a.AsSlice()...)}
		if a.Is4() {
			e.set = v4
		}
		if !slices.Contains(all, e) {
			all = append(all, e)
		}
	}
	return all
}

// parsePorts returns the ports to which the elements belong, without the implied
// addresses.
func parsePorts(elements []element) []Port {
	byName := map[string]*Port{}
	for _, e := range elements {
		name := e.iface()
		value := []byte(e.key[unix.IFNAMSIZ:])
		p := byName[name]
		if p == nil {
			p = &Port{Interface: name}
			byName[name] = p
		}
		switch e.set {
		case macs:
			p.MAC = value[:6]
		case v4, v6:
			a, _ := netip.AddrFromSlice(value)
			p.Addresses = append(p.Addresses, a)
		case dhcp:
			p.DHCP = true
		}
	}
	var all []Port
	for _, p := range byName {
		implied := p.implied()
		p.Addresses = slices.DeleteFunc(p.Addresses, func(a netip.Addr) bool { return slices.Contains(implied, a) })
		if len(p.Addresses) == 0 {
			p.Addresses = nil
		}
		slices.SortFunc(p.Addresses, netip.Addr.Compare)
		all = append(all, *p)
	}
	slices.SortFunc(all, func(a, b Port) int { return strings.Compare(a.Interface, b.Interface) })
	return all
}

// change passes elements to f, which adds them to their sets or deletes them.
func change(f func(*nftables.Set, []nftables.SetElement) error, elements []element) error {
	bySet := map[*nftables.Set][]nftables.SetElement{}
	for _, e := range elements {
		s := nftables.SetElement{Key: []byte(e.key)}
		switch e.set {
		case targets:
			s.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: targetChain(e.iface()).Name}
		case floods:
			s.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: floodChain(e.iface()).Name}
		}
		bySet[e.set] = append(bySet[e.set], s)
	}
	var errs []error
	for set, all := range bySet {
		errs = append(errs, nft.Change(f, set, all))
	}
	return errors.Join(errs...)
}
