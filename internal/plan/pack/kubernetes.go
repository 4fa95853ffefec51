package pack

import (
	"cmp"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Outcome is a plan with its cost, and with the steps that led to it if Options.Explain is
// set.
type Outcome struct {
	Plan  cluster.Plan
	Cost  int64 // billionths of a dollar for an hour
	Steps []Step
	// Optimal says that no plan costs less, because all were tried.
	Optimal bool
}

// Kubernetes places pods as the paper's model of Kubernetes does (§5.3.1, steps 1 to 3). It
// places whole pods, biggest first, each on the bought VM with room that has the most
// requested resources, or else on a new VM of the cheapest model that holds it. Ties keep
// the order of the pods, and of purchase. A pod that no model holds is an error: see Fit.
func Kubernetes(u cluster.User, c cluster.Catalogue, o Options) (Outcome, error) {
	return construct(u, c, o, false)
}

// Spread is Kubernetes with one difference, the paper's example of §2: a pod without room on
// any bought VM goes to several new VMs if they are cheaper than one (6 vCPU and 24 GiB: 4
// and 2 vCPU instead of 8).
func Spread(u cluster.User, c cluster.Catalogue, o Options) (Outcome, error) {
	return construct(u, c, o, true)
}

func construct(u cluster.User, c cluster.Catalogue, o Options, spread bool) (Outcome, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return Outcome{}, err
	}
	p := newPacking(newModelIndex(c), newItems(u, nil), o)
	if err := p.construct(spread); err != nil {
		return Outcome{}, err
	}
	return p.outcome(), nil
}

func (p *packing) outcome() Outcome { return Outcome{p.plan(), p.cost, p.steps, p.optimal} }

// construct places all pods.
func (p *packing) construct(spread bool) error {
	var r ranking
	for _, pod := range p.biggestFirst(0, len(p.user.Pods)) {
		req := p.user.Pods[pod].Request()
		before := p.cost
		if b := r.first(req, p.joins(p.first[pod])); b >= 0 {
			p.putPod(pod, b)
			p.recordStep(ActPlace, b, before)
			p.rank(&r, b, p.requested)
			continue
		}
		model := p.cheapest(req, 1)
		if model < 0 {
			return fmt.Errorf("user %s: %w", p.user.Name, tooLarge(p.user.Pods[pod]))
		}
		for _, b := range p.buyFor(pod, model, spread) {
			p.rank(&r, b, p.requested)
		}
	}
	return nil
}

// biggestFirst returns the pods with indices from from to to, sorted by the sum of relative CPU
// and memory.
func (p *packing) biggestFirst(from, to int) []int32 {
	sizes := make([]float64, to-from)
	for i := range sizes {
		sizes[i] = p.size(p.user.Pods[from+i].Request())
	}
	pods := numbers(int32(from), int32(to))
	slices.SortStableFunc(pods, func(a, b int32) int { return cmp.Compare(sizes[int(b)-from], sizes[int(a)-from]) })
	return pods
}

// putPod puts all items of a pod on a bin.
func (p *packing) putPod(pod int32, b int) {
	for _, u := range p.podItems(pod) {
		p.put(u, b)
		p.recordMove(u, -1, b)
	}
}

// buyFor buys a VM of the model for a pod and returns it. With spread it buys several VMs if
// they are cheaper.
func (p *packing) buyFor(pod int32, model int, spread bool) []int {
	before := p.cost
	if spread && p.first[pod+1]-p.first[pod] > 1 {
		loads, host := p.several(pod, model)
		var bought []int
		for _, load := range loads {
			b := p.buy(load.model, host)
			for _, u := range load.items {
				p.put(u, b)
				p.recordMove(u, -1, b)
			}
			p.recordStep(ActBuy, b, before)
			before = p.cost
			bought = append(bought, b)
		}
		if bought != nil {
			return bought
		}
	}
	b := p.buy(model, p.hostFor(p.catalogue[model].Taken()))
	p.putPod(pod, b)
	p.recordStep(ActBuy, b, before)
	return []int{b}
}

