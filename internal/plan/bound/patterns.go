package bound

import (
	"math"
	"math/big"
)

// columnGeneration returns the bound of Gilmore and Gomory (A linear programming approach to
// the cutting stock problem, Operations Research 9, 1961, and part II, 11, 1963, for several
// stock lengths): the cheapest combination of patterns that covers all items. A pattern is a
// way to fill a VM that holds no item more often than the user has it. Knapsacks in all
// dimensions find patterns as needed. Every round proves a bound (Farley 1990), so the search
// may end after any: it ends when the bound nearly reaches the cost of the patterns, or
// reaches Known, or when the effort is used up.
//
// It starts with a bound of this relaxation, and the item prices that prove it, such as the
// large-item bound. Patterns are sought for prices halfway between those of the best bound and
// those of the linear program, as long as that finds any (Wentges, Weighted Dantzig-Wolfe
// decomposition for linear mixed-integer programming, International Transactions in
// Operational Research 4, 1997), because the latter oscillate.
func (p *relaxation) columnGeneration(o Options, bound int64, guide []float64) generated {
	g := generated{bound: bound, fillings: p.fillings()}
	if p.highestPrice() == 0 {
		g.exact = true
		return g
	}
	lp := p.master(g.fillings)
	nodes, effort, smooth := minNodes, o.MaxNodes, true
	for g.rounds < o.MaxRounds && effort > 0 {
		g.rounds++
		lp.solve(50 * len(p.demands))
		if p.reaches(g.bound, lp, o) {
			break
		}
		prices := lp.prices()
		at := prices
		if smooth {
			at = between(guide, prices)
		}
		found, used := p.price(p.weights(at), min(nodes, effort))
		effort -= used
		if g.learn(found) {
			guide = at
		}
		if p.reaches(g.bound, lp, o) {
			break
		}
		switch {
		case g.enter(p, lp, prices, found):
			smooth = true
			continue
		case smooth:
			smooth = false
			continue
		case found.cut && nodes < maxNodes:
			nodes = maxNodes
			continue
		}
		break
	}
	g.exact = p.attains(g.bound, lp)
	return g
}

type generated struct {
	bound  int64
	exact  bool // see BoundResult
	rounds int
	proofs []inequality // of the best bounds, in the order found

	fillings []filling // the columns, without those that only cover too much
}

// filling is a way to fill a VM: a pattern and its offer.
type filling struct {
	offer int
	n     []int64 // of each demand
}

// learn adds a result of pricing, and reports whether it improves the bound.
func (g *generated) learn(found priced) bool {
	if found.proof.total > 0 && found.bound >= g.bound {
		g.proofs = append(g.proofs, found.proof)
	}
	better := found.bound > g.bound
	g.bound = max(g.bound, found.bound)
	return better
}

// between returns the means of two lists of prices, with negative prices as 0.
func between(a, b []float64) []float64 {
	mean := make([]float64, len(a))
	for i := range a {
		mean[i] = (max(0, a[i]) + max(0, b[i])) / 2
	}
	return mean
}

// reaches reports whether a bound is good enough for the options.
func (p *relaxation) reaches(bound int64, lp *simplex, o Options) bool {
	return p.attains(bound, lp) || o.Known > 0 && bound >= o.Known ||
		float64(bound)*(1+max(0, o.Tolerance)) >= lp.value()*float64(p.highestPrice())
}

// attains reports whether a bound equals the cost of the patterns but for rounding. No
// further pattern lowers that cost then.
func (p *relaxation) attains(bound int64, lp *simplex) bool {
	return float64(bound) >= lp.value()*float64(p.highestPrice())*(1-1e-9)
}

// Nodes of one knapsack: while any improving pattern is enough, and when the best is needed.
const (
	minNodes = 1_000
	maxNodes = 50_000
)

// earlierPatterns is how many earlier patterns of each knapsack enter too, if there are more than
// fewTypes. A round costs more than its knapsacks then, and several patterns make fewer rounds.
const earlierPatterns = 4

