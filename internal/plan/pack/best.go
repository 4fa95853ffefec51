package pack

import (
	"cmp"
	"slices"

	"unnest/internal/plan/cluster"
)

// Best looks for a cheaper plan than the ones it starts from, over containers and
// mixed models: it packs everything anew (exactly for up to 12 containers, else by
// dot product and best fit) and then improves the better plans by packing one VM, or
// a few together, anew (split, merge, swap) and by emptying VMs, until nothing gets
// cheaper or Options.Effort is spent. It is deterministic, and never costs more than
// the cheapest start; with no start it starts from Kubernetes and Hostlo. With
// physical hosts only what is on the same host is packed together, and nothing is
// packed anew as a whole: which pods share a host stays mostly as it was.
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
	m, c := newMarket(catalogue), newCargo(u, groups)
	if len(starts) == 0 {
		p := newPacking(m, c, o)
		if err := p.construct(false); err != nil {
			return Outcome{}, err
		}
		p.hostlo()
		starts = []cluster.Plan{p.plan()}
	}
	budget := o.Effort * max(len(c.units), leastEffortUnits)
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
	return runs[0].outcome(), nil
}

// leastEffortUnits lets small users have as much effort as one with so many units.
const leastEffortUnits = 1000

// starters returns the packings that are worth improving: the cheapest of those to
// start from, and one packed anew.
func starters(m market, c *cargo, o Options, starts []cluster.Plan, budget *int) ([]*packing, error) {
	var cheapest *packing
	for _, plan := range starts {
		p := newPacking(m, c, o)
		if err := p.load(plan); err != nil {
			return nil, err
		}
		if cheapest == nil || p.cost < cheapest.cost {
			cheapest = p
		}
	}
	if o.Host != (cluster.Resources{}) || len(c.units) == 0 {
		return []*packing{cheapest}, nil
	}
	anew := newPacking(m, c, o)
	anew.next = cheapest.next
	lots := anew.packAll(budget)
	anew.steps = []Step{anew.replace(cheapest, lots)}
	if !o.Explain {
		anew.steps = nil
	}
	if len(c.units) <= exactUser {
		*budget = 0 // the new one is optimal
	}
	return []*packing{cheapest, anew}, nil
}

func (p *packing) packAll(budget *int) []lot {
	if len(p.units) <= exactUser {
		return p.packExactly(p.all(), budget)
	}
	return p.pack(p.all(), budget)
}

