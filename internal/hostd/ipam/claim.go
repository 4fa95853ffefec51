package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// AdmitClaim returns an error unless the guest of an owner may choose these addresses: those that
// the owner has, those that cool down because of this guest, and those in one of the ranges that
// do not cool down because of another guest. The error wraps ErrUnusable or is a *TakenError. It
// does not say whether Claim takes the addresses.
func (p *Pool) AdmitClaim(owner string, addrs, ranges []netip.Prefix, now time.Time) error {
	p.expire(now)
	for _, a := range addrs {
		addr := unmap(a).Addr()
		if p.holders[addr].owner == owner {
			continue
		}
		if s := p.span(addr); s != nil {
			if c, cooling := s.cooling.of[addr]; cooling && c.Guest == guestOf(owner) {
				continue
			} else if cooling {
				return fmt.Errorf("claim for %s: %w", owner, &TakenError{Addr: addr, Reason: "cooling down after a pod of another guest"})
			}
		}
		if !slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(addr) }) {
			return fmt.Errorf("claim for %s: address %s is %w: want one in the tenant's claimRanges, %v", owner, a, ErrUnusable, ranges)
		}
	}
	return nil
}

// Keep records addresses that the owner's NIC has, as Claim does, also those that were reserved
// since the NIC has them.
func (p *Pool) Keep(owner string, addrs []netip.Prefix, now time.Time) error {
	return p.claim(owner, addrs, true, now)
}

// Claim records the addresses that the guest's own IPAM has chosen for the owner, in
// place of those that the owner had. Without addresses it changes nothing: use
// Release. An address has to be that of a host in one of the subnets, with a prefix at
// least as long as the subnet's, and not taken. Otherwise the error wraps ErrUnusable
// or is a *TakenError, and nothing changes.
//
// A cooling address can be claimed: the guest's IPAM has its own delay, and in a small
// range no other choice.
func (p *Pool) Claim(owner string, addrs []netip.Prefix, now time.Time) error {
	return p.claim(owner, addrs, false, now)
}

func (p *Pool) claim(owner string, addrs []netip.Prefix, keep bool, now time.Time) error {
	if len(addrs) == 0 {
		return nil
	}
	p.expire(now)
	claimed, seen := make([]netip.Prefix, len(addrs)), map[netip.Addr]bool{}
	for i, a := range addrs {
		claimed[i] = unmap(a)
		if err := p.checkClaim(owner, claimed[i], keep); err != nil {
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

func (p *Pool) checkClaim(owner string, a netip.Prefix, keep bool) error {
	if err := p.checkUsable(a); err != nil {
		return fmt.Errorf("address %s is %w: %w", a, ErrUnusable, err)
	}
	if h, held := p.holders[a.Addr()]; held {
		if h.owner == owner {
			return nil // even if it was reserved later
		}
		return &TakenError{Addr: a.Addr(), Reason: "held by " + h.owner}
	}
	if reason, reserved := p.reserved[a.Addr()]; reserved && !keep {
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
