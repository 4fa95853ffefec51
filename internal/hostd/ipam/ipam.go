// Package ipam keeps the addresses of one tenant, over all of its guests: it
// gives them from the tenant's ranges, or notes those that a guest's own IPAM has
// chosen, so that none is held twice. It has no clock: times are arguments.
//
// Addresses are given round robin, and one that was released cools down first:
// neighbours and peers have forgotten its last holder before the next begins
// (CNI's host-local gives them round robin for the same reason).
//
// Keeping addresses on disk, putting them on interfaces, and what a pod may send
// do not belong here.
package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Pool is the addresses of one tenant. Memory is proportional to what is taken,
// not to the ranges; finding a free address is O(log n) however full they are. It
// is not safe for concurrent use. IPv4-mapped IPv6 addresses are taken for IPv4's.
type Pool struct {
	cooldown time.Duration
	spans    []*span
	subnets  []netip.Prefix
	owners   map[string][]netip.Prefix
	holders  map[netip.Addr]string // of owners
	reserved map[netip.Addr]string // -> whose
}

// Address is one that was given.
type Address struct {
	Prefix  netip.Prefix // the address with its subnet's length
	Gateway netip.Addr   // zero: none
}

// Cooling is an address that was released and is not given before its time.
type Cooling struct {
	Addr  netip.Addr `json:"address"`
	Until time.Time  `json:"until"`
}

// New returns a pool of which no address is taken but networks', broadcasts' and
// gateways'. Ranges of one family are used in their order. Addresses may be
// claimed in the ranges' subnets and in the further ones; without any subnet,
// everywhere. Cooldown is how long a released address is not given.
func New(ranges []Range, cooldown time.Duration, further ...netip.Prefix) (*Pool, error) {
	if cooldown < 0 {
		return nil, fmt.Errorf("cooldown %s: want 0 or more", cooldown)
	}
	p := &Pool{
		cooldown: cooldown, owners: map[string][]netip.Prefix{},
		holders: map[netip.Addr]string{}, reserved: map[netip.Addr]string{},
	}
	for i, r := range ranges {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("range %d: %w", i+1, err)
		}
		for j, earlier := range ranges[:i] {
			if err := r.Conflict(earlier); err != nil {
				return nil, fmt.Errorf("ranges %d and %d: %w", j+1, i+1, err)
			}
		}
		p.spans = append(p.spans, newSpan(r))
		p.subnets = append(p.subnets, r.Subnet)
	}
	for _, s := range further {
		if err := CheckSubnet(s); err != nil {
			return nil, err
		}
		p.subnets = append(p.subnets, s)
	}
	for _, r := range ranges {
		if r.Gateway.IsValid() {
			p.Reserve(r.Gateway, "the gateway's")
		}
	}
	return p, nil
}

// Allocate gives the owner one address of each family that has ranges, or of
// none. Those in the ranges' subnets that it has already, given or claimed, it
// keeps; it has no others afterwards. IPv4 comes first. The error is an *ExhaustedError, or wraps ErrNoRange.
func (p *Pool) Allocate(owner string, now time.Time) ([]Address, error) {
	if len(p.spans) == 0 {
		return nil, fmt.Errorf("allocate address for %s: %w: the guest's own IPAM has to choose", owner, ErrNoRange)
	}
	p.expire(now)
	var given []Address
	var prefixes []netip.Prefix
	for _, family := range p.families() {
		a, err := p.choose(owner, family, now)
		if err != nil {
			return nil, fmt.Errorf("allocate address for %s: %w", owner, err)
		}
		given = append(given, a)
		prefixes = append(prefixes, a.Prefix)
	}
	for _, a := range prefixes {
		if _, its := p.holders[a.Addr()]; !its {
			p.span(a.Addr()).advance(a.Addr())
		}
	}
	p.replace(owner, prefixes, now)
	return given, nil
}

