package networkpolicy

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"unnest.io/unnest/internal/hostapi/iprange"
)

// everyone are all addresses.
var everyone = []iprange.Range{
	iprange.Of(netip.PrefixFrom(netip.IPv4Unspecified(), 0)), iprange.Of(netip.PrefixFrom(netip.IPv6Unspecified(), 0)),
}

// parseBlock returns the addresses of a block without its exceptions.
func parseBlock(b networkingv1.IPBlock) ([]iprange.Range, error) {
	block, err := parsePrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("ipBlock: %w", err)
	}
	var excepts []iprange.Range
	for _, text := range b.Except {
		except, err := parsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipBlock: except: %w", err)
		}
		excepts = append(excepts, iprange.Of(except))
	}
	return iprange.Subtract([]iprange.Range{iprange.Of(block)}, iprange.Union(excepts)), nil
}

// parsePrefix takes an address of IPv4 that is written as one of IPv6 for what it is, as the
// API server does.
func parsePrefix(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if a := p.Addr(); err == nil && a.Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
	}
	return p, err
}
