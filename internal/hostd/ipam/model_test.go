package ipam_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/seedtest"
)

// tenants are small enough to be listed.
var tenants = []struct {
	ranges   []ipam.Range
	cooldown time.Duration
	further  []netip.Prefix
}{
	{ranges: []ipam.Range{{Subnet: prefix("10.0.0.0/29"), Gateway: addr("10.0.0.1")}}, cooldown: 3 * time.Second},
	{ranges: []ipam.Range{
		{Subnet: prefix("10.0.0.0/28"), First: addr("10.0.0.3"), Last: addr("10.0.0.5"), Gateway: addr("10.0.0.1")},
		{Subnet: prefix("fd00::/125"), Gateway: addr("fd00::7")},
		{Subnet: prefix("10.0.0.0/28"), First: addr("10.0.0.8"), Gateway: addr("10.0.0.9")},
	}, cooldown: 5 * time.Second},
	{ranges: []ipam.Range{{Subnet: prefix("10.0.0.0/30")}, {Subnet: prefix("10.0.0.4/31")}, {Subnet: prefix("10.0.0.6/32")}, {Subnet: prefix("fd00::2/127")}}},
	{ranges: []ipam.Range{{Subnet: prefix("fd00::/64"), First: addr("fd00::fffe"), Last: addr("fd00::1:3")}}, cooldown: time.Second, further: []netip.Prefix{prefix("10.0.0.0/29")}},
	{further: []netip.Prefix{prefix("10.0.0.0/30")}},
	{ranges: []ipam.Range{{Subnet: prefix("10.0.0.0/27")}}, cooldown: 20 * time.Second},
}

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// model is a pool that looks at every address.
type model struct {
	ranges   []ipam.Range
	lists    [][]netip.Addr // the ranges' addresses
	cursors  []int
	subnets  []netip.Prefix
	cooldown time.Duration
	owners   map[string][]netip.Prefix
	reserved map[netip.Addr]bool
	used     map[netip.Addr]bool
	rests    map[netip.Addr]ipam.Cooling
	// interrupted are the rests that ended because an owner claimed the address.
	interrupted map[netip.Addr]ipam.Cooling
}

// host reports whether a host of the subnet can have the address.
func host(a netip.Addr, subnet netip.Prefix) bool {
	small := a.BitLen()-subnet.Bits() < 2
	last := a.Is4() && !subnet.Contains(a.Next())
	return subnet.Contains(a) && (small || a != subnet.Addr() && !last)
}

func newModel(ranges []ipam.Range, cooldown time.Duration, further []netip.Prefix) *model {
	m := &model{ranges: ranges, subnets: slices.Clone(further), cooldown: cooldown, cursors: make([]int, len(ranges)),
		owners: map[string][]netip.Prefix{}, reserved: map[netip.Addr]bool{}, used: map[netip.Addr]bool{},
		rests: map[netip.Addr]ipam.Cooling{}, interrupted: map[netip.Addr]ipam.Cooling{}}
	for _, r := range ranges {
		from, to := r.First, r.Last
		if !from.IsValid() {
			from = r.Subnet.Addr()
		}
		var all []netip.Addr
		for a := from; r.Subnet.Contains(a) && (!to.IsValid() || a.Compare(to) <= 0); a = a.Next() {
			if host(a, r.Subnet) {
				all = append(all, a)
			}
		}
		m.lists = append(m.lists, all)
		m.subnets = append(m.subnets, r.Subnet)
		m.reserved[r.Gateway] = true
	}
	return m
}

func (m *model) holder(a netip.Addr) (string, bool) {
	for owner, all := range m.owners {
		for _, p := range all {
			if p.Addr() == a {
				return owner, true
			}
		}
	}
	return "", false
}

func (m *model) give(owner string, addrs []netip.Prefix, now time.Time) {
	had := m.owners[owner]
	m.owners[owner] = addrs
	if len(addrs) == 0 {
		delete(m.owners, owner)
	}
	for _, p := range had {
		if _, held := m.holder(p.Addr()); !held {
			m.drop(p.Addr(), owner, now)
		}
	}
	for _, p := range addrs {
		if !slices.ContainsFunc(had, func(h netip.Prefix) bool { return h.Addr() == p.Addr() }) {
			m.interrupted[p.Addr()] = m.rests[p.Addr()]
			delete(m.rests, p.Addr())
		}
	}
}