// several returns VMs for a pod that are together cheaper than one of the model and fit on
// one host, and that host; nil if there are none.
func (p *packing) several(pod int32, model int) ([]load, int) {
	items := p.podItems(pod)
	budget := p.opts.Effort * len(items)
	loads := p.pack(items, &budget)
	var price int64
	var taken cluster.Resources
	for _, load := range loads {
		price += p.catalogue[load.model].Price
		taken = taken.Add(p.catalogue[load.model].Taken())
	}
	if price >= p.catalogue[model].Price || p.opts.Host != (cluster.Resources{}) && !taken.Fits(p.opts.Host) {
		return nil, 0
	}
	return loads, p.hostFor(taken)
}

// Resize is the control for Hostlo: it replaces each VM of a plan by the cheapest model that
// holds its pods, and moves nothing. It cannot improve a plan of Kubernetes, which buys the
// cheapest model for the first pod of each VM.
func Resize(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) (Outcome, error) {
	p, err := reopen(u, c, plan, o)
	if err != nil {
		return Outcome{}, err
	}
	p.shrinkAll()
	return p.outcome(), nil
}

func reopen(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) (*packing, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return nil, err
	}
	p := newPacking(newModelIndex(c), newItems(u, nil), o)
	return p, p.restore(plan)
}

// shrinkAll drops empty bins and shrinks the others.
func (p *packing) shrinkAll() {
	for b := range p.bins {
		if p.bins[b].model >= 0 {
			p.shrink(b)
		}
	}
}

// Comparison is the plans of all planners for one user.
type Comparison struct {
	User       cluster.User // as planned: see Fit and Bundle
	Left       []Left
	Containers int     // of the user, each on its own
	Bundled    int     // containers that are planned as one, at most
	Kubernetes Outcome // see Kubernetes
	Resize     Outcome // Kubernetes, then Resize
	Hostlo     Outcome // Kubernetes, then Hostlo
	Spread     Outcome // Spread, then Hostlo; may cost more than Kubernetes, because it leaves less room for later pods
	Whole      Outcome // Best for pods that stay whole: see Unsplit
	Best       Outcome // see Best
}

// Compare runs all planners for a user. Kubernetes ≥ Hostlo ≥ Best, Kubernetes ≥ Whole ≥
// Best, and Spread ≥ Best. Users are independent of each other, so callers may run many
// at once. If all pods fit, Whole and Best also improve the plans now, which do not split pods.
func Compare(u cluster.User, c cluster.Catalogue, o Options, now ...cluster.Plan) (Comparison, error) {
	fit, left, err := Fit(u, c, o.Oversize)
	if err != nil {
		return Comparison{}, err
	}
	s := Comparison{Left: left, Containers: containers(fit)}
	fit, s.Bundled = Bundle(fit, c, o.Bundle)
	s.User = fit
	fail := func(what string, err error) (Comparison, error) {
		return Comparison{}, fmt.Errorf("user %s: %s: %w", u.Name, what, err)
	}
	if s.Kubernetes, err = Kubernetes(fit, c, o); err != nil {
		return fail("kubernetes", err)
	}
	if s.Resize, err = Resize(fit, c, s.Kubernetes.Plan, o); err != nil {
		return fail("resize", err)
	}
	if s.Hostlo, err = Hostlo(fit, c, s.Kubernetes.Plan, o); err != nil {
		return fail("hostlo", err)
	}
	spread, err := Spread(fit, c, o)
	if err != nil {
		return fail("spread", err)
	}
	if s.Spread, err = Hostlo(fit, c, spread.Plan, o); err != nil {
		return fail("spread", err)
	}
	s.Spread.Steps = append(spread.Steps, s.Spread.Steps...)
	if len(left) > 0 {
		now = nil // it has other pods
	}
	if !Splittable(fit) {
		if s.Best, err = Best(fit, c, o, append(now, s.Kubernetes.Plan, s.Hostlo.Plan, s.Spread.Plan)...); err != nil {
			return fail("best", err)
		}
		s.Whole = s.Best
		return s, nil
	}
	if s.Whole, err = Best(Unsplit(fit), c, o, append(now, s.Kubernetes.Plan)...); err != nil {
		return fail("whole", err)
	}
	if s.Best, err = Best(fit, c, o, s.Hostlo.Plan, s.Spread.Plan, s.Whole.Plan); err != nil {
		return fail("best", err)
	}
	return s, nil
}
