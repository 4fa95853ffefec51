// Package pack places the pods of a user on VMs, at the lowest cost that it finds: as
// Kubernetes does (Kubernetes), with containers moved between VMs (Hostlo), with a pod on
// several new VMs (Spread), and with the best packing it finds (Best). It follows Bacou
// et al., Nested Virtualization Without the Nest, ICPP 2019, §5.3.1, where that is
// specified; Options are its open choices.
//
// The same input always gives the same plan.
package pack

import (
	"math"
	"math/bits"
	"slices"

	"unnest/internal/plan/cluster"
)

// lot is a VM that is to be bought, with what comes on it.
type lot struct {
	model int
	units []int32
}

// Bounds on what is packed thoroughly. Pools of so many units are packed exactly,
// as a whole user or as some of its VMs; with more than dotUnits the dot product
// gives way to one look at each unit.
const (
	exactUser = 12
	exactPool = 9
	dotUnits  = 200
	peelUnits = 4000
)

// pack returns the cheapest VMs it finds for the units, without regard to hosts. It
// takes what it looks at from the budget, and gets cruder when that is spent.
func (p *packing) pack(units []int32, budget *int) []lot {
	if len(units) <= exactPool {
		return p.packExactly(units, budget)
	}
	units = p.smallestFirst(units)
	slices.Reverse(units)
	best := p.packOne(units)
	for _, lots := range p.attempts(units, budget) {
		if best == nil || p.price(lots) < p.price(best) {
			best = lots
		}
	}
	return best
}

// attempts packs the units, biggest first, in different ways: at least in one.
func (p *packing) attempts(units []int32, budget *int) [][]lot {
	var all [][]lot
	for _, way := range []struct {
		most int
		fill fill
	}{{dotUnits, p.fillByDot}, {peelUnits, p.fillInOrder}} {
		if len(units) > way.most || *budget <= 0 {
			continue
		}
		if lots := p.peel(units, budget, way.fill); lots != nil {
			all = append(all, lots)
		}
	}
	for _, model := range slices.Backward(p.byPrice) {
		if len(all) > 0 && *budget <= 0 {
			break
		}
		all = append(all, p.bestFit(units, model, budget))
	}
	return all
}

func (p *packing) price(lots []lot) int64 {
	var sum int64
	for _, l := range lots {
		sum += p.catalogue[l.model].Price
	}
	return sum
}

func (p *packing) request(units []int32) cluster.Resources {
	var sum cluster.Resources
	for _, u := range units {
		sum = sum.Add(p.units[u].req)
	}
	return sum
}

// podsOf returns how many pods the units are of, 1 where no model limits pods.
func (p *packing) podsOf(units []int32) int {
	if !p.limited {
		return 1
	}
	pods := map[int32]bool{}
	for _, u := range units {
		pods[p.units[u].pod] = true
	}
	return len(pods)
}

// packOne returns one VM for all, nil if no model holds them.
func (p *packing) packOne(units []int32) []lot {
	model := p.cheapest(p.request(units), p.podsOf(units))
	if model < 0 {
		return nil
	}
	return []lot{{model, units}}
}

// packExactly finds the cheapest of all ways to share out a few units, by dynamic
// programming over their subsets.
func (p *packing) packExactly(units []int32, budget *int) []lot {
	sets := 1 << len(units)
	model := p.modelsOf(units) // that holds a set on one VM
	price := make([]int64, sets)
	last := make([]int, sets) // the VM with the set's first unit
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
	var lots []lot
	for set := sets - 1; set > 0; set ^= last[set] {
		l := lot{model: model[last[set]]}
		for rest := last[set]; rest > 0; rest &= rest - 1 {
			l.units = append(l.units, units[bits.TrailingZeros(uint(rest))])
		}
		lots = append(lots, l)
	}
	return lots
}

// modelsOf returns for each subset of a few units the cheapest model that holds it,
// -1 if there is none.
func (p *packing) modelsOf(units []int32) []int {
	index := map[int32]int{}
	bit := make([]uint64, len(units)) // of each unit's pod
	for i, u := range units {
		pod := p.units[u].pod
		if _, known := index[pod]; !known {
			index[pod] = len(index)
		}
		bit[i] = 1 << index[pod]
	}
	model := make([]int, 1<<len(units))
	req := make([]cluster.Resources, len(model))
	pods := make([]uint64, len(model))
	for set := 1; set < len(model); set++ {
		i, rest := bits.TrailingZeros(uint(set)), set&(set-1)
		req[set] = req[rest].Add(p.units[units[i]].req)
		pods[set] = pods[rest] | bit[i]
		model[set] = p.cheapest(req[set], bits.OnesCount64(pods[set]))
	}
	return model
}

// fill takes units for one VM of a model from those that remain.
type fill func(units []int32, model int, weight [2]float64, budget *int) []int32

