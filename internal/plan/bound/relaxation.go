package bound

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

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
	model int // index in the catalogue
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
	for i, m := range c {
		o := offer{extent{m.Size.CPU, m.Size.Memory, math.MaxInt64}, max(0, m.Price), i}
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
