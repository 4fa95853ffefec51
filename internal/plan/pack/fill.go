package pack

import (
	"iter"
	"math"
	"slices"

	"unnest/internal/plan/cluster"
)

// Limits of Fill.
const (
	mostEjected = 3  // items that one item replaces
	shuffles    = 60 // attempts to move or swap items after each replacement
)

// Fill puts the pods of a user on the VMs of one of the purchases, which are lists of models: of the
// first for which it finds a way that keeps the user's spreads. It returns false if it finds none
// with Options.Effort, which need not mean that there is none. Options.Host must be zero.
//
// An item that has no room replaces a few others on a VM, those that had no room least often,
// which then wait (guided ejection search: Nagata and Bräysy, A powerful route minimization
// heuristic for the vehicle routing problem with time windows, Operations Research Letters 37, 2009).
func Fill(u cluster.User, c cluster.Catalogue, o Options, purchases iter.Seq[[]int]) (Outcome, bool, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return Outcome{}, false, err
	}
	o.Explain = false // there is no plan to begin with
	m, items := newModelIndex(c), newItems(u, nil)
	budget := o.Effort * len(items.items)
	for models := range purchases {
		f := filler{packing: newPacking(m, items, o), hard: slices.Repeat([]int{1}, len(items.items)), budget: budget / 2}
		budget -= f.budget
		for _, model := range models {
			f.buy(model, 0)
		}
		if f.waiting = f.smallestFirst(f.all()); !f.run() {
			continue
		}
		f.shrinkAll()
		if found := f.outcome(); u.Keeps(found.Plan) {
			return found, true, nil
		}
	}
	return Outcome{}, false, nil
}

type filler struct {
	*packing
	waiting []int32
	hard    []int  // how often each item had no room, from 1
	drawn   uint64 // pseudorandom numbers
	budget  int

	out   []int32 // a replacement that is tried
	best  []int32 // the one found, of those with the least sum of hard
	bin   int     // where it is
	least int
	ties  int
}

// random returns a pseudorandom number below n.
func (f *filler) random(n int) int {
	f.drawn++
	return int(mix(f.drawn)) % n
}

// run reports whether it has placed all items within the budget.
func (f *filler) run() bool {
	for len(f.waiting) > 0 {
		u := f.waiting[len(f.waiting)-1] // the largest at first
		if f.budget -= len(f.bins); f.budget <= 0 {
			return false
		}
		if b := f.fullest(u); b >= 0 {
			f.waiting = f.waiting[:len(f.waiting)-1]
			f.put(u, b)
			continue
		}
		f.hard[u]++
		f.least, f.ties, f.out = math.MaxInt, 0, f.out[:0]
		for b := range f.bins {
			f.replace(u, b, slices.Clone(f.bins[b].items), 0)
		}
		if f.least == math.MaxInt {
			return false
		}
		f.waiting = append(f.waiting[:len(f.waiting)-1], f.best...)
		for _, v := range f.best {
			f.remove(v)
		}
		f.put(u, f.bin)
		f.shuffle()
	}
	return true
}

// has reports whether the bin has room for an item.
func (f *filler) has(b int, u int32) bool {
	i, bin := f.items[u], &f.bins[b]
	return i.req.Fits(f.free(b)) && (f.slots(b) > 0 || bin.pods[i.pod] > 0) && (i.rules == nil || bin.guests.Holds(i.pod, i.rules, f.user.Limits))
}

// fullest returns the fullest bin with room for an item, -1 if there is none.
func (f *filler) fullest(u int32) int {
	best, least := -1, 0.0
	for b := range f.bins {
		if f.has(b, u) {
			if free := relative(f.free(b), f.largest); best < 0 || free < least {
				best, least = b, free
			}
		}
	}
	return best
}

// replace looks for the items of a bin that are hard least often, sum for those that are out, and without
// which it has room for u. It keeps one of equals at random.
func (f *filler) replace(u int32, b int, items []int32, sum int) {
	f.budget--
	free := f.free(b)
	for _, v := range f.out {
		free = free.Add(f.items[v].req)
	}
	if len(f.out) > 0 && f.items[u].req.Fits(free) && f.without(u, b) {
		if f.ties++; sum < f.least {
			f.least, f.ties = sum, 1
		}
		if f.random(f.ties) == 0 {
			f.best, f.bin = append(f.best[:0], f.out...), b
		}
		return
	}
	if len(f.out) == mostEjected {
		return
	}
	for i, v := range items {
		if more := sum + f.hard[v]; more <= f.least && f.budget > 0 {
			f.out = append(f.out, v)
			f.replace(u, b, items[i+1:], more)
			f.out = f.out[:len(f.out)-1]
		}
	}
}

// without reports whether u may join the bin without the items that are out.
func (f *filler) without(u int32, b int) bool {
	for _, v := range f.out {
		f.remove(v)
	}
	has := f.has(b, u)
	for _, v := range f.out {
		f.put(v, b)
	}
	return has
}

// shuffle moves and swaps some items where that is possible.
func (f *filler) shuffle() {
	f.budget -= shuffles
	for range shuffles {
		u, v := int32(f.random(len(f.items))), int32(f.random(len(f.items)))
		a, b := int(f.where[u]), int(f.where[v])
		if a < 0 || b < 0 || a == b {
			continue
		}
		f.remove(u)
		if f.has(b, u) {
			f.put(u, b)
			continue
		}
		f.remove(v)
		if f.has(b, u) {
			if f.put(u, b); f.has(a, v) {
				f.put(v, a)
				continue
			}
			f.remove(u)
		}
		f.put(u, a)
		f.put(v, b)
	}
}
