package pack

import (
	"fmt"
	"math"
	"slices"

	"unnest/internal/plan/cluster"
)

// bin is a VM while plans are made. A model below 0: it is gone.
type bin struct {
	id, model, host int
	used            cluster.Resources
	units           []int32
	pods            map[int32]int // units by pod; nil unless the market limits pods
}

// packing is a plan while it is made.
type packing struct {
	market
	*cargo
	opts  Options
	bins  []bin
	where []int32             // bin of each unit, -1: none
	at    []int32             // its index in the bin's units
	hosts []cluster.Resources // what is taken of each
	cost  int64
	next  int // id of the next VM
	steps []Step
	moves []Move // since the last step, if they are kept
}

func newPacking(m market, c *cargo, o Options) *packing {
	p := &packing{market: m, cargo: c, opts: o, where: make([]int32, len(c.units)), at: make([]int32, len(c.units))}
	for i := range p.where {
		p.where[i] = -1
	}
	return p
}

// load makes the packing what a plan says. Containers that are one unit must be on
// one VM there.
func (p *packing) load(plan cluster.Plan) error {
	for _, vm := range plan.VMs {
		if vm.Model < 0 || vm.Model >= len(p.catalogue) {
			return fmt.Errorf("VM %d has model %d: the catalogue has %d", vm.ID, vm.Model, len(p.catalogue))
		}
		b := p.buy(vm.Model, vm.Host)
		p.bins[b].id = vm.ID
		p.next = max(p.next, vm.ID+1)
		for _, part := range vm.Parts {
			if part.Pod < 0 || part.Pod >= len(p.user.Pods) || part.Container >= len(p.user.Pods[part.Pod].Containers) {
				return fmt.Errorf("VM %d has container %d of pod %d: the user has no such", vm.ID, part.Container, part.Pod)
			}
			u := p.first[part.Pod]
			if part.Container >= 0 {
				u = p.of[int(p.start[part.Pod])+part.Container]
			}
			if p.where[u] < 0 {
				p.put(u, b)
			}
			if int(p.where[u]) != b {
				return fmt.Errorf("pod %s is split in the plan between containers that must stay together", p.user.Pods[part.Pod].Name)
			}
		}
	}
	for u, b := range p.where {
		if b >= 0 {
			continue
		}
		if unit := p.units[u]; len(unit.containers) > 0 || p.user.Pods[unit.pod].Overhead != (cluster.Resources{}) {
			return fmt.Errorf("pod %s is not in the plan, or not all of it", p.user.Pods[unit.pod].Name)
		}
	}
	p.moves = nil
	return nil
}

// plan returns what the packing is, VMs by ID.
func (p *packing) plan() cluster.Plan {
	var out cluster.Plan
	for _, b := range p.bins {
		if b.model < 0 {
			continue
		}
		vm := cluster.VM{ID: b.id, Model: b.model, Host: b.host}
		for _, u := range b.units {
			vm.Parts = append(vm.Parts, p.parts(u)...)
		}
		slices.SortFunc(vm.Parts, comparePart)
		out.VMs = append(out.VMs, vm)
	}
	slices.SortFunc(out.VMs, func(a, b cluster.VM) int { return a.ID - b.ID })
	return out
}

func comparePart(a, b cluster.Part) int {
	if a.Pod != b.Pod {
		return a.Pod - b.Pod
	}
	return a.Container - b.Container
}

func (p *packing) buy(model, host int) int {
	for len(p.hosts) <= host {
		p.hosts = append(p.hosts, cluster.Resources{})
	}
	b := bin{id: p.next, model: model, host: host}
	if p.limited {
		b.pods = map[int32]int{}
	}
	p.next++
	p.bins = append(p.bins, b)
	p.cost += p.catalogue[model].Price
	p.hosts[host] = p.hosts[host].Add(p.catalogue[model].Taken())
	return len(p.bins) - 1
}

func (p *packing) drop(b int) {
	bin := &p.bins[b]
	p.cost -= p.catalogue[bin.model].Price
	p.hosts[bin.host] = p.hosts[bin.host].Sub(p.catalogue[bin.model].Taken())
	bin.model = -1
}