// families returns the spans of each family.
func (p *Pool) families() [][]*span {
	var v4, v6 []*span
	for _, s := range p.spans {
		if s.Subnet.Addr().Is4() {
			v4 = append(v4, s)
		} else {
			v6 = append(v6, s)
		}
	}
	return slices.DeleteFunc([][]*span{v4, v6}, func(f []*span) bool { return len(f) == 0 })
}

// choose returns the address of a family that the owner has or is to get.
func (p *Pool) choose(owner string, family []*span, now time.Time) (Address, error) {
	for _, had := range p.owners[owner] {
		if s := home(family, had.Addr()); s != nil {
			return s.address(had.Addr()), nil
		}
	}
	for _, s := range family {
		if a, ok := s.free(); ok {
			return s.address(a), nil
		}
	}
	return Address{}, exhausted(family, now)
}

// home returns the range of a, or else one of its subnet, or nil.
func home(family []*span, a netip.Addr) (found *span) {
	for _, s := range family {
		if s.contains(a) {
			return s
		}
		if s.Subnet.Contains(a) {
			found = s
		}
	}
	return found
}

func (s *span) address(a netip.Addr) Address {
	return Address{Prefix: netip.PrefixFrom(a, s.Subnet.Bits()), Gateway: s.Gateway}
}

func exhausted(family []*span, now time.Time) error {
	e := &ExhaustedError{}
	for _, s := range family {
		if len(s.cooling) > 0 {
			if wait := s.cooling[0].Until.Sub(now); e.Cooling == 0 || wait < e.Wait {
				e.Wait = wait
			}
		}
		e.Ranges = append(e.Ranges, s.Range)
		e.InUse += s.held
		e.Cooling += len(s.cooling)
	}
	return e
}

// Claim notes the addresses that the guest's own IPAM has chosen for the owner:
// all of them in place of what the owner had, or none. Without any it changes
// nothing: Release takes them all. An address has to be a host's in one of the
// subnets, with a prefix no shorter than the subnet's, and nobody else's; the
// error wraps ErrUnusable or is a *TakenError.
//
// An address that cools down can be claimed. The cool-down is there for the
// addresses that the pool chooses; whoever chooses by himself has his own, and in
// a small range no other choice.
func (p *Pool) Claim(owner string, addrs []netip.Prefix, now time.Time) error {
	if len(addrs) == 0 {
		return nil
	}
	p.expire(now)
	claimed := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		claimed[i] = unmap(a)
		if err := p.checkClaim(owner, claimed[i]); err != nil {
			return fmt.Errorf("claim for %s: %w", owner, err)
		}
		if slices.ContainsFunc(claimed[:i], func(o netip.Prefix) bool { return o.Addr() == claimed[i].Addr() }) {
			return fmt.Errorf("claim for %s: address %s is %w: it is there twice", owner, a, ErrUnusable)
		}
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
	if holder, held := p.holders[a.Addr()]; held {
		if holder == owner {
			return nil // also when it was reserved since
		}
		return &TakenError{Addr: a.Addr(), Reason: "held by " + holder}
	}
	if whose, reserved := p.reserved[a.Addr()]; reserved {
		return &TakenError{Addr: a.Addr(), Reason: whose}
	}
	return nil
}

// checkUsable looks for the subnet that a host of the address a is in.
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
	return fmt.Errorf("want one of the tenant's subnets, %s", list(p.subnets))
}

