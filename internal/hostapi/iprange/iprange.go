// Package iprange computes with sets of IP addresses as sorted ranges, in time n log n. A range
// takes the same space whatever its bounds are: all addresses except one are two ranges, and
// up to 128 prefixes.
//
// Addresses of both families may be in one set: those of IPv4 come first. An address of IPv4 that
// is mapped into IPv6 is one of IPv6.
//
// What a set is for does not belong here.
package iprange

import (
	"crypto/sha256"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// Range is the addresses from First to Last, both included, of one family.
type Range struct{ First, Last netip.Addr }

// Of returns the addresses of a prefix, or the zero Range if the prefix is not valid.
func Of(p netip.Prefix) Range {
	p = p.Masked()
	return Range{p.Addr(), lastOf(p)}
}

func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		bytes[i] |= 0xff >> max(0, min(8, p.Bits()-8*i))
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// Parse reads FIRST-LAST or ADDRESS/PREFIX-LENGTH.
func Parse(text string) (r Range, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		var p netip.Prefix
		if p, err = netip.ParsePrefix(text); err == nil {
			r = Of(p)
		}
	} else if r.First, err = netip.ParseAddr(first); err == nil {
		r.Last, err = netip.ParseAddr(last)
	}
	if err != nil || !r.valid() {
		return Range{}, fmt.Errorf("addresses %.90q: want ADDRESS/PREFIX-LENGTH or FIRST-LAST", text)
	}
	return r, nil
}

func (r Range) valid() bool {
	return r.First.BitLen() == r.Last.BitLen() && r.First.Zone() == "" && r.Last.Zone() == "" && r.First.Compare(r.Last) <= 0
}

// String returns the range as Parse reads it: as a prefix if it is one.
func (r Range) String() string {
	common, last := 0, r.Last.AsSlice() // leading bits
	for i, b := range r.First.AsSlice() {
		if common += bits.LeadingZeros8(b ^ last[i]); common < 8*(i+1) {
			break
		}
	}
	if p := netip.PrefixFrom(r.First, common); Of(p) == r {
		return p.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// MarshalText implements encoding.TextMarshaler.
func (r Range) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Range) UnmarshalText(text []byte) (err error) {
	*r, err = Parse(string(text))
	return err
}

// Contains reports whether an address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return a.BitLen() == r.First.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// All reports whether the range is every address of its family.
func (r Range) All() bool { return !r.First.Prev().IsValid() && !r.Last.Next().IsValid() }

// Union returns the addresses of ranges, sorted and as few ranges as there can be.
func Union(all []Range) []Range {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Range) int { return a.First.Compare(b.First) })
	kept := all[:0]
	for _, r := range all {
		n := len(kept)
		switch {
		case n == 0 || kept[n-1].Last.BitLen() != r.First.BitLen() || before(kept[n-1].Last, r.First):
			kept = append(kept, r)
		case kept[n-1].Last.Less(r.Last):
			kept[n-1].Last = r.Last
		}
	}
	return kept
}

// before reports whether there is an address between a and b, of which b is not smaller.
func before(a, b netip.Addr) bool {
	next := a.Next()
	return next.IsValid() && next.Less(b)
}

// Subtract returns those addresses of a set that are not in another. Both are as Union
// returns them, and so is the result.
func Subtract(from, without []Range) (left []Range) {
	for _, r := range from {
		for len(without) > 0 && without[0].Last.Less(r.First) {
			without = without[1:]
		}
		gone := false // up to its last address
		for _, w := range without {
			if r.Last.Less(w.First) || r.First.BitLen() != w.First.BitLen() {
				break
			}
			if r.First.Less(w.First) {
				left = append(left, Range{r.First, w.First.Prev()})
			}
			if gone = !w.Last.Less(r.Last); gone {
				break
			}
			r.First = w.Last.Next()
		}
		if !gone {
			left = append(left, r)
		}
	}
	return left
}

// Contains reports whether an address is in a set that is as Union returns it.
func Contains(all []Range, a netip.Addr) bool {
	i := sort.Search(len(all), func(i int) bool { return a.Compare(all[i].Last) <= 0 })
	return i < len(all) && all[i].Contains(a)
}

// Families returns the ranges of IPv4 and those of IPv6 of a set that is as Union returns it.
func Families(all []Range) (four, six []Range) {
	first6 := sort.Search(len(all), func(i int) bool { return all[i].First.Is6() })
	return all[:first6], all[first6:]
}

// Sum returns a sum of a set that is as Union returns it: other addresses have another sum.
func Sum(all []Range) [sha256.Size]byte {
	content := make([]byte, 0, (1+2*16)*len(all))
	for _, r := range all {
		content = append(content, byte(r.First.BitLen())) // else four ranges of IPv4 read as one of IPv6
		for _, a := range []netip.Addr{r.First, r.Last} {
			long := a.As16()
			content = append(content, long[len(long)-a.BitLen()/8:]...)
		}
	}
	return sha256.Sum256(content)
}
