package iprange

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// universe is small enough to look at each address: the first, some middle and the last ones
// of both families.
var universe = func() (all []netip.Addr) {
	for _, start := range []string{"0.0.0.0", "10.0.0.248", "255.255.255.240", "::", "::ffff:0.0.0.0", "fd00::fff8", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"} {
		a := netip.MustParseAddr(start)
		for range 16 {
			all = append(all, a)
			a = a.Next()
		}
	}
	return all
}()

func drawRange(t *rapid.T) Range {
	if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
		a := rapid.SampledFrom(universe).Draw(t, "address")
		p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		if err != nil {
			t.Fatal(err)
		}
		return Of(p)
	}
	i := rapid.IntRange(0, len(universe)-1).Draw(t, "first")
	end := len(universe)
	if universe[i].Is4() {
		end = 3 * 16
	}
	j := rapid.IntRange(i, end-1).Draw(t, "last")
	return Range{universe[i], universe[j]}
}

func inAny(all []Range, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(r Range) bool { return r.Contains(a) })
}

// Union and Subtract are what they are for each address, as few ranges as there can be, and
// survive their text. Families splits them.
func TestSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some, other := rapid.SliceOf(rapid.Custom(drawRange)).Draw(t, "from"), rapid.SliceOf(rapid.Custom(drawRange)).Draw(t, "without")
		union := Union(some)
		left := Subtract(union, Union(other))
		for _, a := range universe {
			if got, want := inAny(union, a), inAny(some, a); got != want || Contains(union, a) != want {
				t.Fatalf("union %v has %s: %t, searched %t, want %t", union, a, got, Contains(union, a), want)
			}
			if got, want := inAny(left, a), inAny(some, a) && !inAny(other, a); got != want {
				t.Fatalf("difference %v has %s: %t, want %t", left, a, got, want)
			}
		}
		four, six := Families(union)
		if !slices.Equal(slices.Concat(four, six), union) {
			t.Fatalf("families %v and %v are not %v", four, six, union)
		}
		for i, family := range [][]Range{four, six} {
			if slices.ContainsFunc(family, func(r Range) bool { return r.First.Is6() != (i == 1) }) {
				t.Fatalf("%v is not a family", family)
			}
		}
		for _, set := range [][]Range{union, left} {
			if !slices.Equal(set, Union(set)) {
				t.Fatalf("%v is not sorted, or not as few ranges as there can be", set)
			}
			for _, r := range set {
				if again, err := Parse(r.String()); err != nil || again != r {
					t.Fatalf("%v is read as %v, error %v", r, again, err)
				}
			}
		}
	})
}

// Sets of other addresses have other sums, also of the other family.
func TestSum(t *testing.T) {
	v4, mapped := Of(netip.MustParsePrefix("10.0.0.1/32")), Of(netip.MustParsePrefix("::ffff:10.0.0.1/128"))
	seen := map[[32]byte][]Range{}
	for _, set := range [][]Range{nil, {v4}, {mapped}, {v4, mapped}, {v4, v4, v4, v4}, {Of(netip.MustParsePrefix("a00:1:a00:1:a00:1:a00:1/128"))}} {
		if other, ok := seen[Sum(set)]; ok {
			t.Errorf("%v has the sum of %v", set, other)
		}
		seen[Sum(set)] = set
	}
}

// A text that is not a range is refused.
func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"", "-", "10.0.0.1", "10.0.0.2-10.0.0.1", "10.0.0.1-::1", "10.0.0.0/33", "fe80::1%a-fe80::2%a", "10.0.0.1-10.0.0.2-10.0.0.3"} {
		if r, err := Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}

// The result of many exceptions grows with their number, not with that of prefixes.
func TestManyExceptions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var excepts []Range
	for range 20000 {
		var bytes [16]byte
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		a := netip.AddrFrom16(bytes)
		excepts = append(excepts, Range{a, a})
	}
	if left := Subtract([]Range{Of(netip.MustParsePrefix("::/0"))}, Union(excepts)); len(left) > len(excepts)+1 {
		t.Errorf("%d exceptions leave %d ranges", len(excepts), len(left))
	}
}

// A sum takes its content in one piece: the daemon makes those of tens of thousands of ranges for each commit.
func TestSumAllocates(t *testing.T) {
	var all []Range
	for i := range 1000 {
		all = append(all, Of(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), 32)))
	}
	if n := testing.AllocsPerRun(10, func() { Sum(all) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}
