package bound

import (
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Limits of diving.
const (
	diveNodes   = 20_000 // nodes of the knapsacks of one step
	diveRounds  = 5      // rounds of column generation of one step
	diveSteps   = 400
	mostColumns = 2000 // that are kept for the next step
)

// diveThresholds are tried in this order, the first three unless a plan is to be thorough. A dive
// buys a whole VM if the linear program buys at least this part of it.
var diveThresholds = []float64{1, .75, .5, .9, .8, .7, .6, .4, .3, .2}

// Plan returns a plan made of the patterns of column generation, false if there are none. It
// buys the whole VMs of the linear program, and solves it again for the items that are left, as
// long as there are any (diving: Sadykov et al., Primal heuristics for branch and price, INFORMS
// Journal on Computing 31, 2019). The user, catalogue and Options.Whole must be those of Of. The
// number of pods on a VM and cluster.Pod.Rules are kept by VMs of their own; hosts are ignored.
// A thorough plan is the cheapest of more dives.
func (r Result) Plan(u cluster.User, c cluster.Catalogue, whole, thorough bool) (cluster.Plan, bool) {
	if r.relaxation == nil || len(r.LeftOut) > 0 || r.relaxation.highestPrice() == 0 {
		return cluster.Plan{}, false
	}
	var best []filling
	columns := r.fillings
	thresholds := diveThresholds[:3]
	if thorough {
		thresholds = diveThresholds
	}
	for _, threshold := range thresholds {
		bought, ok := r.relaxation.dive(&columns, threshold)
		if ok && (best == nil || r.relaxation.cost(bought) < r.relaxation.cost(best)) {
			best = bought
		}
		if best != nil && r.relaxation.cost(best) <= r.Best {
			break
		}
	}
	if best == nil {
		return cluster.Plan{}, false
	}
	return r.relaxation.assign(u, c, whole, best)
}

func (p *relaxation) cost(bought []filling) (sum int64) {
	for _, f := range bought {
		sum += p.offers[f.offer].price
	}
	return sum
}

// dive covers all demands by whole VMs, if it can in diveSteps. It adds the columns that it
// generates.
func (p *relaxation) dive(fillings *[]filling, threshold float64) (bought []filling, ok bool) {
	rest := make([]int64, len(p.demands))
	for i, d := range p.demands {
		rest[i] = d.count
	}
	for range diveSteps {
		sub, index := p.without(rest)
		if len(sub.demands) == 0 {
			return bought, true
		}
		known := project(sub, *fillings, index)
		columns, x := sub.relax(known)
		for _, f := range columns[len(known):] {
			if len(*fillings) < mostColumns {
				*fillings = append(*fillings, lift(f, index, len(rest)))
			}
		}
		for j, n := range chosen(x, threshold) {
			for range n {
				taken, some := filling{columns[j].offer, make([]int64, len(rest))}, false
				for k, i := range index {
					n := min(rest[i], columns[j].n[k])
					rest[i] -= n
					taken.n[i], some = n, some || n > 0
				}
				if !some {
					break
				}
				if last := len(bought) - 1; last >= 0 && slices.Equal(bought[last].n, taken.n) {
					taken.n = bought[last].n // a large user buys thousands of equal VMs
				}
				bought = append(bought, taken)
			}
		}
	}
	return nil, false
}

func lift(f filling, index []int, demands int) filling {
	all := filling{f.offer, make([]int64, demands)}
	for k, i := range index {
		all.n[i] = f.n[k]
	}
	return all
}

// without returns the relaxation of what is left, and the index of each of its demands in p.
func (p *relaxation) without(rest []int64) (*relaxation, []int) {
	sub := &relaxation{offers: p.offers, step: p.step}
	var index []int
	for i, n := range rest {
		if n > 0 {
			sub.demands = append(sub.demands, demand{p.demands[i].size, n})
			index = append(index, i)
		}
	}
	return sub, index
}

// project returns fillings with no more than the demands that are left.
func project(sub *relaxation, fillings []filling, index []int) []filling {
	all := sub.fillings()
	for _, f := range fillings {
		less, some := filling{f.offer, make([]int64, len(index))}, false
		for k, i := range index {
			less.n[k] = min(f.n[i], sub.demands[k].count)
			some = some || less.n[k] > 0
		}
		if some {
			all = append(all, less)
		}
	}
	return all
}

// relax adds the columns that the remaining demands need, and returns all of them with their
// values in the optimum of the linear program.
func (p *relaxation) relax(fillings []filling) ([]filling, []float64) {
	g := generated{fillings: fillings}
	lp := p.master(fillings)
	effort := diveNodes
	for range diveRounds {
		lp.solve(50 * len(p.demands))
		prices := lp.prices()
		if effort <= 0 {
			break
		}
		found, used := p.price(p.weights(prices), min(minNodes, effort))
		effort -= used
		if !g.enter(p, lp, prices, found) {
			break
		}
	}
	lp.solve(50 * len(p.demands))
	x := make([]float64, len(g.fillings))
	slack := len(p.demands) // the columns after the first that cover too much
	for row, j := range lp.basis {
		switch {
		case j >= 2*slack:
			x[j-slack] = lp.x[row]
		case j < slack:
			x[j] = lp.x[row]
		}
	}
	return g.fillings, x
}

// chosen returns how many VMs to buy of each column: the whole ones, and one more of those from
// the threshold on. If there are none, it is one of the largest value.
func chosen(x []float64, threshold float64) []int {
	const tolerance = 1e-6
	buy := make([]int, len(x))
	some, largest := false, 0
	for j, v := range x {
		n := int(math.Floor(v + tolerance))
		if rest := v - float64(n); rest >= threshold-tolerance && rest > tolerance {
			n++
		}
		buy[j], some = n, some || n > 0
		if v > x[largest] {
			largest = j
		}
	}
	if !some {
		buy[largest] = 1
	}
	return buy
}

// part is an item of a user.
type part struct {
	pod        int
	overhead   bool
	containers []int
	size       extent
}

// assign puts the items of the user into the bought VMs.
func (p *relaxation) assign(u cluster.User, c cluster.Catalogue, whole bool, bought []filling) (cluster.Plan, bool) {
	items := make([][]part, len(p.demands)) // of each demand
	demandOf := map[extent]int{}
	for i, d := range p.demands {
		demandOf[d.size] = i
	}
	limited := slices.ContainsFunc(c, func(m cluster.Model) bool { return m.Pods > 0 })
	home := make([]int, len(u.Pods)) // VM of some item of each pod
	var none []part
	for pod := range u.Pods {
		for _, item := range partsOf(u, pod, whole) {
			size := item.size
			if !limited && (size[cpuExtent] > 0 || size[memoryExtent] > 0) {
				size[podExtent] = 0
			}
			if size == (extent{}) {
				none = append(none, item)
				continue
			}
			i, known := demandOf[size]
			if !known {
				return cluster.Plan{}, false
			}
			items[i] = append(items[i], item)
		}
	}
	a := assignment{user: u, catalogue: c}
	for _, f := range bought {
		vm := a.buy(p.offers[f.offer].model)
		for i, n := range f.n {
			for range n {
				last := len(items[i]) - 1
				a.put(items[i][last], vm)
				items[i] = items[i][:last]
			}
		}
	}
	for at, vm := range a.plan.VMs {
		for _, part := range vm.Parts {
			home[part.Pod] = at
		}
	}
	for _, item := range none {
		a.add(item, home[item.pod])
	}
	return a.plan, !a.failed
}

// assignment is a plan that is made.
type assignment struct {
	user      cluster.User
	catalogue cluster.Catalogue
	plan      cluster.Plan
	pods      []map[int]bool // on each VM
	guests    []cluster.Guests
	failed    bool
}

func (a *assignment) buy(model int) int {
	a.plan.VMs = append(a.plan.VMs, cluster.VM{ID: len(a.plan.VMs), Model: model})
	a.pods, a.guests = append(a.pods, map[int]bool{}), append(a.guests, cluster.Guests{})
	return len(a.plan.VMs) - 1
}

// put puts an item on a VM, or on a new one of the cheapest model if it must not be there.
func (a *assignment) put(item part, vm int) {
	most := a.catalogue[a.plan.VMs[vm].Model].Pods
	if !a.pods[vm][item.pod] && (most > 0 && len(a.pods[vm]) >= most || a.clashes(item.pod, vm)) {
		model := -1
		for i, m := range a.catalogue {
			if (cluster.Resources{CPU: item.size[cpuExtent], Memory: item.size[memoryExtent]}).Fits(m.Size) && (model < 0 || m.Price < a.catalogue[model].Price) {
				model = i
			}
		}
		if model < 0 {
			a.failed = true
			return
		}
		vm = a.buy(model)
	}
	a.add(item, vm)
}

func (a *assignment) clashes(pod, vm int) bool {
	return !a.guests[vm].Holds(int32(pod), a.user.Pods[pod].Rules, a.user.Limits)
}

func (a *assignment) add(item part, vm int) {
	a.pods[vm][item.pod] = true
	a.guests[vm].Add(int32(item.pod), a.user.Pods[item.pod].Rules)
	parts := &a.plan.VMs[vm].Parts
	if item.overhead {
		*parts = append(*parts, cluster.Part{Pod: item.pod, Container: -1})
	}
	for _, k := range item.containers {
		*parts = append(*parts, cluster.Part{Pod: item.pod, Container: k})
	}
}

// partsOf returns the items of a pod, with the sizes that indivisible gives them.
func partsOf(u cluster.User, pod int, whole bool) []part {
	p := u.Pods[pod]
	overhead := p.Overhead != (cluster.Resources{})
	if whole || p.Whole || len(p.Containers) < 2 {
		r := p.Request()
		all := make([]int, len(p.Containers))
		for k := range all {
			all[k] = k
		}
		if len(all) == 0 && !overhead {
			return nil
		}
		return []part{{pod, overhead, all, extent{r.CPU, r.Memory, 1}}}
	}
	parts := make([]part, len(p.Containers))
	first := 0 // the largest has the pod's place
	for k, c := range p.Containers {
		r := c.Request
		if k == 0 {
			r = r.Add(p.Overhead)
		}
		parts[k] = part{pod, k == 0 && overhead, []int{k}, extent{r.CPU, r.Memory, 0}}
		if slices.Compare(parts[k].size[:], parts[first].size[:]) > 0 {
			first = k
		}
	}
	parts[first].size[podExtent] = 1
	return parts
}