// peel buys one VM after the other: of each model as full as fill makes it, the one
// that costs least for what is on it. Before each, it sees what one VM for all the
// rest would cost, and returns the cheapest plan met that way; nil if it runs out of
// budget before there is any.
func (p *packing) peel(units []int32, budget *int, fill fill) []lot {
	rest := slices.Clone(units)
	var bought, best []lot
	var spent, least int64 = 0, -1
	for len(rest) > 0 && (least < 0 || spent < least) {
		req := p.request(rest)
		if m := p.cheapest(req, p.podsOf(rest)); m >= 0 {
			if sum := spent + p.catalogue[m].Price; least < 0 || sum < least {
				least, best = sum, append(slices.Clone(bought), lot{m, slices.Clone(rest)})
			}
		}
		if *budget <= 0 {
			return best
		}
		next := p.bargain(rest, req, budget, fill)
		if len(next.units) == 0 {
			return best // a unit that no model holds
		}
		bought = append(bought, next)
		spent += p.catalogue[next.model].Price
		rest = without(rest, next.units)
	}
	if len(rest) == 0 && (least < 0 || spent < least) {
		return bought
	}
	return best
}

// bargain returns the VM that costs least for what fill puts on it. What is on it is
// weighed by how scarce it is: by the demand of all that remains, relative to the
// largest model.
func (p *packing) bargain(rest []int32, req cluster.Resources, budget *int, fill fill) lot {
	weight := [2]float64{share(req.CPU, p.largest.CPU), share(req.Memory, p.largest.Memory)}
	var best lot
	var rate, value float64 = -1, 0
	for m, model := range p.catalogue {
		units := fill(rest, m, weight, budget)
		if len(units) == 0 {
			continue
		}
		on := p.request(units)
		worth := float64(weight[0]*share(on.CPU, p.largest.CPU)) + float64(weight[1]*share(on.Memory, p.largest.Memory))
		now := float64(model.Price) / max(worth, 1e-12)
		if rate < 0 || now < rate || now == rate && worth > value {
			best, rate, value = lot{m, units}, now, worth
		}
	}
	return best
}

// without returns rest less some of it, both in the same order.
func without(rest, some []int32) []int32 {
	gone := make(map[int32]bool, len(some))
	for _, u := range some {
		gone[u] = true
	}
	return slices.DeleteFunc(rest, func(u int32) bool { return gone[u] })
}

// space is what is left of a VM while it is filled.
type space struct {
	free  cluster.Resources
	slots int
	pods  map[int32]bool // nil where there is no limit
}

func (p *packing) space(model int) space {
	s := space{free: p.catalogue[model].Size, slots: p.catalogue[model].Pods}
	if s.slots > 0 {
		s.pods = map[int32]bool{}
	}
	return s
}

func (s *space) holds(u unit) bool {
	return u.req.Fits(s.free) && (s.pods == nil || s.pods[u.pod] || len(s.pods) < s.slots)
}

// left returns how many more pods the VM may have.
func (s *space) left() int32 {
	if s.pods == nil {
		return math.MaxInt32
	}
	return int32(s.slots - len(s.pods))
}

func (s *space) add(u unit) {
	s.free = s.free.Sub(u.req)
	if s.pods != nil {
		s.pods[u.pod] = true
	}
}

// fillInOrder takes each unit that still fits.
func (p *packing) fillInOrder(units []int32, model int, _ [2]float64, budget *int) []int32 {
	s := p.space(model)
	var on []int32
	for _, u := range units {
		if s.holds(p.units[u]) {
			s.add(p.units[u])
			on = append(on, u)
		}
	}
	*budget -= len(units)
	return on
}

// fillByDot takes again and again the unit whose request points most where the VM
// has room: the largest dot product of both, weighed (Panigrahy et al., Heuristics
// for Vector Bin Packing, 2011).
func (p *packing) fillByDot(units []int32, model int, weight [2]float64, budget *int) []int32 {
	s := p.space(model)
	size := p.catalogue[model].Size
	var on []int32
	taken := make([]bool, len(units))
	for {
		most, best := -1.0, -1
		cpu, memory := weight[0]*share(s.free.CPU, size.CPU), weight[1]*share(s.free.Memory, size.Memory)
		for i, u := range units {
			if taken[i] || !s.holds(p.units[u]) {
				continue
			}
			req := p.units[u].req
			dot := float64(cpu*share(req.CPU, p.largest.CPU)) + float64(memory*share(req.Memory, p.largest.Memory))
			if dot > most {
				most, best = dot, i
			}
		}
		*budget -= len(units)
		if best < 0 {
			break
		}
		taken[best] = true
		s.add(p.units[units[best]])
	}
	for i, u := range units {
		if taken[i] {
			on = append(on, u)
		}
	}
	return on
}

// bestFit puts the units, biggest first, each on the fullest VM of one model that
// has room, then makes each VM the cheapest that holds what is on it. What is larger
// than the model has a VM of its own, on which others may come.
func (p *packing) bestFit(units []int32, model int, budget *int) []lot {
	var lots []lot
	var spaces []space
	var r ranking
	for _, u := range units {
		b := r.first(p.units[u].req, nil)
		if b < 0 {
			m := model
			if !p.units[u].req.Fits(p.catalogue[m].Size) {
				m = p.cheapest(p.units[u].req, 1)
			}
			b = len(lots)
			lots, spaces = append(lots, lot{model: m}), append(spaces, p.space(m))
		}
		lots[b].units = append(lots[b].units, u)
		spaces[b].add(p.units[u])
		r.set(b, -relative(spaces[b].free, p.largest), spaces[b].free, spaces[b].left())
	}
	*budget -= 16 * len(units)
	for b := range lots {
		used := p.catalogue[lots[b].model].Size.Sub(spaces[b].free)
		lots[b].model = p.cheapest(used, p.podsOf(lots[b].units))
	}
	return lots
}
