package ipam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
)

// Range is a part of a subnet from which addresses are allocated.
type Range struct {
	Subnet netip.Prefix
	// First and Last bound the range, both included. Zero: the first and the last
	// usable address of the subnet.
	First netip.Addr
	Last  netip.Addr
	// Gateway is returned with every address of the range. Zero: none.
	Gateway netip.Addr
}

// Validate returns an error that begins with the name of an invalid field.
func (r Range) Validate() error {
	if err := CheckSubnet(r.Subnet); err != nil {
		return fmt.Errorf("subnet: %w", err)
	}
	for _, field := range []struct {
		name string
		addr netip.Addr
	}{{"first", r.First}, {"last", r.Last}, {"gateway", r.Gateway}} {
		if !field.addr.IsValid() {
			continue
		}
		if err := CheckHost(field.addr, r.Subnet); err != nil {
			return fmt.Errorf("%s: %w", field.name, err)
		}
	}
	if first, last := r.bounds(); last.Less(first) {
		return fmt.Errorf("first: want at most last, %s, got %q", last, first)
	}
	return nil
}

// Conflict returns an error when r and o, both valid, cannot be in the same pool: an
// address may have one subnet, and be in one range.
func (r Range) Conflict(o Range) error {
	first, last := r.bounds()
	otherFirst, otherLast := o.bounds()
	switch {
	case r.Subnet != o.Subnet && r.Subnet.Overlaps(o.Subnet):
		return fmt.Errorf("subnet %s overlaps %s: want the same or none in common", r.Subnet, o.Subnet)
	case !last.Less(otherFirst) && !otherLast.Less(first):
		return fmt.Errorf("%s to %s overlaps %s to %s: bound the ranges by first and last", first, last, otherFirst, otherLast)
	}
	return nil
}

// bounds returns the first and the last address of the range.
func (r Range) bounds() (first, last netip.Addr) {
	first, last = usable(r.Subnet)
	if r.First.IsValid() {
		first = r.First
	}
	if r.Last.IsValid() {
		last = r.Last
	}
	return first, last
}

// family returns "IPv4" or "IPv6".
func (r Range) family() string {
	if r.Subnet.Addr().Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// CheckSubnet returns an error unless p is a subnet of hosts with host bits 0.
func CheckSubnet(p netip.Prefix) error {
	a := p.Addr()
	switch {
	case !p.IsValid():
		return errors.New("want ADDRESS/PREFIX-LENGTH, such as 10.201.0.0/16")
	case a.Is4In6() || a.IsMulticast() || a.IsLoopback():
		return fmt.Errorf("want a subnet of IPv4 or IPv6 hosts, got %q", p)
	case p != p.Masked():
		return fmt.Errorf("want %s, got %q", p.Masked(), p)
	}
	return nil
}

// CheckHost returns an error unless a host of the subnet can have the address.
func CheckHost(a netip.Addr, subnet netip.Prefix) error {
	if first, last := usable(subnet); !between(first, a, last) {
		return fmt.Errorf("want an address from %s to %s, of subnet %s, got %q", first, last, subnet, a)
	}
	return nil
}

// usable returns the first and the last address of a subnet that a host can have. It
// excludes the network's (for IPv6 the Subnet-Router anycast address, RFC 4291 §2.6.1)
// and IPv4's broadcast address, except in subnets of one or two addresses (RFC 3021,
// RFC 6164).
func usable(p netip.Prefix) (first, last netip.Addr) {
	first, last = p.Addr(), highest(p)
	if p.Addr().BitLen()-p.Bits() < 2 {
		return first, last
	}
	if p.Addr().Is4() {
		last = last.Prev()
	}
	return first.Next(), last
}

// highest returns the last address of a subnet.
func highest(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < p.Addr().BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func between(first, a, last netip.Addr) bool {
	return !a.Less(first) && !last.Less(a) && a.Zone() == ""
}

// size returns the number of addresses from first to last, at most math.MaxUint64.
func size(first, last netip.Addr) uint64 {
	low, high := first.As16(), last.As16()
	lower, borrow := bits.Sub64(binary.BigEndian.Uint64(high[8:]), binary.BigEndian.Uint64(low[8:]), 0)
	upper, _ := bits.Sub64(binary.BigEndian.Uint64(high[:]), binary.BigEndian.Uint64(low[:]), borrow)
	if upper > 0 || lower == math.MaxUint64 {
		return math.MaxUint64
	}
	return lower + 1
}
