package pack

import (
	"cmp"
	"math/bits"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Best looks for a plan that is cheaper than all starts. It packs all containers again, on
// mixed models (exactly for up to 15 containers, else by dot product and best fit). Then it
// improves the cheapest start and the new plan: it repacks one VM or a few together, and
// empties VMs, until nothing gets cheaper or Options.Effort is spent. It never returns a plan
// that costs more than the cheapest start; without starts it starts from Kubernetes and
// Hostlo. With physical hosts it repacks only VMs of one host, and nothing as a whole, so the
// pods mostly keep their hosts.
func Best(u cluster.User, c cluster.Catalogue, o Options, starts ...cluster.Plan) (Outcome, error) {
	return BestTogether(u, c, o, nil, starts...)
}

// BestTogether is Best with containers that must stay together. A nil groups splits
// every pod freely, unless it must stay whole.
func BestTogether(u cluster.User, catalogue cluster.Catalogue, o Options, groups Groups, starts ...cluster.Plan) (Outcome, error) {
	o, err := o.withDefaults(catalogue)
	if err != nil {
		return Outcome{}, err
	}
	m, c := newModelIndex(catalogue), newItems(u, groups)
	if len(starts) == 0 {
		p := newPacking(m, c, o)
		if err := p.construct(false); err != nil {
			return Outcome{}, err
		}
		p.hostlo()
		starts = []cluster.Plan{p.plan()}
	}
	budget := o.Effort * max(len(c.items), minEffortItems)
	runs, err := starters(m, c, o, starts, &budget)
	if err != nil {
		return Outcome{}, err
	}
	for i, p := range runs {
		part := budget / (len(runs) - i)
		budget -= part
		p.improve(&part)
		budget += part
	}
	slices.SortStableFunc(runs, func(a, b *packing) int { return cmp.Compare(a.cost, b.cost) })
	best := runs[0].outcome()
	best.Optimal = slices.ContainsFunc(runs, func(p *packing) bool { return p.optimal })
	return best, nil
}

// Improve looks for a plan that is cheaper than the given one, as Best does from its starts.
func Improve(u cluster.User, catalogue cluster.Catalogue, o Options, plan cluster.Plan) (Outcome, error) {
	p, err := reopen(u, catalogue, plan, o)
	if err != nil {
		return Outcome{}, err
	}
	p.opts.Explain = false // the steps do not say how the plan came about
	budget := p.opts.Effort * max(len(p.items), minEffortItems)
	p.improve(&budget)
	return p.outcome(), nil
}

// minEffortItems is the number of items that the effort of smaller users is for.
const minEffortItems = 1000

// starters returns the packings to improve: the cheapest start, and a new one.
func starters(m modelIndex, c *itemSet, o Options, starts []cluster.Plan, budget *int) ([]*packing, error) {
	var cheapest *packing
	for _, plan := range starts {
		p := newPacking(m, c, o)
		if err := p.restore(plan); err != nil {
			return nil, err
		}
		if cheapest == nil || p.cost < cheapest.cost {
			cheapest = p
		}
	}
	if o.Host != (cluster.Resources{}) || len(c.items) == 0 {
		return []*packing{cheapest}, nil
	}
	repacked := newPacking(m, c, o)
	repacked.next = cheapest.next
	if len(c.items) <= maxExactUser {
		repacked.replace(cheapest, repacked.packExactly(repacked.all(), budget))
		*budget = 0 // it is optimal
		repacked.optimal = true
	} else {
		repacked.replace(cheapest, repacked.pack(repacked.all(), budget))
	}
	return []*packing{cheapest, repacked}, nil
}

// replace puts the loads on an empty packing, as a step from another one.
func (p *packing) replace(old *packing, loads []load) {
	step := Step{Action: ActRepack, VM: p.next, Model: -1, Before: old.cost}
	for _, l := range loads {
		b := p.buy(l.model, 0)
		for _, u := range l.items {
			p.put(u, b)
			if !p.opts.Explain {
				continue
			}
			from := -1
			if old.where[u] >= 0 {
				from = old.bins[old.where[u]].id
			}
			for _, part := range p.parts(u) {
				step.Moves = append(step.Moves, Move{part, from, p.bins[b].id})
			}
		}
	}
	if len(loads) > 0 {
		step.Model = loads[0].model
	}
	if step.After = p.cost; p.opts.Explain {
		p.steps = []Step{step}
	}
}

// Unsplit returns the user with pods that must not be split. Best of it is the cheapest plan
// without Hostlo.
func Unsplit(u cluster.User) cluster.User {
	whole := u
	whole.Pods = slices.Clone(u.Pods)
	for i := range whole.Pods {
		whole.Pods[i].Whole = true
	}
	return whole
}

// packExactly returns the cheapest VMs for a few items, by dynamic programming over their
// subsets.
func (p *packing) packExactly(items []int32, budget *int) []load {
	sets := 1 << len(items)
	model := p.modelsOf(items) // that holds a set on one VM
	price := make([]int64, sets)
	last := make([]int, sets) // items on the VM with the set's first item
	for set := 1; set < sets; set++ {
		lowest := set & -set
		price[set] = -1
		for sub := set; sub > 0; sub = (sub - 1) & set {
			if sub&lowest == 0 || model[sub] < 0 || price[set^sub] < 0 {
				continue
			}
			if sum := p.catalogue[model[sub]].Price + price[set^sub]; price[set] < 0 || sum < price[set] {
				price[set], last[set] = sum, sub
			}
		}
		*budget -= 1 << bits.OnesCount(uint(set))
	}
	var loads []load
	for set := sets - 1; set > 0; set ^= last[set] {
		l := load{model[last[set]], chosen(items, last[set])}
		loads = append(loads, l)
	}
	return loads
}

func chosen(items []int32, set int) (some []int32) {
	for ; set > 0; set &= set - 1 {
		some = append(some, items[bits.TrailingZeros(uint(set))])
	}
	return some
}

// modelsOf returns for each subset of a few items the cheapest model that holds it, -1 if
// there is none.
func (p *packing) modelsOf(items []int32) []int {
	index := map[int32]int{}
	bit := make([]uint64, len(items)) // of each item's pod
	for i, u := range items {
		pod := p.items[u].pod
		if _, known := index[pod]; !known {
			index[pod] = len(index)
		}
		bit[i] = 1 << index[pod]
	}
	clash := make([]uint, len(items)) // items that must not be with an item
	for i, u := range items {
		for k, v := range items {
			if a, b := p.items[u], p.items[v]; a.pod != b.pod && a.rules.Clash(b.rules) {
				clash[i] |= 1 << k
			}
		}
	}
	model := make([]int, 1<<len(items))
	req := make([]cluster.Resources, len(model))
	pods := make([]uint64, len(model))
	for set := 1; set < len(model); set++ {
		i, rest := bits.TrailingZeros(uint(set)), set&(set-1)
		req[set] = req[rest].Add(p.items[items[i]].req)
		pods[set] = pods[rest] | bit[i]
		if model[rest] < 0 || clash[i]&uint(rest) != 0 || len(p.user.Limits) > 0 && !p.together(chosen(items, set)) {
			model[set] = -1 // no more than a part of it
			continue
		}
		model[set] = p.cheapest(req[set], bits.OnesCount64(pods[set]))
	}
	return model
}
