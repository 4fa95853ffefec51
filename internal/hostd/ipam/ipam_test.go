package ipam_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/ipam"
)

var start = time.Unix(1e9, 0)

func mustNew(t testing.TB, cooldown time.Duration, ranges ...ipam.Range) *ipam.Pool {
	t.Helper()
	p, err := ipam.New(ranges, cooldown)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestNewRefuses(t *testing.T) {
	v4 := ipam.Range{Subnet: prefix("10.0.0.0/24")}
	for _, tt := range []struct {
		ranges []ipam.Range
		want   string
	}{
		{[]ipam.Range{{}}, "range 1: subnet: want ADDRESS/PREFIX-LENGTH, such as 10.201.0.0/16"},
		{[]ipam.Range{v4, {Subnet: prefix("10.1.0.1/24")}}, `range 2: subnet: want 10.1.0.0/24, got "10.1.0.1/24"`},
		{[]ipam.Range{{Subnet: prefix("ff02::/64")}}, `range 1: subnet: want a subnet of IPv4 or IPv6 hosts, got "ff02::/64"`},
		{[]ipam.Range{{Subnet: prefix("::ffff:10.0.0.0/120")}}, `range 1: subnet: want a subnet of IPv4 or IPv6 hosts, got "::ffff:10.0.0.0/120"`},
		{[]ipam.Range{{Subnet: v4.Subnet, First: addr("10.0.0.0")}}, `range 1: first: want an address from 10.0.0.1 to 10.0.0.254, of subnet 10.0.0.0/24, got "10.0.0.0"`},
		{[]ipam.Range{{Subnet: v4.Subnet, Last: addr("10.0.0.255")}}, `range 1: last: want an address from 10.0.0.1 to 10.0.0.254`},
		{[]ipam.Range{{Subnet: v4.Subnet, Gateway: addr("10.0.1.1")}}, `range 1: gateway: want an address from 10.0.0.1 to 10.0.0.254`},
		{[]ipam.Range{{Subnet: prefix("fd00::/64"), Gateway: addr("fd00::")}}, `range 1: gateway: want an address from fd00::1 to fd00::ffff:ffff:ffff:ffff`},
		{[]ipam.Range{{Subnet: prefix("fe80::/64"), First: addr("fe80::1%eth0")}}, `range 1: first: want an address`},
		{[]ipam.Range{{Subnet: v4.Subnet, First: addr("10.0.0.9"), Last: addr("10.0.0.8")}}, `range 1: first: want at most last, 10.0.0.8, got "10.0.0.9"`},
		{[]ipam.Range{v4, v4}, "ranges 1 and 2: 10.0.0.1 to 10.0.0.254 overlaps 10.0.0.1 to 10.0.0.254: bound the ranges by first and last"},
		{[]ipam.Range{v4, {Subnet: prefix("10.0.0.0/25"), First: addr("10.0.0.1"), Last: addr("10.0.0.1")}}, "ranges 1 and 2: subnet 10.0.0.0/25 overlaps 10.0.0.0/24: want the same or none in common"},
	} {
		if _, err := ipam.New(tt.ranges, time.Second); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v:\n got %v\nwant %s", tt.ranges, err, tt.want)
		}
	}
	if _, err := ipam.New(nil, -1); err == nil {
		t.Error("New accepts a negative cooldown")
	}
	if _, err := ipam.New(nil, 0, prefix("10.0.0.1/24")); err == nil {
		t.Error("New accepts a subnet with host bits")
	}
}

