// Package bound computes lower bounds: what VMs for the pods of a user cost at least,
// whatever the plan.
package bound

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Options say which plans the bound is for, and how hard to try. Effort is counted, not
// timed, so a user has the same bound on every machine.
type Options struct {
	Whole bool  // plans must not split pods, as in Kubernetes
	Known int64 // cost of a known plan; a bound that reaches it ends the search; 0: unknown
	// Columns leaves WholeVMs out, which Result.Plan does not need.
	Columns bool

	// Tolerance ends column generation when it can raise the bound by at most this
	// fraction. 0: 0.001; negative: only when it cannot raise the bound.
	Tolerance float64
	// MaxTypes limits the distinct items for column generation. 0: 100, and up to 300 if there are
	// many of each; negative: never.
	MaxTypes  int
	MaxRounds int // most rounds of column generation; 0: 1000
	// MaxNodes limits the nodes of all knapsacks of column generation together. The search
	// for whole VMs may use five times as many, divided by the number of inequalities.
	// 0: 1,000,000.
	MaxNodes int
}

func (o Options) withDefaults() Options {
	o.Tolerance = cmp.Or(o.Tolerance, 1e-3)
	o.MaxRounds = cmp.Or(o.MaxRounds, 1000)
	o.MaxNodes = cmp.Or(o.MaxNodes, 1_000_000)
	return o
}

// Limits of column generation for users with many types of items. Each round takes time that
// grows with the square of the types. Patterns pay if there are many items of each type, because
// then most VMs of a plan are whole ones of the linear program.
const (
	fewTypes   = 100
	mostTypes  = 300
	manyOfEach = 50
	fewRounds  = 250 // for more than fewTypes
)

// generation returns the options for column generation, and whether there is to be any.
func (o Options) generation(types, items int) (Options, bool) {
	if o.MaxTypes != 0 || types <= fewTypes {
		return o, types <= cmp.Or(o.MaxTypes, fewTypes)
	}
	o.MaxRounds = min(o.MaxRounds, fewRounds)
	return o, types <= mostTypes && items >= manyOfEach*types
}

// Result is lower bounds of the cost of a user's VMs, in billionths of a dollar for an hour.
// All are multiples of the greatest common divisor of the prices, as the cost of every plan.
type Result struct {
	Continuous       int64 // if fractions of VMs could be bought
	LargeItem        int64 // the same, but large items do not share a VM
	ColumnGeneration int64 // linear relaxation over all ways to fill a VM, at least LargeItem; 0: not computed
	Apart            int64 // the inequalities of the above, and those of the pods' rules; 0: there are none
	WholeVMs         int64 // all of the above with whole VMs; 0: not computed
	Best             int64 // the largest of them

	// Exact says that ColumnGeneration is the optimum of its relaxation, rounded up, and
	// not a bound from a search that ended early. The cheapest plan may still cost more.
	Exact bool

	Items   int   // containers, or whole pods, with a request
	Types   int   // distinct items
	Rounds  int   // of column generation
	LeftOut []int // indices of pods with a part that no model holds; the bounds exclude them

	relaxation *relaxation
	fillings   []filling // of column generation
	program    *integerProgram
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
//   - Apart: the best combination of all weights found before and of those of the rules of pods,
//     which limit what a VM holds; see apart.
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
	apart := p.apart(u, o.Whole, leftOut)
	keepApart := func() {
		if len(apart) > 0 {
			bound, _ := p.combine(slices.Concat(rows, apart))
			r.Apart = max(r.Apart, bound)
			r.Best = max(r.Best, bound)
		}
	}
	keepApart()
	open := func() bool { return o.Known == 0 || r.Best < o.Known }
	if o, ok := o.generation(r.Types, r.Items); ok && open() {
		g := p.columnGeneration(o, r.LargeItem, prices)
		r.ColumnGeneration, r.Exact, r.Rounds = g.bound, g.exact, g.rounds
		r.Best = max(r.Best, g.bound)
		rows = append(rows, g.proofs...)
		keepApart()
		r.relaxation, r.fillings = p, g.fillings
	}
	if open() && !o.Columns {
		r.program = p.newIntegerProgram(slices.Concat(rows, apart), 5*o.MaxNodes)
		r.WholeVMs = r.program.solve(r.Best, o.Known)
		r.Best = r.WholeVMs
	}
	return r
}
