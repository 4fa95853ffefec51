package networkpolicy

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// everyone are all addresses.
var everyone = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

// parseBlock returns the addresses of a block without its exceptions.
func parseBlock(b networkingv1.IPBlock) ([]netip.Prefix, error) {
	block, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("ipBlock: %w", err)
	}
	left := []netip.Prefix{block.Masked()}
	for _, text := range b.Except {
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipBlock: except: %w", err)
		}
		var next []netip.Prefix
		for _, p := range left {
			next = append(next, subtract(p, except.Masked())...)
		}
		left = next
	}
	return left, nil
}

// subtract returns the addresses of p that are not in except.
func subtract(p, except netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(except):
		return []netip.Prefix{p}
	case except.Bits() <= p.Bits():
		return nil
	}
	low, high := halves(p)
	return append(subtract(low, except), subtract(high, except)...)
}

// halves splits a prefix of more than one address.
func halves(p netip.Prefix) (low, high netip.Prefix) {
	bit := p.Bits()
	bytes := p.Addr().AsSlice()
	bytes[bit/8] |= 0x80 >> (bit % 8)
	a, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(p.Addr(), bit+1), netip.PrefixFrom(a, bit+1)
}

// disjoint returns the addresses of prefixes, sorted and each once.
func disjoint(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Prefix.Compare)
	var kept []netip.Prefix
	for _, p := range all { // a prefix comes after those that contain it
		if n := len(kept); n == 0 || !kept[n-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