func (m *model) drop(a netip.Addr, owner string, now time.Time) {
	rest := m.interrupted[a]
	if m.used[a] {
		rest = ipam.Cooling{Addr: a, Until: now.Add(m.cooldown), Guest: guestOf(owner)}
	}
	delete(m.interrupted, a)
	delete(m.used, a)
	in := slices.IndexFunc(m.lists, func(l []netip.Addr) bool { return slices.Contains(l, a) })
	if in < 0 || m.reserved[a] || !rest.Until.After(now) {
		return
	}
	m.rests[a] = rest
	var own []ipam.Cooling
	for _, c := range m.rests {
		if c.Guest == rest.Guest && slices.Contains(m.lists[in], c.Addr) {
			own = append(own, c)
		}
	}
	if len(own) > max(len(m.lists[in])/8, 1) {
		oldest := slices.MinFunc(own, func(a, b ipam.Cooling) int {
			return cmp.Or(a.Until.Compare(b.Until), a.Addr.Compare(b.Addr))
		})
		delete(m.rests, oldest.Addr)
	}
}

func guestOf(owner string) string {
	guest, _, _ := strings.Cut(owner, "/")
	return guest
}

// ownerOf names one of eight owners, of three guests.
func ownerOf(i int) string { return fmt.Sprintf("g%d/c%d", i%3, i) }

// allocate returns nil when a family is exhausted, or has no ranges.
func (m *model) allocate(owner string, now time.Time) (given []netip.Prefix) {
	cursors := slices.Clone(m.cursors)
	for _, v4 := range []bool{true, false} {
		var found netip.Prefix
		wanted := false
		for _, had := range m.owners[owner] {
			for _, r := range m.ranges {
				if had.Addr().Is4() == v4 && r.Subnet.Contains(had.Addr()) && !found.IsValid() {
					found = netip.PrefixFrom(had.Addr(), r.Subnet.Bits())
				}
			}
		}
		for i, r := range m.ranges {
			if r.Subnet.Addr().Is4() != v4 {
				continue
			}
			wanted = true
			for n := range m.lists[i] {
				at := (m.cursors[i] + n) % len(m.lists[i])
				a := m.lists[i][at]
				if _, held := m.holder(a); !found.IsValid() && !held && !m.reserved[a] && !m.rests[a].Until.After(now) {
					found = netip.PrefixFrom(a, r.Subnet.Bits())
					cursors[i] = at + 1
				}
			}
		}
		if wanted && !found.IsValid() {
			return nil
		}
		if wanted {
			given = append(given, found)
		}
	}
	if len(m.ranges) == 0 {
		return nil
	}
	m.cursors = cursors
	m.give(owner, given, now)
	return given
}

func (m *model) claim(owner string, addrs []netip.Prefix, now time.Time) bool {
	for i, p := range addrs {
		holder, held := m.holder(p.Addr())
		in := slices.IndexFunc(m.subnets, func(s netip.Prefix) bool { return s.Contains(p.Addr()) })
		if in < 0 || !host(p.Addr(), m.subnets[in]) || p.Bits() < m.subnets[in].Bits() ||
			held && holder != owner || !held && m.reserved[p.Addr()] {
			return false
		}
		for _, q := range addrs[:i] {
			if q.Addr() == p.Addr() {
				return false
			}
		}
	}
	if len(addrs) > 0 {
		m.give(owner, slices.Clone(addrs), now)
	}
	return true
}

func (m *model) expire(now time.Time) {
	maps.DeleteFunc(m.rests, func(_ netip.Addr, c ipam.Cooling) bool { return !c.Until.After(now) })
}

// script takes decisions from bytes, and zeros after their end.
type script []byte

func (s *script) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

// drive runs a script on a pool and on a model, and compares them after every step.
func drive(t *testing.T, s script) (operations int) {
	tenant := tenants[s.next(len(tenants))]
	pool, err := ipam.New(tenant.ranges, tenant.cooldown, tenant.further...)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(tenant.ranges, tenant.cooldown, tenant.further)
	candidates := []netip.Addr{addr("192.0.2.1"), addr("fd01::1"), addr("255.255.255.255"), addr("::")}
	for _, p := range m.subnets {
		for a := p.Addr(); p.Contains(a) && a.Compare(addr("fd00::20")) < 0; a = a.Next() {
			candidates = append(candidates, a)
		}
	}
	for _, l := range m.lists {
		candidates = append(candidates, l...)
	}
	now := time.Unix(1e9, 0)
	for ; len(s) > 0; operations++ {
		now = now.Add(time.Duration(s.next(3)) * time.Second / 2)
		m.expire(now)
		owner := ownerOf(s.next(8))
		step := ""
		switch s.next(10) {
		case 0, 1, 2:
			step = "allocate for " + owner
			checkAllocate(t, m, pool, owner, now)
		case 3, 4:
			pool.Release(owner, now)
			m.give(owner, nil, now)
			step = "release " + owner
		case 5, 6:
			var addrs []netip.Prefix
			for range s.next(4) {
				a := candidates[s.next(len(candidates))]
				addrs = append(addrs, netip.PrefixFrom(a, []int{a.BitLen(), 29, 28}[s.next(3)]))
			}
			step = fmt.Sprintf("claim %v for %s", addrs, owner)
			err := pool.Claim(owner, addrs, now)
			if ok := m.claim(owner, addrs, now); ok != (err == nil) {
				t.Fatalf("%s: got %v, want success: %t", step, err, ok)
			}
		case 8, 9:
			step = "use " + owner
			pool.Use(owner)
			for _, p := range m.owners[owner] {
				m.used[p.Addr()] = true
			}
		case 7:
			a := candidates[s.next(len(candidates))]
			step = fmt.Sprintf("reserve %s", a)
			if s.next(4) > 0 { // else all addresses are soon taken
				break
			}
			pool.Reserve(a, "a guest's own")
			m.reserved[a] = true
			if _, held := m.holder(a); !held {
				delete(m.rests, a)
			}
		}
		compare(t, step, m, pool, now)
	}
	return operations
}

