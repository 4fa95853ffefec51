package pack

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Limits of improve. The bins are those that waste most.
const (
	maxRounds        = 30
	pairedBins       = 12
	tripledBins      = 7
	maxWindow        = 6   // adjacent bins in the order of waste
	maxPerturbations = 200 // with the default effort
	perturbedBins    = 40
)

// improve lowers the cost until nothing helps or the budget is spent.
func (p *packing) improve(budget *int) {
	for range maxRounds {
		before := p.cost
		for _, b := range p.mostWasteful() {
			p.repack([]int{b}, budget, false)
		}
		p.emptyIntoFullest(budget)
		p.repackPairs(budget)
		p.repackTriples(budget)
		p.repackWindows(budget)
		if p.cost == before && !p.opts.Quick {
			p.perturb(budget)
		}
		if p.cost == before || *budget <= 0 || p.cost <= p.opts.Floor {
			return
		}
	}
}

// perturb repacks a few pseudorandom bins at a time, and accepts plans of the same cost,
// until one is cheaper.
func (p *packing) perturb(budget *int) {
	floor := max(p.floor(p.request(p.all())), p.opts.Floor)
	before := p.cost
	for try := uint64(0); try < uint64(maxPerturbations*max(1, p.opts.Effort/DefaultEffort)) && p.cost == before && before > floor && *budget > 0; try++ {
		bins := p.mostWasteful()
		if len(bins) < 3 {
			return
		}
		count := 2 + int(mix(4*try)%3)
		var some []int
		for k := range uint64(count) {
			b := bins[int(mix(4*try+1+k))%min(len(bins), perturbedBins)]
			if !slices.Contains(some, b) {
				some = append(some, b)
			}
		}
		p.repack(some, budget, true)
	}
}

// mostWasteful returns the bins sorted by the price of their free resources.
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

// emptyIntoFullest empties bins into the fullest bins with room.
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
		*budget -= 16 * len(p.bins[b].items)
		p.empty(b, r, fullest)
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
	for width := 2; width <= maxWindow; width++ {
		bins := p.mostWasteful()
		slices.SortStableFunc(bins, func(a, b int) int { return cmp.Compare(p.bins[a].host, p.bins[b].host) })
		for i := 0; i+width <= len(bins) && *budget > 0; i++ {
			p.repack(bins[i:i+width], budget, false)
		}
	}
}

// repack repacks some bins if that is cheaper, or with equal also at the same price. It does
// nothing if one was dropped or if they are on different hosts.
func (p *packing) repack(bins []int, budget *int, equal bool) bool {
	if *budget <= 0 {
		return false
	}
	host := p.bins[bins[0]].host
	var items []int32
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
		items = append(items, p.bins[b].items...)
		price += model.Price
		taken = taken.Sub(model.Taken())
	}
	*budget -= len(items)
	if len(items) > 0 && p.floor(p.request(items)) >= price && !equal {
		return false
	}
	loads := p.pack(items, budget)
	if now := p.price(loads); now > price || now == price && !equal {
		return false
	}
	for _, l := range loads {
		taken = taken.Add(p.catalogue[l.model].Taken())
	}
	if p.opts.Host != (cluster.Resources{}) && !taken.Fits(p.opts.Host) {
		return false
	}
	p.exchange(bins, loads, host)
	return true
}

// exchange moves the items of bins to new bins.
func (p *packing) exchange(bins []int, loads []load, host int) {
	before := p.cost
	first := -1
	for _, l := range loads {
		b := p.buy(l.model, host)
		if first < 0 {
			first = b
		}
		for _, u := range l.items {
			p.move(u, b)
		}
	}
	for _, b := range bins {
		p.drop(b)
	}
	if first >= 0 {
		p.recordStep(ActRepack, first, before)
	}
}
