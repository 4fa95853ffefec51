package pack

import (
	"cmp"
	"fmt"
	"slices"

	"unnest/internal/plan/cluster"
)

// Outcome is a plan with the steps that lead to it, if Options.Explain asks for
// them.
type Outcome struct {
	Plan  cluster.Plan
	Cost  int64 // billionths of a dollar for an hour
	Steps []Step
}

// Kubernetes plans as the paper lets Kubernetes do it (§5.3.1, steps 1 to 3): pods
// are whole and come biggest first, each to the bought VM with room that has the
// most requested resources, or else to a new VM of the cheapest model that holds it.
// Equal pods come in their order, equal VMs as they were bought. A pod that no model
// holds is an error: see Fit.
func Kubernetes(u cluster.User, c cluster.Catalogue, o Options) (Outcome, error) {
	return construct(u, c, o, false)
}

// Spread is Kubernetes with one more freedom, the paper's example of §2: a pod that
// no bought VM has room for may go to several new ones, where they are cheaper than
// one (6 vCPU and 24 GiB: 4 and 2 vCPU instead of 8).
func Spread(u cluster.User, c cluster.Catalogue, o Options) (Outcome, error) {
	return construct(u, c, o, true)
}

func construct(u cluster.User, c cluster.Catalogue, o Options, spread bool) (Outcome, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return Outcome{}, err
	}
	p := newPacking(newMarket(c), newCargo(u, nil), o)
	if err := p.construct(spread); err != nil {
		return Outcome{}, err
	}
	return p.outcome(), nil
}

func (p *packing) outcome() Outcome { return Outcome{p.plan(), p.cost, p.steps} }

// construct places all pods.
func (p *packing) construct(spread bool) error {
	var r ranking
	for _, pod := range p.biggestFirst() {
		req := p.user.Pods[pod].Request()
		before := p.cost
		if b := r.first(req, nil); b >= 0 {
			p.putPod(pod, b)
			p.step(ActPlace, b, before)
			p.rank(&r, b, p.requested)
			continue
		}
		model := p.cheapest(req, 1)
		if model < 0 {
			return fmt.Errorf("user %s: pod %s needs %s: no model holds that; cut or drop it", p.user.Name, p.user.Pods[pod].Name, req)
		}
		for _, b := range p.buyFor(pod, model, spread) {
			p.rank(&r, b, p.requested)
		}
	}
	return nil
}

// biggestFirst returns the pods by the sum of relative CPU and memory.
func (p *packing) biggestFirst() []int32 {
	pods := make([]int32, len(p.user.Pods))
	sizes := make([]float64, len(pods))
	for i := range pods {
		pods[i], sizes[i] = int32(i), p.size(p.user.Pods[i].Request())
	}
	slices.SortStableFunc(pods, func(a, b int32) int { return cmp.Compare(sizes[b], sizes[a]) })
	return pods
}

// putPod puts all units of a pod on a bin.
func (p *packing) putPod(pod int32, b int) {
	for _, u := range p.podUnits(pod) {
		p.put(u, b)
		p.note(u, -1, b)
	}
}

// buyFor buys a VM of the model for a pod, or several where that is allowed and
// cheaper, and returns them.
func (p *packing) buyFor(pod int32, model int, spread bool) []int {
	before := p.cost
	if spread && p.first[pod+1]-p.first[pod] > 1 {
		lots, host := p.several(pod, model)
		var bought []int
		for _, lot := range lots {
			b := p.buy(lot.model, host)
			for _, u := range lot.units {
				p.put(u, b)
				p.note(u, -1, b)
			}
			p.step(ActBuy, b, before)
			before = p.cost
			bought = append(bought, b)
		}
		if bought != nil {
			return bought
		}
	}
	b := p.buy(model, p.hostFor(p.catalogue[model].Taken()))
	p.putPod(pod, b)
	p.step(ActBuy, b, before)
	return []int{b}
}

// several returns VMs for a pod that are cheaper than one of the model and fit on
// one host, or none.
func (p *packing) several(pod int32, model int) ([]lot, int) {
	units := p.podUnits(pod)
	budget := p.opts.Effort * len(units)
	lots := p.pack(units, &budget)
	var price int64
	var taken cluster.Resources
	for _, lot := range lots {
		price += p.catalogue[lot.model].Price
		taken = taken.Add(p.catalogue[lot.model].Taken())
	}
	if price >= p.catalogue[model].Price || p.opts.Host != (cluster.Resources{}) && !taken.Fits(p.opts.Host) {
		return nil, 0
	}
	return lots, p.hostFor(taken)
}

// Resize is the control for Hostlo: it only makes each VM of a plan the cheapest
// model that holds what is on it, and moves nothing. On a plan of Kubernetes it
// cannot save: a VM is bought as the cheapest model for its first pod, and a cheaper
// one would not hold even that.
func Resize(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) (Outcome, error) {
	p, err := reopen(u, c, plan, o)
	if err != nil {
		return Outcome{}, err
	}
	p.shrinkAll()
	return p.outcome(), nil
}

// reopen returns a plan as a packing.
func reopen(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) (*packing, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return nil, err
	}
	p := newPacking(newMarket(c), newCargo(u, nil), o)
	return p, p.load(plan)
}

// shrinkAll drops empty bins and shrinks the others.
func (p *packing) shrinkAll() {
	for b := range p.bins {
		if p.bins[b].model >= 0 {
			p.shrink(b)
		}
	}
}
