// Package bound computes lower bounds: what VMs for the pods of a user cost at least,
// whatever the plan.
package bound

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"unnest/internal/plan/cluster"
)

// Options say which plans the bound is for, and how hard to try. Effort is counted, not
// timed, so a user has the same bound on every machine.
type Options struct {
	Whole bool  // plans must not split pods, as in Kubernetes
	Known int64 // cost of a known plan; a bound that reaches it ends the search; 0: unknown

	// Tolerance ends column generation when it can raise the bound by at most this
	// fraction. 0: 0.001; negative: only when it cannot raise the bound.
	Tolerance float64
	MaxTypes  int // most distinct items for column generation; 0: 100; negative: never
	MaxRounds int // most rounds of column generation; 0: 1000
	// MaxNodes limits the nodes of all knapsacks of column generation together. The search
	// for whole VMs may use five times as many, divided by the number of inequalities.
	// 0: 1,000,000.
	MaxNodes int
}

func (o Options) withDefaults() Options {
	o.Tolerance = cmp.Or(o.Tolerance, 1e-3)
	o.MaxTypes = cmp.Or(o.MaxTypes, 100)
	o.MaxRounds = cmp.Or(o.MaxRounds, 1000)
	o.MaxNodes = cmp.Or(o.MaxNodes, 1_000_000)
	return o
}

// Result is lower bounds of the cost of a user's VMs, in billionths of a dollar for an hour.
// All are multiples of the greatest common divisor of the prices, as the cost of every plan.
type Result struct {
	Continuous       int64 // if fractions of VMs could be bought
	LargeItem        int64 // the same, but large items do not share a VM
	ColumnGeneration int64 // linear relaxation over all ways to fill a VM, at least LargeItem; 0: not computed
	WholeVMs         int64 // all of the above with whole VMs; 0: not computed
	Best             int64 // the largest of them

	// Exact says that ColumnGeneration is the optimum of its relaxation, rounded up, and
	// not a bound from a search that ended early. The cheapest plan may still cost more.
	Exact bool

	Items   int   // containers, or whole pods, with a request
	Types   int   // distinct items
	Rounds  int   // of column generation
	LeftOut []int // indices of pods with a part that no model holds; the bounds exclude them
}

// Of returns lower bounds of the cost of every plan for a user. The problem is heterogeneous
// vector bin packing. Items are containers, the first of a pod with the pod's overhead, or
// whole pods if o.Whole or the pod requires it. Model.Pods is a third dimension, in which one
// part of each pod has size 1; other fractions have 0, which can only lower the bound.
// Physical hosts are ignored, which can also only lower it.
//
// All bounds but WholeVMs are Farley's (A note on bounding a class of linear programming
// problems, including cutting stock problems, Operations Research 38(5), 1990): if items have
// weights, and the items on a VM of model m never weigh more than K(m), then a plan costs at
// least the weight of all items times the minimum of Price(m)/K(m). This holds for any
// weights. Linear programs in floating point propose them; they are rounded to integers, and
// all further arithmetic is exact.
//
//   - Continuous: the weights are the sizes, in the best combination of dimensions (Martello
//     and Toth, Knapsack Problems, Wiley 1990, §8.3, L1; Caprara and Toth, Lower bounds and
//     algorithms for the 2-dimensional vector packing problem, Discrete Applied Mathematics
//     111, 2001, §2). A VM holds at most all items.
//   - LargeItem: superadditive functions of the sizes in each dimension; see inequalities.
//   - ColumnGeneration: the best of all weights; see columnGeneration.
//   - WholeVMs: the cheapest whole VMs that satisfy all inequalities found before; see
//     integerProgram.
//
// The order of pods, models and containers does not matter, except for the first container of
// a pod with an overhead. Another pod or container does not lower Continuous, an exact
// ColumnGeneration, or LargeItem with at most 64 distinct sizes in each dimension (all are
// parameters then), except by one step of rounding to the prices' divisor. It may lower
// WholeVMs and Best, because column generation finds other inequalities. Requests and sizes
// must not be negative.
func Of(u cluster.User, c cluster.Catalogue, o Options) Result {
	o = o.withDefaults()
	p, leftOut := newRelaxation(u, c, o.Whole)
	r := Result{Types: len(p.demands), LeftOut: leftOut}
	if len(p.demands) == 0 {
		r.Exact = true
		return r
	}
	for _, d := range p.demands {
		r.Items += int(d.count)
	}
	r.Continuous, _ = p.combine(p.sums())
	rows := p.inequalities()
	large, prices := p.combine(rows)
	r.LargeItem = max(r.Continuous, large)
	r.Best = r.LargeItem
	open := func() bool { return o.Known == 0 || r.Best < o.Known }
	if len(p.demands) <= o.MaxTypes && open() {
		g := p.columnGeneration(o, r.LargeItem, prices)
		r.ColumnGeneration, r.Exact, r.Rounds = g.bound, g.exact, g.rounds
		r.Best = g.bound
		rows = append(rows, g.proofs...)
	}
	if open() {
		r.WholeVMs = p.newIntegerProgram(rows, 5*o.MaxNodes).solve(r.Best, o.Known)
		r.Best = r.WholeVMs
	}
	return r
}

// extent is a size in all dimensions.
type extent [dimensions]int64