func checkAllocate(t *testing.T, m *model, pool *ipam.Pool, owner string, now time.Time) {
	t.Helper()
	got, err := pool.Allocate(owner, now)
	want := m.allocate(owner, now)
	var prefixes []netip.Prefix
	for _, a := range got {
		prefixes = append(prefixes, a.Prefix)
		if !slices.ContainsFunc(m.ranges, func(r ipam.Range) bool { return r.Subnet == a.Prefix.Masked() && r.Gateway == a.Gateway }) {
			t.Fatalf("allocate for %s: %s with gateway %s is of no range", owner, a.Prefix, a.Gateway)
		}
	}
	if !slices.Equal(prefixes, want) {
		t.Fatalf("allocate for %s: got %v, %v, want %v", owner, prefixes, err, want)
	}
	var exhausted *ipam.ExhaustedError
	switch {
	case (err == nil) != (want != nil):
		t.Fatalf("allocate for %s: %v with %v", owner, err, want)
	case len(m.ranges) == 0:
		if !errors.Is(err, ipam.ErrNoRange) {
			t.Fatalf("allocate for %s: %v, want ErrNoRange", owner, err)
		}
	case err != nil && (!errors.As(err, &exhausted) || (exhausted.Wait > 0) != (exhausted.Cooling > 0)):
		t.Fatalf("allocate for %s: %v, want an ExhaustedError with a time when some cool down", owner, err)
	}
}

func compare(t *testing.T, step string, m *model, pool *ipam.Pool, now time.Time) {
	t.Helper()
	all := 0
	for i := range 8 {
		owner := ownerOf(i)
		if got := pool.Owned(owner); !slices.Equal(got, m.owners[owner]) {
			t.Fatalf("%s: %s has %v, want %v", step, owner, got, m.owners[owner])
		}
		all += len(m.owners[owner])
	}
	m.expire(now)
	cooling := map[netip.Addr]ipam.Cooling{}
	for _, c := range pool.Cooling(now) {
		cooling[c.Addr] = c
	}
	if !maps.Equal(cooling, m.rests) {
		t.Fatalf("%s: cooling %v, want %v", step, cooling, m.rests)
	}
	stats := pool.Stats(now)
	if stats.InUse != all || stats.Cooling != len(cooling) || len(stats.Ranges) != len(m.ranges) {
		t.Fatalf("%s: %+v, want %d in use, %d cooling", step, stats, all, len(cooling))
	}
	for i, l := range m.lists {
		var free, held, cool int
		for _, a := range l {
			_, isHeld := m.holder(a)
			_, isCooling := m.rests[a]
			switch {
			case isHeld:
				held++
			case isCooling:
				cool++
			case !m.reserved[a]:
				free++
			}
		}
		if want := (ipam.RangeStats{Range: m.ranges[i], InUse: held, Cooling: cool, Free: uint64(free)}); stats.Ranges[i] != want {
			t.Fatalf("%s: got %+v, want %+v", step, stats.Ranges[i], want)
		}
	}
}

func TestModel(t *testing.T) {
	seedtest.Each(t, 200, func(t *testing.T, seed uint64) int {
		random := rand.New(rand.NewPCG(seed, 0))
		s := make(script, 2000)
		for i := range s {
			s[i] = byte(random.Uint32())
		}
		s[0] = byte(seed)
		return drive(t, s)
	})
}

func FuzzPool(f *testing.F) {
	f.Add([]byte{})
	for tenant := range tenants {
		f.Add([]byte{byte(tenant), 0, 1, 0, 0, 2, 0, 1, 1, 3, 0, 3, 5, 2, 5, 0, 6, 1, 0, 4, 7, 8, 0, 2, 1, 0})
	}
	f.Fuzz(func(t *testing.T, data []byte) { drive(t, data[:min(len(data), 500)]) })
}
