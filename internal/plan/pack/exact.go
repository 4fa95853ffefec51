package pack

import (
	"math/bits"

	"unnest.io/unnest/internal/plan/cluster"
)

// packExactly returns the cheapest VMs for a few items, by dynamic programming over their
// subsets.
func (p *packing) packExactly(items []int32, budget *int) []load {
	sets := 1 << len(items)
	model := p.modelsOf(items) // that holds a set on one VM
	price := make([]int64, sets)
	last := make([]int, sets) // items on the VM with the set's first item
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
	var loads []load
	for set := sets - 1; set > 0; set ^= last[set] {
		l := load{model[last[set]], chosen(items, last[set])}
		loads = append(loads, l)
	}
	return loads
}

func chosen(items []int32, set int) (some []int32) {
	for ; set > 0; set &= set - 1 {
		some = append(some, items[bits.TrailingZeros(uint(set))])
	}
	return some
}

// modelsOf returns for each subset of a few items the cheapest model that holds it, -1 if
// there is none.
func (p *packing) modelsOf(items []int32) []int {
	index := map[int32]int{}
	bit := make([]uint64, len(items)) // of each item's pod
	for i, u := range items {
		pod := p.items[u].pod
		if _, known := index[pod]; !known {
			index[pod] = len(index)
		}
		bit[i] = 1 << index[pod]
	}
	clash := make([]uint, len(items)) // items that must not be with an item
	for i, u := range items {
		for k, v := range items {
			if a, b := p.items[u], p.items[v]; a.pod != b.pod && a.rules.Clash(b.rules) {
				clash[i] |= 1 << k
			}
		}
	}
	model := make([]int, 1<<len(items))
	req := make([]cluster.Resources, len(model))
	pods := make([]uint64, len(model))
	for set := 1; set < len(model); set++ {
		i, rest := bits.TrailingZeros(uint(set)), set&(set-1)
		req[set] = req[rest].Add(p.items[items[i]].req)
		pods[set] = pods[rest] | bit[i]
		if model[rest] < 0 || clash[i]&uint(rest) != 0 || len(p.user.Limits) > 0 && !p.together(chosen(items, set)) {
			model[set] = -1 // no more than a part of it
			continue
		}
		model[set] = p.cheapest(req[set], bits.OnesCount64(pods[set]))
	}
	return model
}
