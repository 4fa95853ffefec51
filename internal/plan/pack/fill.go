package pack

import (
	"iter"
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// mostEjected is how many items one item replaces at most.
const mostEjected = 3

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
		if !f.run() {
			if budget <= 1 { // of which the next one would get nothing
				break
			}
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
	hard   []int // how often each item had no room, from 1
	budget int

	out   []int32 // what is tried to be replaced
	best  []int32 // what was found, with the least sum of hard
	bin   int     // where that is
	least int
	ties  uint64 // places with that sum
}

// run reports whether it has placed all items within the budget.
func (f *filler) run() bool {
	for waiting := f.smallestFirst(f.all()); len(waiting) > 0; {
		u := waiting[len(waiting)-1] // the largest at first
		f.least, f.ties = math.MaxInt, 0
		for b := range f.bins {
			f.replace(u, b, f.bins[b].items, 0)
		}
		if f.least == math.MaxInt || f.budget <= 0 {
			return false
		}
		if f.least > 0 {
			f.hard[u]++
		}
		waiting = append(waiting[:len(waiting)-1], f.best...)
		for _, v := range f.best {
			f.remove(v)
		}
		f.put(u, f.bin)
	}
	return true
}

// replace looks for the items of a bin that are hard least often, sum for those that are out, and
// without which u has room there. It keeps one of equals at random.
func (f *filler) replace(u int32, b int, items []int32, sum int) {
	f.budget--
	if f.hasRoom(u, b) {
		if sum < f.least {
			f.least, f.ties = sum, 0
		}
		f.ties++
		if uint64(mix(uint64(f.budget)))%f.ties == 0 {
			f.best, f.bin = append(f.best[:0], f.out...), b
		}
		return
	}
	if len(f.out) == mostEjected {
		return
	}
	if len(f.out) == 0 && f.least > 0 {
		items = slices.Clone(items) // hasRoom changes their order
	}
	for i, v := range items {
		if more := sum + f.hard[v]; more <= f.least && f.budget > 0 {
			f.out = append(f.out, v)
			f.replace(u, b, items[i+1:], more)
			f.out = f.out[:len(f.out)-1]
		}
	}
}

// hasRoom reports whether u may join a bin without the items that are out.
func (f *filler) hasRoom(u int32, b int) bool {
	free, i := f.free(b), f.items[u]
	for _, v := range f.out {
		free = free.Add(f.items[v].req)
	}
	if !i.req.Fits(free) {
		return false
	}
	for _, v := range f.out {
		f.remove(v)
	}
	has := (f.slots(b) > 0 || f.bins[b].pods[i.pod] > 0) && (i.rules == nil || f.bins[b].guests.Holds(i.pod, i.rules, f.user.Limits))
	for _, v := range f.out {
		f.put(v, b)
	}
	return has
}
