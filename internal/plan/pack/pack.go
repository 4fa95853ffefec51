// Package pack places the pods of a user on VMs, at the lowest cost that it finds: as
// Kubernetes does (Kubernetes), with containers moved between VMs (Hostlo), with a pod on
// several new VMs (Spread), and with the best packing it finds (Best). It follows Bacou
// et al., Nested Virtualization Without the Nest, ICPP 2019, §5.3.1, where that is
// specified; Options are its open choices.
//
// The same input always gives the same plan.
package pack

import (
	"slices"
)

// load is a VM to buy, with the items to put on it.
type load struct {
	model int
	items []int32
}

// Limits on the number of items, above which cruder methods take over.
const (
	maxExactUser = 15   // a whole user, packed exactly
	maxExact     = 9    // items of some VMs, packed exactly
	maxDot       = 200  // greedy by dot product
	maxGreedy    = 4000 // greedy in order
)

// pack returns the cheapest VMs it finds for the items. It ignores hosts. It subtracts the
// items it looks at from the budget, and uses cruder methods once that is spent.
func (p *packing) pack(items []int32, budget *int) []load {
	if len(items) <= maxExact {
		return p.packExactly(items, budget)
	}
	items = p.smallestFirst(items)
	slices.Reverse(items)
	best := p.packOne(items)
	for _, loads := range p.attempts(items, budget) {
		if best == nil || p.price(loads) < p.price(best) {
			best = loads
		}
	}
	return best
}

// attempts packs the items, biggest first, in at least one way.
func (p *packing) attempts(items []int32, budget *int) [][]load {
	var all [][]load
	for _, way := range []struct {
		most int
		fill fill
	}{{maxDot, p.fillByDot}, {maxGreedy, p.fillInOrder}} {
		if len(items) > way.most || *budget <= 0 {
			continue
		}
		if loads := p.greedy(items, budget, way.fill); loads != nil {
			all = append(all, loads)
		}
	}
	for _, model := range slices.Backward(p.byPrice) {
		if len(all) > 0 && *budget <= 0 {
			break
		}
		all = append(all, p.bestFit(items, model, budget))
	}
	return all
}

func (p *packing) price(loads []load) int64 {
	var sum int64
	for _, l := range loads {
		sum += p.catalogue[l.model].Price
	}
	return sum
}

// podsOf returns the number of pods of the items, 1 if no model limits pods.
func (p *packing) podsOf(items []int32) int {
	if !p.limited {
		return 1
	}
	pods := map[int32]bool{}
	for _, u := range items {
		pods[p.items[u].pod] = true
	}
	return len(pods)
}

// packOne returns one VM for all items, nil if no model holds them.
func (p *packing) packOne(items []int32) []load {
	model := p.cheapest(p.request(items), p.podsOf(items))
	if model < 0 || !p.together(items) {
		return nil
	}
	return []load{{model, items}}
}