// fillings returns each item alone in the model that is cheapest for it.
func (p *relaxation) fillings() []filling {
	all := make([]filling, len(p.demands))
	for i, d := range p.demands {
		best, copies := -1, int64(0)
		for m, o := range p.offers {
			n := d.copies(o.size)
			if n > 0 && (best < 0 || float64(o.price)/float64(n) < float64(p.offers[best].price)/float64(copies)) {
				best, copies = m, n
			}
		}
		all[i] = filling{best, make([]int64, len(p.demands))}
		all[i].n[i] = copies
	}
	return all
}

// master returns the linear program over fillings, of which the i-th has only the i-th demand as
// long as i is one. Prices are in units of the highest, which keeps numbers near 1. Covering more
// items than there are is allowed, and costs nothing.
func (p *relaxation) master(fillings []filling) *simplex {
	right := make([]float64, len(p.demands))
	columns := make([]column, len(fillings))
	for i, d := range p.demands {
		right[i] = float64(d.count)
	}
	for j, f := range fillings {
		columns[j] = p.column(f)
	}
	lp := newSimplex(right, columns[:len(right):len(right)])
	for i := range p.demands {
		lp.add(column{0, []entry{{i, -1}}})
	}
	for _, c := range columns[len(right):] {
		lp.add(c)
	}
	return lp
}

func (p *relaxation) column(f filling) column {
	some := 0
	for _, n := range f.n {
		if n > 0 {
			some++
		}
	}
	c := column{float64(p.offers[f.offer].price) / float64(p.highestPrice()), make([]entry, 0, some)}
	for i, n := range f.n {
		if n > 0 {
			c.entries = append(c.entries, entry{i, float64(n)})
		}
	}
	return c
}

// copies returns how many of d fit into room.
func (d demand) copies(room extent) int64 {
	n := d.count
	for k, size := range d.size {
		if size > 0 {
			n = min(n, room[k]/size)
		}
	}
	return n
}

// weights returns prices as integers, as large as possible without overflow of their sum.
func (p *relaxation) weights(prices []float64) []int64 {
	var items, highest float64
	for i, d := range p.demands {
		items += float64(d.count)
		highest = max(highest, prices[i])
	}
	weights := make([]int64, len(prices))
	if highest <= 0 {
		return weights
	}
	scale := min(maxWeight, math.Ldexp(1, 60)/items) / highest
	for i, y := range prices {
		weights[i] = int64(max(0, y) * scale)
	}
	return weights
}

// maxWeight is the largest weight of an item.
const maxWeight = 1 << 39

type priced struct {
	proof    inequality // of the weights
	bound    int64      // from the proof
	patterns []filling  // the best of each offer, and earlier ones
	cut      bool       // a knapsack ended early
}

// price fills a VM of each offer as heavily as possible, with at most so many nodes each, and
// returns the number of nodes used.
func (p *relaxation) price(weights []int64, nodes int) (priced, int) {
	var found priced
	used := 0
	for i, d := range p.demands {
		found.proof.total += d.count * weights[i]
	}
	most := newCombination(len(p.offers)).most
	for m, o := range p.offers {
		k := newKnapsack(p.demands, weights, o.size, nodes)
		if len(p.demands) > fewTypes {
			k.keep = earlierPatterns
		}
		k.solve()
		for _, pattern := range append(k.earlier, k.pattern) {
			found.patterns = append(found.patterns, filling{m, pattern})
		}
		found.cut = found.cut || k.open > k.best
		found.proof.most = append(found.proof.most, max(k.best, k.open))
		most[m].SetInt64(found.proof.most[m])
		used += nodes - k.nodes
	}
	found.bound = p.farley(big.NewInt(found.proof.total), most)
	return found, used
}

// enter adds the patterns that improve the linear program, and reports whether there were any.
func (g *generated) enter(p *relaxation, lp *simplex, prices []float64, found priced) bool {
	entered := false
	for _, f := range found.patterns {
		if c := p.column(f); c.improves(prices) {
			lp.add(c)
			g.fillings = append(g.fillings, f)
			entered = true
		}
	}
	return entered
}