// replace fills an empty packing with lots, and returns the step from another one.
func (p *packing) replace(old *packing, lots []lot) Step {
	step := Step{Action: ActRepack, VM: p.next, Model: -1, Before: old.cost}
	for _, l := range lots {
		b := p.buy(l.model, 0)
		for _, u := range l.units {
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
	if len(lots) > 0 {
		step.Model = lots[0].model
	}
	step.After = p.cost
	return step
}

// How far improve looks. The bins are those that waste most.
const (
	mostImproving = 30 // rounds
	pairedBins    = 12
	tripledBins   = 7
	widestWindow  = 6 // bins next to each other in the order of waste
	mostWandering = 200
	wanderingBins = 40
)

// improve makes the packing cheaper until nothing helps or the budget is spent.
func (p *packing) improve(budget *int) {
	for range mostImproving {
		before := p.cost
		p.splitBins(budget)
		p.emptyIntoFullest(budget)
		p.repackPairs(budget)
		p.repackTriples(budget)
		p.repackWindows(budget)
		if p.cost == before {
			p.wander(budget)
		}
		if p.cost == before || *budget <= 0 {
			return
		}
	}
}

// wander repacks a few VMs at a time that it picks from all, and goes on also from
// plans of the same cost, until one is cheaper. What it picks looks random, but is
// always the same.
func (p *packing) wander(budget *int) {
	floor := p.floor(p.request(p.all()))
	before := p.cost
	for try := uint64(0); try < mostWandering && p.cost == before && before > floor && *budget > 0; try++ {
		bins := p.mostWasteful()
		if len(bins) < 3 {
			return
		}
		count := 2 + int(mix(4*try)%3)
		var some []int
		for k := range uint64(count) {
			b := bins[int(mix(4*try+1+k))%min(len(bins), wanderingBins)]
			if !slices.Contains(some, b) {
				some = append(some, b)
			}
		}
		p.repack(some, budget, true)
	}
}

// mostWasteful returns the bins by the money that goes for what nothing requests.
func (p *packing) mostWasteful() []int {
	var bins []int
	waste := make([]float64, len(p.bins))
	for b := range p.bins {
		if p.bins[b].model < 0 {
			continue
		}
		bins = append(bins, b)
		model := p.catalogue[p.bins[b].model]
		waste[b] = float64(model.Price) * relative(p.free(b), model.Size)
	}
	slices.SortStableFunc(bins, func(a, b int) int { return cmp.Compare(waste[b], waste[a]) })
	return bins
}

func (p *packing) splitBins(budget *int) {
	for _, b := range p.mostWasteful() {
		if *budget <= 0 {
			return
		}
		p.repack([]int{b}, budget, false)
	}
}

// emptyIntoFullest empties bins into the fullest ones with room.
func (p *packing) emptyIntoFullest(budget *int) {
	fullest := func(b int) float64 { return -p.wasted(b) }
	r := &ranking{}
	bins := p.mostWasteful()
	for _, b := range bins {
		p.rank(r, b, fullest)
	}
	for _, b := range bins {
		if *budget <= 0 {
			return
		}
		*budget -= 16 * len(p.bins[b].units)
		p.empty(b, r, fullest, false)
	}
}

func (p *packing) repackPairs(budget *int) {
	bins := p.mostWasteful()
	for i, a := range bins[:min(len(bins), pairedBins)] {
		for _, b := range bins[i+1 : min(len(bins), pairedBins)] {
			p.repack([]int{a, b}, budget, false)
		}
	}
}

func (p *packing) repackTriples(budget *int) {
	bins := p.mostWasteful()
	bins = bins[:min(len(bins), tripledBins)]
	for i := range bins {
		for j := range i {
			for k := range j {
				p.repack([]int{bins[i], bins[j], bins[k]}, budget, false)
			}
		}
	}
}

func (p *packing) repackWindows(budget *int) {
	for width := 2; width <= widestWindow; width++ {
		bins := p.mostWasteful()
		slices.SortStableFunc(bins, func(a, b int) int { return cmp.Compare(p.bins[a].host, p.bins[b].host) })
		for i := 0; i+width <= len(bins) && *budget > 0; i++ {
			p.repack(bins[i:i+width], budget, false)
		}
	}
}

// repack packs some bins anew if that is cheaper. Bins that are gone meanwhile, or
// on different hosts, are left as they are. Sideways allows the same price.
func (p *packing) repack(bins []int, budget *int, sideways bool) bool {
	if *budget <= 0 {
		return false
	}
	host := p.bins[bins[0]].host
	var units []int32
	var price int64
	taken := cluster.Resources{}
	if host < len(p.hosts) {
		taken = p.hosts[host]
	}
	for _, b := range bins {
		if p.bins[b].model < 0 || p.bins[b].host != host {
			return false
		}
		model := p.catalogue[p.bins[b].model]
		units = append(units, p.bins[b].units...)
		price += model.Price
		taken = taken.Sub(model.Taken())
	}
	*budget -= len(units)
	if len(units) > 0 && p.floor(p.request(units)) >= price && !sideways {
		return false
	}
	lots := p.pack(units, budget)
	if now := p.price(lots); now > price || now == price && !sideways {
		return false
	}
	for _, l := range lots {
		taken = taken.Add(p.catalogue[l.model].Taken())
	}
	if p.opts.Host != (cluster.Resources{}) && !taken.Fits(p.opts.Host) {
		return false
	}
	p.exchange(bins, lots, host)
	return true
}

// exchange puts what is on the bins on new ones.
func (p *packing) exchange(bins []int, lots []lot, host int) {
	before := p.cost
	first := -1
	for _, l := range lots {
		b := p.buy(l.model, host)
		if first < 0 {
			first = b
		}
		for _, u := range l.units {
			p.shift(u, b)
		}
	}
	for _, b := range bins {
		p.drop(b)
	}
	if first >= 0 {
		p.step(ActRepack, first, before)
	}
}

// Unsplit returns the user with pods that must not be split: with it, Best tells
// what better packing saves without Hostlo.
func Unsplit(u cluster.User) cluster.User {
	whole := cluster.User{Name: u.Name, Pods: slices.Clone(u.Pods)}
	for i := range whole.Pods {
		whole.Pods[i].Whole = true
	}
	return whole
}
