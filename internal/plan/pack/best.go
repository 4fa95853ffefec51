package pack

import (
	"cmp"
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
