package pack

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// bin is a VM of a packing. A model below 0 means that it was dropped.
type bin struct {
	id, model, host int
	used            cluster.Resources
	items           []int32
	pods            map[int32]int // number of items by pod; nil if no model limits pods
	guests          cluster.Guests
}

// packing is a plan that changes, with the state that planners need.
type packing struct {
	modelIndex
	*itemSet
	opts  Options
	bins  []bin
	where []int32             // bin of each item, -1: none
	at    []int32             // its index in the bin's items
	hosts []cluster.Resources // used, by physical host
	cost  int64
	next  int // ID of the next VM
	steps []Step
	moves []Move // since the last step, if Options.Explain

	spaces []space // for bestFit, which keeps the memory
	ranked ranking // likewise

	optimal bool // no plan costs less
}

func newPacking(m modelIndex, c *itemSet, o Options) *packing {
	p := &packing{modelIndex: m, itemSet: c, opts: o, where: make([]int32, len(c.items)), at: make([]int32, len(c.items))}
	for i := range p.where {
		p.where[i] = -1
	}
	return p
}

// restore loads a plan into an empty packing. The plan must have the containers of each
// item on one VM.
func (p *packing) restore(plan cluster.Plan) error {
	for _, vm := range plan.VMs {
		if vm.Model < 0 || vm.Model >= len(p.catalogue) {
			return fmt.Errorf("VM %d has model %d: the catalogue has %d models", vm.ID, vm.Model, len(p.catalogue))
		}
		b := p.buy(vm.Model, vm.Host)
		p.bins[b].id = vm.ID
		p.next = max(p.next, vm.ID+1)
		for _, part := range vm.Parts {
			if part.Pod < 0 || part.Pod >= len(p.user.Pods) || part.Container >= len(p.user.Pods[part.Pod].Containers) {
				return fmt.Errorf("VM %d has container %d of pod %d, which does not exist", vm.ID, part.Container, part.Pod)
			}
			u := p.first[part.Pod]
			if part.Container >= 0 {
				u = p.of[int(p.start[part.Pod])+part.Container]
			}
			if p.where[u] < 0 {
				p.put(u, b)
			}
			if int(p.where[u]) != b {
				return fmt.Errorf("the plan splits pod %s between containers that must stay together", p.user.Pods[part.Pod].Name)
			}
		}
	}
	for u, b := range p.where {
		if item := p.items[u]; b < 0 && (len(item.containers) > 0 || p.user.Pods[item.pod].Overhead != (cluster.Resources{})) {
			return fmt.Errorf("the plan lacks pod %s or a part of it", p.user.Pods[item.pod].Name)
		}
	}
	p.moves = nil
	return nil
}

// plan returns the plan, with VMs sorted by ID.
func (p *packing) plan() cluster.Plan {
	var out cluster.Plan
	for _, b := range p.bins {
		if b.model < 0 {
			continue
		}
		vm := cluster.VM{ID: b.id, Model: b.model, Host: b.host}
		for _, u := range b.items {
			vm.Parts = append(vm.Parts, p.parts(u)...)
		}
		slices.SortFunc(vm.Parts, comparePart)
		out.VMs = append(out.VMs, vm)
	}
	slices.SortFunc(out.VMs, func(a, b cluster.VM) int { return a.ID - b.ID })
	return out
}