func (p *packing) resize(b, model int) {
	bin := &p.bins[b]
	old := p.catalogue[bin.model]
	p.cost += p.catalogue[model].Price - old.Price
	p.hosts[bin.host] = p.hosts[bin.host].Sub(old.Taken()).Add(p.catalogue[model].Taken())
	bin.model = model
}

// resizable reports whether the bin's host has room for it as that model.
func (p *packing) resizable(b, model int) bool {
	bin := p.bins[b]
	rest := p.hosts[bin.host].Sub(p.catalogue[bin.model].Taken())
	return p.opts.Host == cluster.Resources{} || rest.Add(p.catalogue[model].Taken()).Fits(p.opts.Host)
}

// hostFor returns the first host that has room for so much.
func (p *packing) hostFor(taken cluster.Resources) int {
	if p.opts.Host == (cluster.Resources{}) {
		return 0
	}
	for i, h := range p.hosts {
		if h.Add(taken).Fits(p.opts.Host) {
			return i
		}
	}
	return len(p.hosts)
}

func (p *packing) put(u int32, b int) {
	bin := &p.bins[b]
	p.where[u], p.at[u] = int32(b), int32(len(bin.units))
	bin.units = append(bin.units, u)
	bin.used = bin.used.Add(p.units[u].req)
	if bin.pods != nil {
		bin.pods[p.units[u].pod]++
	}
}

func (p *packing) take(u int32) {
	bin := &p.bins[p.where[u]]
	last := bin.units[len(bin.units)-1]
	bin.units[p.at[u]], p.at[last] = last, p.at[u]
	bin.units = bin.units[:len(bin.units)-1]
	bin.used = bin.used.Sub(p.units[u].req)
	if pod := p.units[u].pod; bin.pods != nil {
		if bin.pods[pod]--; bin.pods[pod] == 0 {
			delete(bin.pods, pod)
		}
	}
	p.where[u] = -1
}

// shift moves a unit to another bin.
func (p *packing) shift(u int32, b int) {
	from := p.where[u]
	p.take(u)
	p.put(u, b)
	p.note(u, int(from), b)
}

func (p *packing) free(b int) cluster.Resources {
	return p.catalogue[p.bins[b].model].Size.Sub(p.bins[b].used)
}

// slots returns how many more pods may come to the bin.
func (p *packing) slots(b int) int32 {
	if most := p.catalogue[p.bins[b].model].Pods; most > 0 {
		return int32(most - len(p.bins[b].pods))
	}
	return math.MaxInt32
}

// requested is the policy's score of a bin: the average of CPU and memory requested
// on it (footnote 8).
func (p *packing) requested(b int) float64 {
	return relative(p.bins[b].used, p.whole(b, p.opts.Requested)) / 2
}

// wasted is the average of CPU and memory that nothing on the bin requests.
func (p *packing) wasted(b int) float64 {
	return relative(p.free(b), p.whole(b, p.opts.Wasted)) / 2
}

func (p *packing) whole(b int, s Scale) cluster.Resources {
	if s == OfLargest {
		return p.largest
	}
	return p.catalogue[p.bins[b].model].Size
}

// rank puts the bin where its score belongs.
func (p *packing) rank(r *ranking, b int, score func(b int) float64) {
	r.set(b, score(b), p.free(b), p.slots(b))
}

// reachable returns what bins a unit may move to: all without limits of hosts, or
// where it is all of its pod, else those on its pod's host.
func (p *packing) reachable(u int32) func(b int) bool {
	if p.opts.Host == (cluster.Resources{}) || p.alone(u) {
		return nil
	}
	host := p.bins[p.where[u]].host
	return func(b int) bool { return p.bins[b].host == host }
}

// shrink makes the bin the cheapest model that holds what is on it, or drops it when
// that is nothing, and reports whether that saves.
func (p *packing) shrink(b int) bool {
	before := p.cost
	if len(p.bins[b].units) == 0 {
		p.drop(b)
		p.step(ActDrop, b, before)
		return true
	}
	model := p.cheapest(p.bins[b].used, len(p.bins[b].pods))
	if p.catalogue[model].Price >= p.catalogue[p.bins[b].model].Price || !p.resizable(b, model) {
		return false
	}
	p.resize(b, model)
	p.step(ActResize, b, before)
	return true
}
