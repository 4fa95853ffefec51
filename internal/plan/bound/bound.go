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

// Options say of which plans, and with how much effort, Of speaks. Effort
// is counted, never timed, so that the same user has the same bound everywhere.
type Options struct {
	Whole bool  // no pod may be split, as Kubernetes schedules
	Known int64 // what a known plan costs: a bound that reaches it ends the search; 0: none is known

	// Tolerance ends column generation when it can raise the bound by no more than
	// this part. 0: 0.001, negative: only when it cannot at all.
	Tolerance float64
	MaxTypes  int // column generation only up to so many distinct items; 0: 100, negative: never
	MaxRounds int // rounds of pricing in column generation; 0: 1000
	// MaxNodes is how many nodes all knapsacks of column generation may have
	// together; the search for whole VMs may have five times as many, divided by the
	// number of inequalities. 0: 1,000,000.
	MaxNodes int
}

// withDefaults returns o with the defaults in place of zeros.
func (o Options) withDefaults() Options {
	o.Tolerance = cmp.Or(o.Tolerance, 1e-3)
	o.MaxTypes = cmp.Or(o.MaxTypes, 100)
	o.MaxRounds = cmp.Or(o.MaxRounds, 1000)
	o.MaxNodes = cmp.Or(o.MaxNodes, 1_000_000)
	return o
}

// Result is what a user's VMs cost at least, in billionths of a dollar for an
// hour. All are multiples of the greatest common divisor of the prices, as every
// plan's cost is.
type Result struct {
	Continuous       int64 // if VMs could be bought in fractions
	LargeItem        int64 // the same, where what is too large to share does not
	ColumnGeneration int64 // the linear relaxation over all ways to fill a VM, not below LargeItem; 0: not computed
	WholeVMs         int64 // LargeItem, and the best of ColumnGeneration, where VMs are bought whole; 0: not computed
	Best             int64 // the largest of them

	// Exact says that ColumnGeneration is the optimum of its relaxation, rounded
	// up, and not what was proved of it when the search ended. The cheapest plan may
	// still cost more.
	Exact bool

	Items   int   // containers, or pods that cannot be split, that are not nothing
	Types   int   // distinct ones
	Rounds  int   // of pricing
	LeftOut []int // pods, by index, of which a part fits into no model; nothing is said of their cost
}

// Of returns lower bounds of the cost of every plan for a user: heterogeneous
// vector bin packing, where the items are containers, the first of a pod with the
// pod's overhead, or whole pods if o.Whole or the pod says so. Model.Pods is a third
// dimension, filled by one part of each pod; other fractions are not counted, which
// can only lower the bound. Physical hosts are not considered, which also can only
// lower it.
//
// All bounds but WholeVMs are Farley's (A note on bounding a class of linear programming problems,
// including cutting stock problems, Operations Research 38(5), 1990): if items have
// weights, and the items that fit into a VM of model m never weigh more than K(m),
// then a plan costs at least the weight of all items times the least Price(m)/K(m).
// This holds for whatever weights. So they come from linear programs in floating
// point, are rounded to integers, and from there on arithmetic is exact.
//
//   - Continuous: the weights are the sizes, in the best mixture of dimensions
//     (Martello and Toth, Knapsack Problems, Wiley 1990, §8.3, L1; Caprara and Toth,
//     Lower bounds and algorithms for the 2-dimensional vector packing problem,
//     Discrete Applied Mathematics 111, 2001, §2). A VM is never filled by more than
//     there is.
//   - LargeItem: sizes in each dimension go through superadditive functions first,
//     see inequalities.
//   - ColumnGeneration: the best weights there are; see columnGeneration.
//   - WholeVMs: the least for which whole VMs fulfil all that was found of what VMs
//     can hold, in whole numbers too; see purchase.
//
// The order of pods and models does not matter, nor that of containers but for the
// first of a pod with an overhead. One more pod or container does not lower
// Continuous, nor ColumnGeneration if it is exact, nor LargeItem as long as a dimension
// has at most 64 distinct sizes, since all are tried as parameters; but for one step
// of the prices' divisor that rounding may take. WholeVMs and Best may fall, since
// what column generation finds on its way differs. Requests and sizes are not
// negative.
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
		r.WholeVMs = p.newPurchase(rows, 5*o.MaxNodes).solve(r.Best, o.Known)
		r.Best = r.WholeVMs
	}
	return r
}

// extent is a size in the dimensions of the relaxation.
type extent [dimensions]int64

const (
	cpuExtent = iota
	memoryExtent
	podExtent // one part of each pod has 1
	dimensions
)

// fits reports whether e fits into o, in all dimensions.
func (e extent) fits(o extent) bool {
	for d := range e {
		if e[d] > o[d] {
			return false
		}
	}
	return true
}

// demand is identical items.
type demand struct {
	size  extent
	count int64
}

// offer is a model as the relaxation sees it.
type offer struct {
	size  extent
	price int64
}

// relaxation is what a plan is bounded by: items of few sizes, and models of which
// none is both smaller and dearer than another.
type relaxation struct {
	demands []demand // by size; none is nothing in all dimensions
	offers  []offer  // by price
	step    int64    // every plan's cost is a multiple of it
}

// newRelaxation returns the relaxation of a user and the pods that are left out
// because part of them fits into no model.
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

// merge returns the items with pods not counted where nothing limits them, so that
// more of them are identical. What has no size but a pod keeps that: it needs a VM.
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

// indivisible returns the sizes of the parts of a pod, none if there is nothing to
// place. The first of them stands for the pod where pods are counted: wherever it is,
// there is a fraction of the pod.
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

// placeable reports whether each part fits into a model.
func placeable(parts []extent, c cluster.Catalogue) bool {
	for _, size := range parts {
		request := cluster.Resources{CPU: size[cpuExtent], Memory: size[memoryExtent]}
		if !slices.ContainsFunc(c, func(m cluster.Model) bool { return request.Fits(m.Size) }) {
			return false
		}
	}
	return true
}

// offers returns the models for a user of so many pods, by price, without those to
// which another is preferable in any plan of any user.
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

// farley returns Farley's bound for items that weigh total together, and at most
// most[m] in the m-th offer, rounded up to what a plan can cost.
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

// dearest returns the highest price.
func (p *relaxation) dearest() int64 { return p.offers[len(p.offers)-1].price }

// gcd returns the greatest common divisor; that of 0 and b is b.
func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