func comparePart(a, b cluster.Part) int {
	return cmp.Or(cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
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

// resizable reports whether the host of the bin has room for the model in its place.
func (p *packing) resizable(b, model int) bool {
	bin := p.bins[b]
	rest := p.hosts[bin.host].Sub(p.catalogue[bin.model].Taken())
	return p.opts.Host == cluster.Resources{} || rest.Add(p.catalogue[model].Taken()).Fits(p.opts.Host)
}

// hostFor returns the first host with room, a new one if there is none.
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
	p.where[u], p.at[u] = int32(b), int32(len(bin.items))
	bin.items = append(bin.items, u)
	bin.used = bin.used.Add(p.items[u].req)
	if bin.pods != nil {
		bin.pods[p.items[u].pod]++
	}
	if r := p.items[u].rules; r != nil {
		bin.guests.Add(p.items[u].pod, r)
	}
}

func (p *packing) remove(u int32) {
	bin := &p.bins[p.where[u]]
	last := bin.items[len(bin.items)-1]
	bin.items[p.at[u]], p.at[last] = last, p.at[u]
	bin.items = bin.items[:len(bin.items)-1]
	bin.used = bin.used.Sub(p.items[u].req)
	if pod := p.items[u].pod; bin.pods != nil {
		if bin.pods[pod]--; bin.pods[pod] == 0 {
			delete(bin.pods, pod)
		}
	}
	if r := p.items[u].rules; r != nil {
		bin.guests.Remove(p.items[u].pod, r)
	}
	p.where[u] = -1
}

func (p *packing) move(u int32, b int) {
	from := p.where[u]
	p.remove(u)
	p.put(u, b)
	p.recordMove(u, int(from), b)
}

func (p *packing) free(b int) cluster.Resources {
	return p.catalogue[p.bins[b].model].Size.Sub(p.bins[b].used)
}

// slots returns how many more pods the bin may hold.
func (p *packing) slots(b int) int32 {
	if most := p.catalogue[p.bins[b].model].Pods; most > 0 {
		return int32(most - len(p.bins[b].pods))
	}
	return math.MaxInt32
}

// requested is the score of the most-requested policy: the mean of CPU and memory requested
// on a bin (footnote 8).
func (p *packing) requested(b int) float64 {
	return relative(p.bins[b].used, p.whole(b, p.opts.Requested)) / 2
}

// wasted is the mean of CPU and memory that nothing on the bin requests.
func (p *packing) wasted(b int) float64 {
	return relative(p.free(b), p.whole(b, p.opts.Wasted)) / 2
}

func (p *packing) whole(b int, s Scale) cluster.Resources {
	if s == OfLargest {
		return p.largest
	}
	return p.catalogue[p.bins[b].model].Size
}

// rank updates the place of the bin in a ranking.
func (p *packing) rank(r *ranking, b int, score func(b int) float64) {
	r.set(b, score(b), p.free(b), p.slots(b))
}

// reachable returns a filter for the bins that an item may move to: those that it may join and
// that are on the host of its pod. nil accepts all. Without a limit of hosts, or if the item is
// a whole pod, hosts do not matter.
func (p *packing) reachable(u int32) func(b int) bool {
	if p.opts.Host == (cluster.Resources{}) || p.alone(u) {
		return p.joins(u)
	}
	host := p.bins[p.where[u]].host
	return both(p.joins(u), func(b int) bool { return p.bins[b].host == host })
}

// shrink replaces the model of a bin by the cheapest that holds its items, or drops an empty
// bin, and reports whether that saves.
func (p *packing) shrink(b int) bool {
	before := p.cost
	if len(p.bins[b].items) == 0 {
		p.drop(b)
		p.recordStep(ActDrop, b, before)
		return true
	}
	model := p.cheapest(p.bins[b].used, len(p.bins[b].pods))
	if p.catalogue[model].Price >= p.catalogue[p.bins[b].model].Price || !p.resizable(b, model) {
		return false
	}
	p.resize(b, model)
	p.recordStep(ActResize, b, before)
	return true
}

// Holds reports whether a plan suits what a user's pods request now: its VMs have room for them,
// and a pod that must be whole is on one VM.
func Holds(u cluster.User, c cluster.Catalogue, plan cluster.Plan) bool {
	p := newPacking(newModelIndex(c), newItems(u, nil), Options{})
	return p.restore(plan) == nil && !slices.ContainsFunc(p.bins, func(b bin) bool { return !b.used.Fits(c[b.model].Size) })
}

// Action is what a step does to a VM.
type Action string

// The actions.
const (
	ActBuy    Action = "buy"    // a VM for the pods of the moves
	ActPlace  Action = "place"  // a pod on a bought VM
	ActDrop   Action = "drop"   // a VM that the moves emptied
	ActResize Action = "resize" // a VM with room for a cheaper model
	ActMove   Action = "move"   // containers, without saving
	ActRepack Action = "repack" // some VMs; Step.VM is the first new one
)

// Step is one change of a plan. It saves Before less After.
type Step struct {
	Action        Action
	VM            int // ID
	Model         int // of the VM after the step, -1: none
	Moves         []Move
	Before, After int64 // cost of the user's VMs, billionths of a dollar for an hour
}

// Move is a part of a pod that goes from one VM to another, by their IDs. From is -1 for a
// part that was not placed before.
type Move struct {
	cluster.Part
	From, To int
}

// recordMove keeps a move for the next step. A bin below 0 is none.
func (p *packing) recordMove(u int32, from, to int) {
	if !p.opts.Explain {
		return
	}
	id := -1
	if from >= 0 {
		id = p.bins[from].id
	}
	for _, part := range p.parts(u) {
		p.moves = append(p.moves, Move{part, id, p.bins[to].id})
	}
}

// recordStep appends a step about a bin, with the moves since the last step.
func (p *packing) recordStep(a Action, b int, before int64) {
	if !p.opts.Explain {
		return
	}
	p.steps = append(p.steps, Step{a, p.bins[b].id, p.bins[b].model, p.moves, before, p.cost})
	p.moves = nil
}
