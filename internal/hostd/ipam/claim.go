package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Claim records the addresses that the guest's own IPAM has chosen for the owner, in
// place of those that the owner had. Without addresses it changes nothing: use
// Release. An address has to be that of a host in one of the subnets, with a prefix at
// least as long as the subnet's, and not taken. Otherwise the error wraps ErrUnusable
// or is a *TakenError, and nothing changes.
//
// A cooling address can be claimed: the guest's IPAM has its own delay, and in a small
// range no other choice.
func (p *Pool) Claim(owner string, addrs []netip.Prefix, now time.Time) error {
	if len(addrs) == 0 {
		return nil
	}
	p.expire(now)
	claimed, seen := make([]netip.Prefix, len(addrs)), map[netip.Addr]bool{}
	for i, a := range addrs {
		claimed[i] = unmap(a)
		if err := p.checkClaim(owner, claimed[i]); err != nil {
			return fmt.Errorf("claim for %s: %w", owner, err)
		}
		if seen[claimed[i].Addr()] {
			return fmt.Errorf("claim for %s: address %s is %w: it is given twice", owner, a, ErrUnusable)
		}
		seen[claimed[i].Addr()] = true
	}
	p.replace(owner, claimed, now)
	return nil
}

func unmap(a netip.Prefix) netip.Prefix {
	if a.Addr().Is4In6() && a.Bits() >= 96 {
		return netip.PrefixFrom(a.Addr().Unmap(), a.Bits()-96)
	}
	return a
}

func (p *Pool) checkClaim(owner string, a netip.Prefix) error {
	if err := p.checkUsable(a); err != nil {
		return fmt.Errorf("address %s is %w: %w", a, ErrUnusable, err)
	}
	if h, held := p.holders[a.Addr()]; held {
		if h.owner == owner {
			return nil // even if it was reserved later
		}
		return &TakenError{Addr: a.Addr(), Reason: "held by " + h.owner}
	}
	if reason, reserved := p.reserved[a.Addr()]; reserved {
		return &TakenError{Addr: a.Addr(), Reason: reason}
	}
	return nil
}

// checkUsable returns an error unless a is a host's address in one of the subnets.
func (p *Pool) checkUsable(a netip.Prefix) error {
	if !a.IsValid() || a.Addr().Is4In6() || a.Addr().IsMulticast() || a.Addr().IsLoopback() || a.Addr().IsUnspecified() {
		return errors.New("want a host's ADDRESS/PREFIX-LENGTH")
	}
	if len(p.subnets) == 0 {
		return CheckHost(a.Addr(), a.Masked())
	}
	for _, s := range p.subnets {
		if !s.Contains(a.Addr()) {
			continue
		}
		if a.Bits() < s.Bits() {
			return fmt.Errorf("want a prefix length of at least %d, subnet %s's", s.Bits(), s)
		}
		return CheckHost(a.Addr(), s)
	}
	var texts []string
	for _, s := range p.subnets {
		if !slices.Contains(texts, s.String()) {
			texts = append(texts, s.String())
		}
	}
	return fmt.Errorf("want an address in the tenant's subnets, %s", strings.Join(texts, ", "))
}
