// Package ipam manages the addresses of one tenant over all of its guests. It
// allocates addresses from the tenant's ranges, or records those that a guest's own
// IPAM has chosen, so that no two owners have the same address. Times are arguments.
//
// Addresses are allocated round robin, as CNI's host-local does, and a released
// address cools down before it is allocated again. By then the caches of its
// neighbours have expired. An address that no NIC has carried does not cool down, and
// because of one guest only a share of a range does. The guest of an owner is what
// precedes the first slash in the owner's name.
//
// Storing addresses, setting them on interfaces, and filtering do not belong here.
package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Pool holds the addresses of one tenant. Its memory is proportional to the taken
// addresses, not to the ranges, and taking or releasing an address takes O(log n) even
// in a full range. It is not safe for concurrent use. It treats IPv4-mapped IPv6 addresses
// as IPv4.
type Pool struct {
	cooldown time.Duration
	spans    []*span
	families [][]*span // the spans of IPv4, and those of IPv6, if there are any
	subnets  []netip.Prefix
	owners   map[string][]netip.Prefix
	holders  map[netip.Addr]holding
	held     map[string]int        // addresses by guest
	reserved map[netip.Addr]string // the reasons
}

// holding is the state of an address that has an owner.
type holding struct {
	owner string
	used  bool    // a NIC may have carried it
	rest  Cooling // that the owner has interrupted; zero: none
}

// Address is an allocated address.
type Address struct {
	Prefix  netip.Prefix // the address with the length of its subnet
	Gateway netip.Addr   // zero: none
}

// Cooling is a released address that is not allocated until its time.
type Cooling struct {
	Addr  netip.Addr `json:"address"`
	Until time.Time  `json:"until"`
	Guest string     `json:"guest,omitempty"` // that had the address
}

// New returns a pool that allocates from ranges, which it uses in their order, except
// the addresses of networks, broadcasts and gateways. Addresses can be claimed in the
// subnets of the ranges and in the further subnets or, without subnets, everywhere.
// A released address is not allocated during cooldown.
func New(ranges []Range, cooldown time.Duration, further ...netip.Prefix) (*Pool, error) {
	if cooldown < 0 {
		return nil, fmt.Errorf("cooldown %s: want 0 or more", cooldown)
	}
	p := &Pool{
		cooldown: cooldown, owners: map[string][]netip.Prefix{}, held: map[string]int{},
		holders: map[netip.Addr]holding{}, reserved: map[netip.Addr]string{},
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
	for _, v4 := range []bool{true, false} {
		other := func(s *span) bool { return s.Subnet.Addr().Is4() != v4 }
		if family := slices.DeleteFunc(slices.Clone(p.spans), other); len(family) > 0 {
			p.families = append(p.families, family)
		}
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

// Allocate gives the owner one address of each family that has ranges, IPv4 first.
// The owner keeps addresses that it has in the ranges' subnets, allocated or claimed,
// and loses others. The error is an *ExhaustedError or wraps ErrNoRange; then nothing
// changes.
func (p *Pool) Allocate(owner string, now time.Time) ([]Address, error) {
	if len(p.spans) == 0 {
		return nil, fmt.Errorf("allocate address for %s: %w: use an IPAM plugin in the guest", owner, ErrNoRange)
	}
	p.expire(now)
	var given []Address
	var prefixes []netip.Prefix
	for _, family := range p.families {
		a, err := p.choose(owner, family, now)
		if err != nil {
			return nil, fmt.Errorf("allocate address for %s: %w", owner, err)
		}
		given = append(given, a)
		prefixes = append(prefixes, a.Prefix)
	}
	for _, a := range prefixes {
		if _, held := p.holders[a.Addr()]; !held {
			p.span(a.Addr()).advance(a.Addr())
		}
	}
	p.replace(owner, prefixes, now)
	return given, nil
}

// choose returns the address of a family that the owner has, or a free one.
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

// home returns the range of a, or a range in its subnet, or nil.
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
		if next, ok := s.cooling.all.Min(); ok {
			if wait := next.Until.Sub(now); e.Cooling == 0 || wait < e.Wait {
				e.Wait = wait
			}
		}
		e.Ranges = append(e.Ranges, s.Range)
		e.InUse += s.held
		e.Cooling += len(s.cooling.of)
	}
	return e
}

// replace gives the owner these addresses, which are free, cooling or its own, and
// releases its other addresses.
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
	if _, held := p.holders[a]; held {
		return
	}
	h := holding{owner: owner}
	if s := p.span(a); s != nil {
		h.rest = s.warm(a)
		s.take(a)
		s.held++
	}
	p.holders[a] = h
	p.held[guestOf(owner)]++
}

