package pack

import (
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// fill selects items for one VM of a model.
type fill func(items []int32, model int, weight [2]float64, budget *int) []int32

// greedy buys one VM after the other, each time the cheapest for what fill puts on it.
// Before each purchase it considers one VM for all remaining items. It returns the cheapest
// plan among these, nil if the budget ends before there is one.
func (p *packing) greedy(items []int32, budget *int, fill fill) []load {
	rest := slices.Clone(items)
	var bought, best []load
	var spent, least int64 = 0, -1
	for len(rest) > 0 && (least < 0 || spent < least) {
		req := p.request(rest)
		if m := p.cheapest(req, p.podsOf(rest)); m >= 0 && p.together(rest) {
			if sum := spent + p.catalogue[m].Price; least < 0 || sum < least {
				least, best = sum, append(slices.Clone(bought), load{m, slices.Clone(rest)})
			}
		}
		if *budget <= 0 {
			return best
		}
		next := p.cheapestLoad(rest, req, budget, fill)
		if len(next.items) == 0 {
			return best // an item that no model holds
		}
		bought = append(bought, next)
		spent += p.catalogue[next.model].Price
		rest = without(rest, next.items)
	}
	if len(rest) == 0 && (least < 0 || spent < least) {
		return bought
	}
	return best
}

// cheapestLoad returns the VM that costs least for what fill puts on it. It weighs each
// resource by the demand of all remaining items, relative to the largest model.
func (p *packing) cheapestLoad(rest []int32, req cluster.Resources, budget *int, fill fill) load {
	weight := [2]float64{share(req.CPU, p.largest.CPU), share(req.Memory, p.largest.Memory)}
	var best load
	var rate, value float64 = -1, 0
	for m, model := range p.catalogue {
		items := fill(rest, m, weight, budget)
		if len(items) == 0 {
			continue
		}
		on := p.request(items)
		worth := float64(weight[0]*share(on.CPU, p.largest.CPU)) + float64(weight[1]*share(on.Memory, p.largest.Memory))
		now := float64(model.Price) / max(worth, 1e-12)
		if rate < 0 || now < rate || now == rate && worth > value {
			best, rate, value = load{m, items}, now, worth
		}
	}
	return best
}

// without removes some items from rest, and keeps the order.
func without(rest, some []int32) []int32 {
	gone := make(map[int32]bool, len(some))
	for _, u := range some {
		gone[u] = true
	}
	return slices.DeleteFunc(rest, func(u int32) bool { return gone[u] })
}

type space struct {
	free   cluster.Resources
	slots  int
	pods   map[int32]bool // nil if there is no limit
	guests cluster.Guests
	limits []cluster.Limit
}

func (p *packing) space(model int) space {
	s := space{free: p.catalogue[model].Size, slots: p.catalogue[model].Pods, limits: p.user.Limits}
	if s.slots > 0 {
		s.pods = map[int32]bool{}
	}
	return s
}

func (s *space) holds(u item) bool {
	return u.req.Fits(s.free) && (s.pods == nil || s.pods[u.pod] || len(s.pods) < s.slots) && s.joins(u)
}

// joins reports whether the rules of the item's pod allow it on the VM.
func (s *space) joins(u item) bool { return u.rules == nil || s.guests.Holds(u.pod, u.rules, s.limits) }

// left returns how many more pods the VM may hold.
func (s *space) left() int32 {
	if s.pods == nil {
		return math.MaxInt32
	}
	return int32(s.slots - len(s.pods))
}

func (s *space) add(u item) {
	s.free = s.free.Sub(u.req)
	if s.pods != nil {
		s.pods[u.pod] = true
	}
	if u.rules != nil {
		s.guests.Add(u.pod, u.rules)
	}
}

// fillInOrder selects each item that still fits.
func (p *packing) fillInOrder(items []int32, model int, _ [2]float64, budget *int) []int32 {
	s := p.space(model)
	var on []int32
	for _, u := range items {
		if s.holds(p.items[u]) {
			s.add(p.items[u])
			on = append(on, u)
		}
	}
	*budget -= len(items)
	return on
}

// fillByDot repeatedly selects the item with the largest weighted dot product of its request
// and the free space (Panigrahy et al., Heuristics for Vector Bin Packing, 2011).
func (p *packing) fillByDot(items []int32, model int, weight [2]float64, budget *int) []int32 {
	s := p.space(model)
	size := p.catalogue[model].Size
	var on []int32
	taken := make([]bool, len(items))
	for {
		most, best := -1.0, -1
		cpu, memory := weight[0]*share(s.free.CPU, size.CPU), weight[1]*share(s.free.Memory, size.Memory)
		for i, u := range items {
			if taken[i] || !s.holds(p.items[u]) {
				continue
			}
			req := p.items[u].req
			dot := float64(cpu*share(req.CPU, p.largest.CPU)) + float64(memory*share(req.Memory, p.largest.Memory))
			if dot > most {
				most, best = dot, i
			}
		}
		*budget -= len(items)
		if best < 0 {
			break
		}
		taken[best] = true
		s.add(p.items[items[best]])
	}
	for i, u := range items {
		if taken[i] {
			on = append(on, u)
		}
	}
	return on
}

// bestFit puts the items, biggest first, each on the fullest VM with room, then replaces each
// VM by the cheapest model that holds its items. It buys VMs of one model, or the cheapest
// that fits for a larger item.
func (p *packing) bestFit(items []int32, model int, budget *int) []load {
	var loads []load
	spaces, r := p.spaces[:0], &p.ranked
	r.reset()
	for _, u := range items {
		var joins func(b int) bool
		if p.items[u].rules != nil {
			joins = func(b int) bool { return spaces[b].joins(p.items[u]) }
		}
		b := r.first(p.items[u].req, joins)
		if b < 0 {
			m := model
			if !p.items[u].req.Fits(p.catalogue[m].Size) {
				m = p.cheapest(p.items[u].req, 1)
			}
			b = len(loads)
			loads, spaces = append(loads, load{model: m}), append(spaces, p.space(m))
		}
		loads[b].items = append(loads[b].items, u)
		spaces[b].add(p.items[u])
		r.set(b, -relative(spaces[b].free, p.largest), spaces[b].free, spaces[b].left())
	}
	p.spaces = spaces
	*budget -= 16 * len(items)
	for b := range loads {
		used := p.catalogue[loads[b].model].Size.Sub(spaces[b].free)
		loads[b].model = p.cheapest(used, p.podsOf(loads[b].items))
	}
	return loads
}