const (
	cpuExtent = iota
	memoryExtent
	podExtent // one part of each pod has 1
	dimensions
)

func (e extent) fits(o extent) bool {
	for d := range e {
		if e[d] > o[d] {
			return false
		}
	}
	return true
}

// demand is a number of identical items.
type demand struct {
	size  extent
	count int64
}

// offer is a model of VM in the relaxation.
type offer struct {
	size  extent
	price int64
}

// relaxation is the problem that bounds a plan: items of few sizes, and models of which none
// is both smaller and more expensive than another.
type relaxation struct {
	demands []demand // sorted by size; none has size 0 in all dimensions
	offers  []offer  // sorted by price
	step    int64    // divides the cost of every plan
}

// newRelaxation returns the relaxation for a user, and the indices of pods with a part that
// no model holds.
func newRelaxation(u cluster.User, c cluster.Catalogue, whole bool) (*relaxation, []int) {
	counts := map[extent]int64{}
	var leftOut []int
	var pods int64
	for i, pod := range u.Pods {
		parts := indivisible(pod, whole)
		if !placeable(parts, c) {
			leftOut = append(leftOut, i)
			continue
		}
		pods += int64(min(1, len(parts)))
		for _, size := range parts {
			counts[size]++
		}
	}
	limited := slices.ContainsFunc(c, func(m cluster.Model) bool { return m.Pods > 0 })
	p := &relaxation{offers: offers(c, pods)}
	for size, count := range merge(counts, limited) {
		if size != (extent{}) {
			p.demands = append(p.demands, demand{size, count})
		}
	}
	slices.SortFunc(p.demands, func(a, b demand) int { return slices.Compare(a.size[:], b.size[:]) })
	for _, o := range p.offers {
		p.step = gcd(p.step, o.price)
	}
	return p, leftOut
}

// merge drops the dimension of pods if no model limits them, so that more items are identical.
// Items with no other size keep it, because they need a VM.
func merge(counts map[extent]int64, limited bool) map[extent]int64 {
	if limited {
		return counts
	}
	merged := map[extent]int64{}
	for size, count := range counts {
		if size[cpuExtent] > 0 || size[memoryExtent] > 0 {
			size[podExtent] = 0
		}
		merged[size] += count
	}
	return merged
}

// indivisible returns the sizes of the parts of a pod, none if there is nothing to place. The
// first part counts as the pod in the dimension of pods.
func indivisible(p cluster.Pod, whole bool) []extent {
	if len(p.Containers) == 0 && p.Overhead == (cluster.Resources{}) {
		return nil
	}
	if whole || p.Whole || len(p.Containers) < 2 {
		r := p.Request()
		return []extent{{r.CPU, r.Memory, 1}}
	}
	parts := make([]extent, 0, len(p.Containers))
	for i, c := range p.Containers {
		r := c.Request
		if i == 0 {
			r = r.Add(p.Overhead)
		}
		parts = append(parts, extent{r.CPU, r.Memory, 0})
	}
	slices.SortFunc(parts, func(a, b extent) int { return slices.Compare(b[:], a[:]) })
	parts[0][podExtent] = 1
	return parts
}

func placeable(parts []extent, c cluster.Catalogue) bool {
	for _, size := range parts {
		request := cluster.Resources{CPU: size[cpuExtent], Memory: size[memoryExtent]}
		if !slices.ContainsFunc(c, func(m cluster.Model) bool { return request.Fits(m.Size) }) {
			return false
		}
	}
	return true
}

// offers returns the models for a user of so many pods, sorted by price, without those that
// another model dominates.
func offers(c cluster.Catalogue, pods int64) []offer {
	var all []offer
	for _, m := range c {
		o := offer{extent{m.Size.CPU, m.Size.Memory, math.MaxInt64}, max(0, m.Price)}
		if m.Pods > 0 {
			o.size[podExtent] = int64(m.Pods)
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b offer) int {
		return cmp.Or(cmp.Compare(a.price, b.price), slices.Compare(b.size[:], a.size[:]))
	})
	var kept []offer
	for _, o := range all {
		if !slices.ContainsFunc(kept, func(k offer) bool { return o.size.fits(k.size) }) {
			kept = append(kept, o)
		}
	}
	for i := range kept {
		kept[i].size[podExtent] = min(kept[i].size[podExtent], pods)
	}
	return kept
}

// farley returns Farley's bound for items that weigh total together, and at most most[m] on a
// VM of the m-th offer, rounded up to the step.
func (p *relaxation) farley(total *big.Int, most []*big.Int) int64 {
	var least *big.Int
	for m, o := range p.offers {
		if most[m].Sign() <= 0 {
			continue
		}
		cost := new(big.Int).Mul(total, big.NewInt(o.price))
		cost.Add(cost, most[m]).Sub(cost, big.NewInt(1)).Div(cost, most[m])
		if least == nil || cost.Cmp(least) < 0 {
			least = cost
		}
	}
	if least == nil || p.step == 0 {
		return 0
	}
	return (least.Int64() + p.step - 1) / p.step * p.step
}

func (p *relaxation) highestPrice() int64 { return p.offers[len(p.offers)-1].price }

// gcd returns the greatest common divisor; that of 0 and b is b.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
