package pack

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Hostlo improves a plan as the paper does (§5.3.1, step 4): it moves containers, smallest
// first, to the VMs with the most wasted resources, and then drops VMs or replaces them by
// cheaper models. It buys no VM, and the result never costs more than the plan. Options
// say in which order it goes through the VMs.
func Hostlo(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) (Outcome, error) {
	p, err := reopen(u, c, plan, o)
	if err != nil {
		return Outcome{}, err
	}
	p.hostlo()
	return p.outcome(), nil
}

func (p *packing) hostlo() {
	for range p.opts.Rounds {
		before := p.cost
		if p.opts.Moving == MoveByContainer {
			p.moveContainers()
		} else {
			p.emptyVMs()
		}
		if p.cost == before {
			return
		}
	}
}

// moveContainers moves each container to the VM with room that wastes most, if that wastes
// more than its own.
func (p *packing) moveContainers() {
	r := p.rankWasted()
	before := p.cost
	for _, u := range p.smallestFirst(p.all()) {
		b := int(p.where[u])
		r.remove(b)
		t := r.first(p.items[u].req, p.reachable(u))
		if t >= 0 && p.wasted(t) > p.wasted(b) {
			p.move(u, t)
			p.recordStep(ActMove, t, before)
			p.rank(r, t, p.wasted)
		}
		p.rank(r, b, p.wasted)
	}
	p.shrinkAll()
}

// emptyVMs empties one VM after the other.
func (p *packing) emptyVMs() {
	r := p.rankWasted()
	for _, b := range p.emptying() {
		p.empty(b, r, p.wasted)
	}
}

// empty moves the items of a bin, smallest first, each to the first bin of the ranking with
// room. It undoes the moves unless the bin is then dropped or shrunk.
func (p *packing) empty(b int, r *ranking, score func(b int) float64) {
	r.remove(b)
	var moved []int32
	for _, u := range p.smallestFirst(p.bins[b].items) {
		if t := r.first(p.items[u].req, p.reachable(u)); t >= 0 {
			p.move(u, t)
			p.rank(r, t, score)
			moved = append(moved, u)
		}
	}
	if p.shrink(b) {
		if p.bins[b].model >= 0 {
			p.rank(r, b, score)
		}
		return
	}
	for _, u := range slices.Backward(moved) {
		t := int(p.where[u])
		p.remove(u)
		p.put(u, b)
		p.rank(r, t, score)
	}
	p.moves = nil
	p.rank(r, b, score)
}

func (p *packing) rankWasted() *ranking {
	r := &ranking{}
	for b := range p.bins {
		if p.bins[b].model >= 0 {
			p.rank(r, b, p.wasted)
		}
	}
	return r
}

// emptying returns the bins in the order of Options.Emptying.
func (p *packing) emptying() []int {
	var bins []int
	wasted := make([]float64, len(p.bins))
	for b := range p.bins {
		if p.bins[b].model >= 0 {
			bins = append(bins, b)
			wasted[b] = p.wasted(b)
		}
	}
	slices.SortStableFunc(bins, func(a, b int) int {
		most := cmp.Compare(wasted[b], wasted[a])
		switch p.opts.Emptying {
		case LeastWastedFirst:
			return -most
		case CheapestFirst:
			return cmp.Or(cmp.Compare(p.catalogue[p.bins[a].model].Price, p.catalogue[p.bins[b].model].Price), most)
		case AsBought:
			return 0
		}
		return most
	})
	return bins
}

// smallestFirst returns a sorted copy of the items.
func (p *packing) smallestFirst(items []int32) []int32 {
	sorted := slices.Clone(items)
	slices.SortFunc(sorted, func(a, b int32) int {
		return cmp.Or(cmp.Compare(p.size(p.items[a].req), p.size(p.items[b].req)), cmp.Compare(a, b))
	})
	return sorted
}
