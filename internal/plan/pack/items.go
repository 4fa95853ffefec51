package pack

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"unnest/internal/plan/cluster"
)

// unit is what is placed as one: a container, with the pod's overhead if it is the
// pod's first; all of a pod that must not be split; or containers glued together.
type unit struct {
	pod        int32
	overhead   bool
	containers []int32
	req        cluster.Resources
}

// Groups returns a group number for each container of a pod. Containers with equal
// numbers stay on one VM. A nil slice puts every container into a group of its own.
type Groups func(pod int) []int

// cargo is all units of a user, by pod.
type cargo struct {
	user  cluster.User
	units []unit
	first []int32 // of each pod, and behind the last
	of    []int32 // unit of each container, by start
	start []int32 // of each pod's containers in of
}

// newCargo cuts the pods of a user into units. Whole pods are one unit each.
func newCargo(u cluster.User, glue Groups) *cargo {
	total := 0
	for _, p := range u.Pods {
		total += len(p.Containers)
	}
	c := &cargo{user: u, units: make([]unit, 0, total+1), of: make([]int32, total)}
	backing := make([]int32, 0, total)
	start := int32(0)
	for i, p := range u.Pods {
		c.first = append(c.first, int32(len(c.units)))
		c.start = append(c.start, start)
		backing = c.cut(i, p, podGroups(i, p, glue), backing)
		start += int32(len(p.Containers))
	}
	c.first = append(c.first, int32(len(c.units)))
	return c
}

// podGroups returns the group of each container; nil: each is one.
func podGroups(i int, p cluster.Pod, glue Groups) []int {
	if p.Whole {
		return make([]int, len(p.Containers))
	}
	if glue == nil {
		return nil
	}
	return glue(i)
}

// cut appends the units of pod i. The containers of a unit are in backing.
func (c *cargo) cut(i int, p cluster.Pod, group []int, backing []int32) []int32 {
	from := len(c.units)
	index := map[int]int32{} // group -> unit
	for k := range p.Containers {
		u := int32(len(c.units))
		if group != nil {
			known, ok := index[group[k]]
			if !ok {
				index[group[k]] = u
			} else {
				u = known
			}
		}
		if int(u) == len(c.units) {
			c.units = append(c.units, unit{pod: int32(i)})
		}
		c.of[int(c.start[i])+k] = u
		c.units[u].req = c.units[u].req.Add(p.Containers[k].Request)
	}
	backing = c.list(i, len(p.Containers), from, backing)
	if from == len(c.units) {
		c.units = append(c.units, unit{pod: int32(i)})
	}
	c.units[from].overhead = true
	c.units[from].req = c.units[from].req.Add(p.Overhead)
	return backing
}

// list tells each unit of pod i, which begin with from, its containers, of which
// there are n, and appends them to backing.
func (c *cargo) list(i, n, from int, backing []int32) []int32 {
	at := len(backing)
	backing = backing[:at+n]
	of := c.of[c.start[i]:][:n]
	members := make([]int, len(c.units)-from)
	for _, u := range of {
		members[int(u)-from]++
	}
	for u, count := range members {
		c.units[from+u].containers = backing[at : at : at+count]
		at += count
	}
	for k, u := range of {
		c.units[u].containers = append(c.units[u].containers, int32(k))
	}
	return backing
}

// podUnits returns the units of a pod.
func (c *cargo) podUnits(pod int32) []int32 {
	units := make([]int32, c.first[pod+1]-c.first[pod])
	for i := range units {
		units[i] = c.first[pod] + int32(i)
	}
	return units
}

// alone reports whether the unit is all of its pod.
func (c *cargo) alone(u int32) bool {
	pod := c.units[u].pod
	return c.first[pod+1]-c.first[pod] == 1
}

// parts returns what a plan lists for the unit.
func (c *cargo) parts(u int32) []cluster.Part {
	unit := c.units[u]
	var parts []cluster.Part
	pod := int(unit.pod)
	if unit.overhead && c.user.Pods[pod].Overhead != (cluster.Resources{}) {
		parts = append(parts, cluster.Part{Pod: pod, Container: -1})
	}
	for _, k := range unit.containers {
		parts = append(parts, cluster.Part{Pod: pod, Container: int(k)})
	}
	return parts
}

// market is what is on sale, with what follows from it.
type market struct {
	catalogue cluster.Catalogue
	byPrice   []int             // cheapest first, then smallest
	largest   cluster.Resources // the most of each resource that any model has
	limited   bool              // some model limits its pods
	grain     int64             // every price is a multiple of it
	rate      [2]float64        // least price of a billionth of a vCPU, and of a byte
}

func newMarket(c cluster.Catalogue) market {
	m := market{catalogue: c, rate: [2]float64{math.Inf(1), math.Inf(1)}}
	for i, model := range c {
		m.grain = new(big.Int).GCD(nil, nil, big.NewInt(m.grain), big.NewInt(model.Price)).Int64()
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

// cheapest returns the cheapest model that holds so much of so many pods, -1 if
// there is none.
func (m market) cheapest(req cluster.Resources, pods int) int {
	for _, i := range m.byPrice {
		if model := m.catalogue[i]; req.Fits(model.Size) && (model.Pods == 0 || pods <= model.Pods) {
			return i
		}
	}
	return -1
}

// floor returns a price that no VMs for so much can beat: of each resource, at the
// price of the model where it is cheapest; of the cheapest model; and a multiple of
// what all prices are multiples of.
func (m market) floor(req cluster.Resources) int64 {
	least := int64(max(m.rate[0]*float64(req.CPU), m.rate[1]*float64(req.Memory)) * (1 - 1e-9))
	least = max(least, m.catalogue[m.byPrice[0]].Price)
	if m.grain > 0 {
		least += (m.grain - least%m.grain) % m.grain
	}
	return least
}

// size is the paper's size of a pod or container: the sum of CPU and memory
// relative to the largest model (footnote 7).
func (m market) size(r cluster.Resources) float64 { return relative(r, m.largest) }

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