// drop releases an address. In a range it cools down if it was used, and otherwise
// continues the cool-down that its owner has interrupted.
func (p *Pool) drop(a netip.Addr, now time.Time) {
	h := p.holders[a]
	delete(p.holders, a)
	guest := guestOf(h.owner)
	if p.held[guest]--; p.held[guest] == 0 {
		delete(p.held, guest)
	}
	s := p.span(a)
	if s == nil {
		return
	}
	s.held--
	if _, reserved := p.reserved[a]; reserved {
		return // it stays taken
	}
	s.giveBack(a)
	rest := h.rest
	if h.used {
		rest = Cooling{Addr: a, Until: now.Add(p.cooldown), Guest: guest}
	}
	if rest.Until.After(now) {
		s.cool(rest)
	}
}

// Use says that a NIC is about to carry the owner's addresses. When they are released,
// they cool down.
func (p *Pool) Use(owner string) {
	for _, a := range p.owners[owner] {
		h := p.holders[a.Addr()]
		h.used = true
		p.holders[a.Addr()] = h
	}
}

// span returns the range of a, or nil.
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
		s.expire(now, p.cooldown)
	}
}

// Release releases the owner's addresses, if it has any. Those that were used cool down
// from now on; the others can be allocated at once.
func (p *Pool) Release(owner string, now time.Time) {
	p.expire(now)
	for _, a := range p.owners[owner] {
		p.drop(a.Addr(), now)
	}
	delete(p.owners, owner)
}

// Reserve excludes an address from being allocated or claimed. Errors give the reason
// after "address A is", such as "the gateway's". A present holder keeps the address
// until it releases it.
func (p *Pool) Reserve(addr netip.Addr, reason string) {
	a := addr.Unmap().WithZone("")
	_, reserved := p.reserved[a]
	p.reserved[a] = reason
	_, held := p.holders[a]
	s := p.span(a)
	if s == nil || reserved || held {
		return
	}
	s.warm(a)
	s.take(a)
}

// Unreserve ends what Reserve has said of an address.
func (p *Pool) Unreserve(addr netip.Addr) {
	a := addr.Unmap().WithZone("")
	_, reserved := p.reserved[a]
	delete(p.reserved, a)
	_, held := p.holders[a]
	if s := p.span(a); s != nil && reserved && !held {
		s.giveBack(a)
	}
}

func guestOf(owner string) string {
	guest, _, _ := strings.Cut(owner, "/")
	return guest
}

// Held returns how many addresses the owners of the guest of an owner have, without those
// of the owner itself.
func (p *Pool) Held(owner string) int { return p.held[guestOf(owner)] - len(p.owners[owner]) }

// Holds reports whether an owner has the address.
func (p *Pool) Holds(a netip.Addr) bool {
	_, held := p.holders[a.Unmap().WithZone("")]
	return held
}

// Families returns how many addresses Allocate gives to an owner.
func (p *Pool) Families() int { return len(p.families) }

// Owned returns the addresses of the owner: as claimed, or with the length of their
// subnet.
func (p *Pool) Owned(owner string) []netip.Prefix { return slices.Clone(p.owners[owner]) }