// An owner gets one address of each family, and the same when it asks again.
func TestAllocateDualStack(t *testing.T) {
	p := mustNew(t, time.Minute,
		ipam.Range{Subnet: prefix("fd00:c9::/64"), First: addr("fd00:c9::1:0")},
		ipam.Range{Subnet: prefix("10.0.0.0/8"), First: addr("10.1.0.1"), Gateway: addr("10.0.0.1")})
	want := []ipam.Address{
		{Prefix: prefix("10.1.0.1/8"), Gateway: addr("10.0.0.1")},
		{Prefix: prefix("fd00:c9::1:0/64")},
	}
	for range 2 {
		got, err := p.Allocate("a", start)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	if got, want := p.Owned("a"), []netip.Prefix{want[0].Prefix, want[1].Prefix}; !slices.Equal(got, want) {
		t.Errorf("owned %v, want %v", got, want)
	}
	free := p.Stats(start).Ranges
	if free[0].Free != math.MaxUint64-0x1_0000 || free[1].Free != 1<<24-1<<16-3 {
		t.Errorf("free: %+v", free)
	}
}

// When one family is exhausted, Allocate takes no address of the other.
func TestAllocateAllOrNothing(t *testing.T) {
	p := mustNew(t, time.Minute, ipam.Range{Subnet: prefix("fd00::/64")}, ipam.Range{Subnet: prefix("10.0.0.0/32")})
	if _, err := p.Allocate("a", start); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(p.Stats(start))
	if got, err := p.Allocate("b", start); err == nil {
		t.Fatalf("got %v of a range of one", got)
	}
	if after := fmt.Sprint(p.Stats(start)); after != before || len(p.Owned("b")) > 0 {
		t.Errorf("the failure has left %v and %s, want %s", p.Owned("b"), after, before)
	}
}

func TestExhaustAndRecover(t *testing.T) {
	p := mustNew(t, 10*time.Second, ipam.Range{Subnet: prefix("10.0.0.0/29"), Gateway: addr("10.0.0.1")})
	for i := range 5 {
		if _, err := p.Allocate(fmt.Sprint(i), start); err != nil {
			t.Fatal(err)
		}
	}
	check := func(now time.Time, want string) {
		t.Helper()
		_, err := p.Allocate("late", now)
		var exhausted *ipam.ExhaustedError
		if !errors.As(err, &exhausted) || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	check(start, "allocate address for late: no free IPv4 address in 10.0.0.1-10.0.0.6 (5 in use, 0 cooling down): remove pods or widen the range")
	p.Use("3")
	p.Use("1")
	p.Release("3", start)
	p.Release("1", start.Add(time.Second))
	p.Release("unknown", start.Add(time.Second))
	check(start.Add(4*time.Second), "allocate address for late: no free IPv4 address in 10.0.0.1-10.0.0.6 (3 in use, 2 cooling down): the next is free in 6s")
	check(start.Add(10*time.Second-1), "allocate address for late: no free IPv4 address in 10.0.0.1-10.0.0.6 (3 in use, 2 cooling down): the next is free in 0s")
	got, err := p.Allocate("late", start.Add(10*time.Second))
	if err != nil || got[0].Prefix != prefix("10.0.0.5/29") {
		t.Errorf("got %v, %v, want the address of the first released", got, err)
	}
}

// Even without a cooldown an address is reused only after all others.
func TestRoundRobin(t *testing.T) {
	p := mustNew(t, 0, ipam.Range{Subnet: prefix("10.0.0.0/29")})
	var got []string
	for range 8 {
		a, err := p.Allocate("a", start)
		if err != nil {
			t.Fatal(err)
		}
		p.Release("a", start)
		got = append(got, a[0].Prefix.Addr().String()[len("10.0.0."):])
	}
	if want := "1 2 3 4 5 6 1 2"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestClaim(t *testing.T) {
	p, err := ipam.New([]ipam.Range{{Subnet: prefix("10.0.0.0/24"), First: addr("10.0.0.100"), Gateway: addr("10.0.0.1")}},
		time.Minute, prefix("10.0.0.0/24"), prefix("fd00::/64"))
	if err != nil {
		t.Fatal(err)
	}
	p.Reserve(addr("::ffff:10.0.0.2"), "guest node1's own")
	claim := func(owner string, addrs ...string) error {
		var all []netip.Prefix
		for _, a := range addrs {
			all = append(all, prefix(a))
		}
		return p.Claim(owner, all, start)
	}
	if err := claim("a", "10.0.0.7/24", "10.0.0.107/32", "::ffff:10.0.0.8/120", "fd00::7/64"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ addr, want string }{
		{"10.0.1.7/24", "address 10.0.1.7/24 is not usable: want an address in the tenant's subnets, 10.0.0.0/24, fd00::/64"},
		{"10.0.0.9/23", "address 10.0.0.9/23 is not usable: want a prefix length of at least 24, subnet 10.0.0.0/24's"},
		{"10.0.0.0/24", `address 10.0.0.0/24 is not usable: want an address from 10.0.0.1 to 10.0.0.254, of subnet 10.0.0.0/24, got "10.0.0.0"`},
		{"10.0.0.255/32", `address 10.0.0.255/32 is not usable: want an address from`},
		{"224.0.0.1/32", `address 224.0.0.1/32 is not usable: want a host's ADDRESS/PREFIX-LENGTH`},
		{"10.0.0.1/24", `address 10.0.0.1 is the gateway's: choose another`},
		{"10.0.0.2/24", `address 10.0.0.2 is guest node1's own: choose another`},
		{"10.0.0.7/24", `address 10.0.0.7 is held by a: choose another`},
		{"10.0.0.9/24", `address 10.0.0.9/24 is not usable: it is given twice`},
	} {
		err := claim("b", "10.0.0.9/24", tt.addr)
		if err == nil || !strings.HasPrefix(err.Error(), "claim for b: "+tt.want) {
			t.Errorf("%s:\n got %v\nwant %s", tt.addr, err, tt.want)
		}
		var taken *ipam.TakenError
		if errors.Is(err, ipam.ErrUnusable) == errors.As(err, &taken) {
			t.Errorf("%s: %v is not of one kind", tt.addr, err)
		}
	}
	if p.Owned("b") != nil || p.Stats(start).InUse != 4 {
		t.Errorf("failures have left %v, %+v", p.Owned("b"), p.Stats(start))
	}
	p.Use("a")
	if err := errors.Join(claim("a", "10.0.0.107/24"), claim("a")); err != nil {
		t.Fatal(err)
	}
	if got := p.Owned("a"); !slices.Equal(got, []netip.Prefix{prefix("10.0.0.107/24")}) {
		t.Errorf("owned %v, want the latest alone", got)
	}
	if err := p.Claim("c", []netip.Prefix{{}}, start); !errors.Is(err, ipam.ErrUnusable) {
		t.Errorf("no address at all: %v", err)
	}
	p.Release("a", start)
	if cooling := p.Cooling(start); len(cooling) != 1 {
		t.Errorf("%v cool down, want 10.0.0.107", cooling)
	}
	if err := claim("b", "10.0.0.107/24"); err != nil || len(p.Cooling(start)) != 0 {
		t.Errorf("claim what cools down: %v, still cooling: %v", err, p.Cooling(start))
	}
}

// Without subnets an address still has only one owner.
func TestClaimWithoutSubnets(t *testing.T) {
	p := mustNew(t, time.Minute)
	if err := p.Claim("a", []netip.Prefix{prefix("192.0.2.1/24")}, start); err != nil {
		t.Error(err)
	}
	if err := p.Claim("b", []netip.Prefix{prefix("192.0.2.1/32")}, start); !errors.As(err, new(*ipam.TakenError)) {
		t.Errorf("claim the address of another owner: got %v", err)
	}
	if err := p.Claim("b", []netip.Prefix{prefix("192.0.2.255/24")}, start); !errors.Is(err, ipam.ErrUnusable) {
		t.Errorf("broadcast address: %v", err)
	}
	if _, err := p.Allocate("a", start); !errors.Is(err, ipam.ErrNoRange) {
		t.Errorf("allocate: %v, want ErrNoRange", err)
	}
}

// Allocate returns claimed addresses: a daemon that restarts and claims the addresses of
// its guests gives no owner a second address.
func TestAllocateAfterClaim(t *testing.T) {
	p := mustNew(t, time.Minute,
		ipam.Range{Subnet: prefix("10.0.0.0/24"), First: addr("10.0.0.100"), Last: addr("10.0.0.110")},
		ipam.Range{Subnet: prefix("10.0.0.0/24"), First: addr("10.0.0.200"), Gateway: addr("10.0.0.1")})
	if err := p.Claim("a", []netip.Prefix{prefix("10.0.0.201/32"), prefix("10.0.0.100/24")}, start); err != nil {
		t.Fatal(err)
	}
	p.Use("a")
	got, err := p.Allocate("a", start)
	if want := (ipam.Address{Prefix: prefix("10.0.0.201/24"), Gateway: addr("10.0.0.1")}); err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	if cooling := p.Cooling(start); len(cooling) != 1 || cooling[0].Addr != addr("10.0.0.100") {
		t.Errorf("%v cool down, want 10.0.0.100", cooling)
	}
}

// Restore continues the cooldowns of an earlier pool.
func TestRestore(t *testing.T) {
	r := ipam.Range{Subnet: prefix("10.0.0.0/29"), Gateway: addr("10.0.0.1")}
	first := mustNew(t, 10*time.Second, r)
	for i := range 5 {
		if _, err := first.Allocate(fmt.Sprint(i), start.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
		first.Use(fmt.Sprint(i))
		first.Release(fmt.Sprint(i), start.Add(time.Duration(i)*time.Second))
	}
	content, err := json.Marshal(first.Cooling(start.Add(10 * time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	var saved []ipam.Cooling
	if err := json.Unmarshal(content, &saved); err != nil || len(saved) != 4 {
		t.Fatalf("%s: %v", content, err)
	}
	second := mustNew(t, 10*time.Second, r)
	second.Reserve(addr("10.0.0.4"), "guest node1's own")
	if err := second.Claim("3", []netip.Prefix{prefix("10.0.0.5/29")}, start); err != nil {
		t.Fatal(err)
	}
	second.Restore(slices.Concat(saved, []ipam.Cooling{
		{Addr: addr("10.9.9.9"), Until: start.Add(time.Hour)},
		{Addr: addr("10.0.0.1"), Until: start.Add(time.Hour)},
		{Addr: addr("10.0.0.6"), Until: start},
	}), start.Add(4*time.Second))
	var left []string
	for _, c := range second.Cooling(start.Add(10 * time.Second)) {
		left = append(left, fmt.Sprint(c.Addr, " ", c.Until.Sub(start)))
	}
	if want := []string{"10.0.0.3 11s", "10.0.0.6 14s"}; !slices.Equal(left, want) {
		t.Errorf("cooling %q, want %q", left, want)
	}
}

// A holder keeps an address that is reserved later, but no other owner gets it.
func TestReserveWhatIsHeld(t *testing.T) {
	p := mustNew(t, 0, ipam.Range{Subnet: prefix("10.0.0.0/31")})
	got, err := p.Allocate("a", start)
	if err != nil {
		t.Fatal(err)
	}
	p.Reserve(got[0].Prefix.Addr(), "guest node1's own")
	if again, err := p.Allocate("a", start); err != nil || again[0] != got[0] {
		t.Errorf("got %v, %v, want %v as before", again, err, got)
	}
	p.Release("a", start)
	if next, err := p.Allocate("a", start); err != nil || next[0] == got[0] {
		t.Errorf("got %v, %v: it is reserved", next, err)
	}
}

// An address that no NIC has carried does not cool down. A cool-down that its owner has
// interrupted continues.
func TestReleaseUnused(t *testing.T) {
	p := mustNew(t, time.Minute, ipam.Range{Subnet: prefix("10.0.0.0/24")})
	for i := range 300 {
		if _, err := p.Allocate("evil/c1", start); err != nil {
			t.Fatalf("allocate again, after %d that were rolled back: %v", i, err)
		}
		p.Release("evil/c1", start)
	}
	if stats := p.Stats(start); stats.InUse != 0 || stats.Cooling != 0 || stats.Ranges[0].Free != 254 {
		t.Errorf("got %+v, want all free", stats)
	}
	a := []netip.Prefix{prefix("10.0.0.9/24")}
	if err := p.Claim("good/c1", a, start); err != nil {
		t.Fatal(err)
	}
	p.Use("good/c1")
	p.Release("good/c1", start)
	if err := p.Claim("evil/c1", a, start.Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	p.Release("evil/c1", start.Add(2*time.Second))
	want := ipam.Cooling{Addr: addr("10.0.0.9"), Until: start.Add(time.Minute), Guest: "good"}
	if got := p.Cooling(start.Add(3 * time.Second)); len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %v as before the claim", got, want)
	}
}

// One guest rests an eighth of a range at most. Its oldest addresses end their cool-down
// first, and other guests' continue theirs.
func TestCoolingPerGuest(t *testing.T) {
	for _, r := range []struct {
		subnet string
		want   int
	}{{"10.0.0.0/24", 254 / 8}, {"10.0.0.0/29", 1}, {"fd00::/64", 4096}} {
		p := mustNew(t, time.Hour, ipam.Range{Subnet: prefix(r.subnet)})
		now := start
		churn := func(owner string) netip.Addr {
			t.Helper()
			now = now.Add(time.Millisecond)
			got, err := p.Allocate(owner, now)
			if err != nil {
				t.Fatalf("%s: %v", r.subnet, err)
			}
			p.Use(owner)
			p.Release(owner, now)
			return got[0].Prefix.Addr()
		}
		good := churn("good/c1")
		var last []netip.Addr
		for i := range 2*r.want + 300 {
			last = append(last, churn(fmt.Sprint("evil/c", i)))
		}
		want := append([]netip.Addr{good}, last[len(last)-r.want:]...)
		var got []netip.Addr
		for _, c := range p.Cooling(now) {
			got = append(got, c.Addr)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d addresses cool down, want the other guest's and the latest %d", r.subnet, len(got), r.want)
		}
	}
}

// A clock that is set back does not make addresses rest for longer than the cool-down.
func TestClockSetBack(t *testing.T) {
	r := ipam.Range{Subnet: prefix("10.0.0.0/24")}
	p := mustNew(t, time.Minute, r)
	for i := range 3 {
		owner := fmt.Sprint("node1/c", i)
		if _, err := p.Allocate(owner, start); err != nil {
			t.Fatal(err)
		}
		p.Use(owner)
		p.Release(owner, start.Add(time.Duration(i)*time.Second))
	}
	back := start.Add(-365 * 24 * time.Hour)
	again := mustNew(t, time.Minute, r)
	again.Restore(p.Cooling(start), back)
	for name, p := range map[string]*ipam.Pool{"while it runs": p, "before it starts": again} {
		cooling := p.Cooling(back)
		if len(cooling) != 3 {
			t.Errorf("%s: %d addresses cool down, want 3", name, len(cooling))
		}
		for _, c := range cooling {
			if c.Until.After(back.Add(time.Minute)) {
				t.Errorf("%s: %s rests until %s, want at most a minute from %s", name, c.Addr, c.Until, back)
			}
		}
		if left := p.Cooling(back.Add(time.Minute)); len(left) > 0 {
			t.Errorf("%s: after the cool-down %v still rest", name, left)
		}
	}
}