func list(subnets []netip.Prefix) string {
	var text string
	for i, s := range subnets {
		if slices.Contains(subnets[:i], s) {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += s.String()
	}
	return text
}

// replace gives the owner these addresses, which are free, cooling or its own,
// in place of those that it has.
func (p *Pool) replace(owner string, addrs []netip.Prefix, now time.Time) {
	keep := map[netip.Addr]bool{}
	for _, a := range addrs {
		keep[a.Addr()] = true
	}
	for _, had := range p.owners[owner] {
		if !keep[had.Addr()] {
			p.drop(had.Addr(), now)
		}
	}
	for _, a := range addrs {
		p.hold(owner, a.Addr())
	}
	p.owners[owner] = addrs
}

func (p *Pool) hold(owner string, a netip.Addr) {
	if _, its := p.holders[a]; its {
		return
	}
	p.holders[a] = owner
	if s := p.span(a); s != nil {
		s.warm(a)
		s.taken.add(a)
		s.held++
	}
}

// drop takes an address from its holder. It cools down when it is one that the
// pool gives.
func (p *Pool) drop(a netip.Addr, now time.Time) {
	delete(p.holders, a)
	s := p.span(a)
	if s == nil {
		return
	}
	s.held--
	if _, reserved := p.reserved[a]; reserved {
		return // taken as before
	}
	s.taken.remove(a)
	if p.cooldown > 0 {
		s.cool(Cooling{Addr: a, Until: now.Add(p.cooldown)})
	}
}

// span returns the range that gives a, or nil.
func (p *Pool) span(a netip.Addr) *span {
	for _, s := range p.spans {
		if s.contains(a) {
			return s
		}
	}
	return nil
}

func (p *Pool) expire(now time.Time) {
	for _, s := range p.spans {
		s.expire(now)
	}
}

// Release takes the owner's addresses back; they cool down from now on. It is no
// error when it has none.
func (p *Pool) Release(owner string, now time.Time) {
	for _, a := range p.owners[owner] {
		p.drop(a.Addr(), now)
	}
	delete(p.owners, owner)
}

// Reserve keeps an address from being given or claimed, for as long as the pool
// lives; whose says in errors whose it is, such as
// "the gateway's". Whoever holds
// the address keeps it until it releases it.
func (p *Pool) Reserve(addr netip.Addr, whose string) {
	a := addr.Unmap().WithZone("")
	_, reserved := p.reserved[a]
	p.reserved[a] = whose
	_, held := p.holders[a]
	s := p.span(a)
	if s == nil || reserved || held {
		return
	}
	s.warm(a)
	s.taken.add(a)
}

// Owned returns the addresses of the owner: as it claimed them, or with their
// subnet's length.
func (p *Pool) Owned(owner string) []netip.Prefix { return slices.Clone(p.owners[owner]) }

// Stats counts addresses.
type Stats struct {
	InUse   int // held by owners, also outside of the ranges
	Cooling int
	Ranges  []RangeStats // in the order of New
}

// RangeStats counts the addresses of one range.
type RangeStats struct {
	Range   Range
	InUse   int
	Cooling int
	Free    uint64 // that can be given now; math.MaxUint64 stands for that and more
}

// Stats counts the addresses by what they are now.
func (p *Pool) Stats(now time.Time) Stats {
	p.expire(now)
	stats := Stats{InUse: len(p.holders)}
	for _, s := range p.spans {
		stats.Cooling += len(s.cooling)
		stats.Ranges = append(stats.Ranges, RangeStats{Range: s.Range, InUse: s.held, Cooling: len(s.cooling), Free: s.available()})
	}
	return stats
}

// Cooling returns the addresses that are not to be given yet, for Restore.
func (p *Pool) Cooling(now time.Time) []Cooling {
	p.expire(now)
	var all []Cooling
	for _, s := range p.spans {
		all = append(all, s.cooling...)
	}
	return all
}

// Restore lets addresses cool down that an earlier pool has released. Those that
// are taken, and those that are in no range, are left out. Of an address that
// cools down already the later time holds.
func (p *Pool) Restore(cooling []Cooling) {
	for _, c := range cooling {
		c.Addr = c.Addr.Unmap()
		s := p.span(c.Addr)
		_, held := p.holders[c.Addr]
		_, reserved := p.reserved[c.Addr]
		if s == nil || held || reserved || s.until[c.Addr].After(c.Until) {
			continue
		}
		s.warm(c.Addr)
		s.cool(c)
	}
}
