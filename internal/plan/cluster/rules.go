package cluster

import (
	"math"
	"slices"
)

// Rules are what a pod demands of its VM besides room. A pod on several VMs demands it of each.
type Rules struct {
	Has     []int32 // what the pod has that others may forbid, such as a label or a port
	Forbids []int32 // what no other pod on its VM may have
	Takes   []Take  // of the user's Limits
}

// Take is a part of a limit.
type Take struct {
	Limit  int32 // index in User.Limits
	Amount int64
}

// Limit is how much the pods on a VM may take of something together.
type Limit struct {
	Name string
	Most int64 // in a plan
	// Legal is the most in any legal placement, at least Most, because plans may be stricter than
	// they have to be. Bounds use it.
	Legal int64
	// Skew above 0 makes it a spread: the amounts on two VMs may differ by so much. A VM may then
	// have more than Skew only if every VM of the spread has some.
	Skew       int64
	MinDomains int             // fewer VMs count as if another one had nothing
	Nodes      map[string]bool // that the spread is over; nil if it is over VMs of the user only
	Total      int64           // of all pods of the cluster; Unlimited if some of them do not demand the spread
}

// The limits that every cluster has; spreads follow.
const (
	StorageLimit = iota // ephemeral storage, in bytes
	VolumeLimit         // volumes that can be attached
)

// Unlimited is a limit that nothing reaches.
const Unlimited = math.MaxInt64

// Apart returns the rules of pods that never share a VM with others of the same number above 0.
func Apart(number int32) *Rules {
	if number == 0 {
		return nil
	}
	return &Rules{Has: []int32{number}, Forbids: []int32{number}}
}

// None reports whether there are no rules. A nil r has none.
func (r *Rules) None() bool {
	return r == nil || len(r.Has)+len(r.Forbids)+len(r.Takes) == 0
}

// Clash reports whether two pods must not share a VM.
func (r *Rules) Clash(o *Rules) bool {
	if r.None() || o.None() {
		return false
	}
	meet := func(a, b []int32) bool {
		return slices.ContainsFunc(a, func(n int32) bool { return slices.Contains(b, n) })
	}
	return meet(r.Has, o.Forbids) || meet(r.Forbids, o.Has)
}

// Amount returns what the pod takes of a limit. A nil r takes nothing.
func (r *Rules) Amount(limit int32) (sum int64) {
	if r == nil {
		return 0
	}
	for _, t := range r.Takes {
		if t.Limit == limit {
			sum += t.Amount
		}
	}
	return sum
}

// Exceeds returns the name of a limit of which the pod alone takes more than a VM has; empty: none.
func (r *Rules) Exceeds(limits []Limit) string {
	if r == nil {
		return ""
	}
	for _, t := range r.Takes {
		if l := limits[t.Limit]; t.Amount > l.Most {
			return l.Name
		}
	}
	return ""
}

// Loose reports whether some plans are stricter than they have to be, so that the cheapest of
// them need not be the cheapest of all.
func (u User) Loose() bool {
	return slices.ContainsFunc(u.Limits, func(l Limit) bool { return l.Legal > l.Most })
}

// Guests are the pods with rules on a VM. The zero value is a VM without any.
type Guests struct {
	parts        map[int32]int // of each pod
	has, forbids map[int32]int // pods
	taken        map[int32]int64
}

// Holds reports whether a pod, or a further part of it, may join.
func (g *Guests) Holds(pod int32, r *Rules, limits []Limit) bool {
	if r.None() || g.parts[pod] > 0 {
		return true
	}
	for _, n := range r.Has {
		if g.forbids[n] > 0 {
			return false
		}
	}
	for _, n := range r.Forbids {
		if g.has[n] > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(r.Takes, func(t Take) bool { return g.taken[t.Limit]+t.Amount > limits[t.Limit].Most })
}

// Add adds a part of a pod.
func (g *Guests) Add(pod int32, r *Rules) {
	if r.None() {
		return
	}
	if g.parts == nil {
		g.parts, g.has, g.forbids, g.taken = map[int32]int{}, map[int32]int{}, map[int32]int{}, map[int32]int64{}
	}
	if g.parts[pod]++; g.parts[pod] == 1 {
		g.count(r, 1)
	}
}

// Remove removes a part of a pod.
func (g *Guests) Remove(pod int32, r *Rules) {
	if r.None() {
		return
	}
	if g.parts[pod]--; g.parts[pod] == 0 {
		delete(g.parts, pod)
		g.count(r, -1)
	}
}

func (g *Guests) count(r *Rules, n int) {
	for _, k := range r.Has {
		g.has[k] += n
	}
	for _, k := range r.Forbids {
		g.forbids[k] += n
	}
	for _, t := range r.Takes {
		g.taken[t.Limit] += int64(n) * t.Amount
	}
}

// Keeps reports whether a plan keeps the user's spreads. Planners keep all other rules.
func (u User) Keeps(p Plan) bool {
	for i, l := range u.Limits {
		if l.Skew == 0 {
			continue
		}
		least, most := u.extremes(p, int32(i))
		if most > l.Skew && (l.Nodes != nil || len(p.VMs) < l.MinDomains || most-least > l.Skew) {
			return false
		}
	}
	return true
}

// Within reports whether no VM of a plan has more of a spread than the user's limits, which planners
// start from.
func (u User) Within(p Plan) bool {
	for i, l := range u.Limits {
		if _, most := u.extremes(p, int32(i)); l.Skew > 0 && most > l.Most {
			return false
		}
	}
	return true
}

// extremes returns the least and the most that the pods on a VM take of a limit.
func (u User) extremes(p Plan, limit int32) (least, most int64) {
	least = Unlimited
	for _, vm := range p.VMs {
		var taken int64
		seen := map[int]bool{}
		for _, part := range vm.Parts {
			if !seen[part.Pod] {
				seen[part.Pod] = true
				taken += u.Pods[part.Pod].Rules.Amount(limit)
			}
		}
		least, most = min(least, taken), max(most, taken)
	}
	return least, most
}
