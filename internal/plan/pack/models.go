package pack

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// modelIndex is the models of a catalogue, with values derived from them.
type modelIndex struct {
	catalogue cluster.Catalogue
	byPrice   []int             // cheapest first, then smallest
	largest   cluster.Resources // of all models, for each resource
	limited   bool              // some model limits its pods
	step      int64             // greatest common divisor of the prices
	rate      [2]float64        // lowest price of a billionth of a vCPU, and of a byte
}

func newModelIndex(c cluster.Catalogue) modelIndex {
	m := modelIndex{catalogue: c, rate: [2]float64{math.Inf(1), math.Inf(1)}}
	for i, model := range c {
		m.step = new(big.Int).GCD(nil, nil, big.NewInt(m.step), big.NewInt(model.Price)).Int64()
		m.rate[0] = min(m.rate[0], float64(model.Price)/float64(max(1, model.Size.CPU)))
		m.rate[1] = min(m.rate[1], float64(model.Price)/float64(max(1, model.Size.Memory)))
		m.byPrice = append(m.byPrice, i)
		m.largest.CPU = max(m.largest.CPU, model.Size.CPU)
		m.largest.Memory = max(m.largest.Memory, model.Size.Memory)
		m.limited = m.limited || model.Pods > 0
	}
	slices.SortStableFunc(m.byPrice, func(a, b int) int {
		return cmp.Or(cmp.Compare(c[a].Price, c[b].Price), cmp.Compare(c[a].Size.CPU, c[b].Size.CPU))
	})
	return m
}

// cheapest returns the cheapest model that holds the request of so many pods, -1 if
// there is none.
func (m modelIndex) cheapest(req cluster.Resources, pods int) int {
	for _, i := range m.byPrice {
		if model := m.catalogue[i]; req.Fits(model.Size) && (model.Pods == 0 || pods <= model.Pods) {
			return i
		}
	}
	return -1
}

// floor returns a lower bound of the price of VMs for the request: each resource at its
// lowest price, at least the cheapest model, rounded up to a multiple of the step.
func (m modelIndex) floor(req cluster.Resources) int64 {
	least := int64(max(m.rate[0]*float64(req.CPU), m.rate[1]*float64(req.Memory)) * (1 - 1e-9))
	least = max(least, m.catalogue[m.byPrice[0]].Price)
	if m.step > 0 {
		least += (m.step - least%m.step) % m.step
	}
	return least
}

// size is the paper's size of a pod or container: the sum of CPU and memory
// relative to the largest model (footnote 7).
func (m modelIndex) size(r cluster.Resources) float64 { return relative(r, m.largest) }

// relative is the sum of both resources relative to those of a whole.
func relative(r, whole cluster.Resources) float64 {
	return share(r.CPU, whole.CPU) + share(r.Memory, whole.Memory)
}

func share(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
