package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// Link is how much two containers of a pod talk to each other, in any unit, such as
// messages per second. On different VMs they do so through Hostlo.
type Link struct {
	Pod, A, B int // indices
	Weight    float64
}

// Choice is a plan with what it costs in communication.
type Choice struct {
	Outcome
	Cut float64 // sum of the weights of links between different VMs
}

// mostThresholds bounds how many weights Frontier tries.
const mostThresholds = 16

// Frontier returns plans from the cheapest to the one that cuts least: each costs
// more than the one before, and cuts less. It glues together the containers of all
// links of at least some weight, packs what that leaves with Best, and does so for up
// to 16 weights, from every link glued, which cuts nothing, to none. That is a
// heuristic: between two choices there may be better ones.
func Frontier(u User, c Catalogue, links []Link, o Options) ([]Choice, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return nil, err
	}
	for i, l := range links {
		if l.Pod < 0 || l.Pod >= len(u.Pods) || l.A < 0 || l.B < 0 || max(l.A, l.B) >= len(u.Pods[l.Pod].Containers) || !(l.Weight >= 0) {
			return nil, fmt.Errorf("link %d of user %s: pod %d, containers %d and %d, weight %v: want existing ones and a weight from 0", i, u.Name, l.Pod, l.A, l.B, l.Weight)
		}
	}
	market := newMarket(c)
	var all []Choice
	var starts []Plan
	for _, least := range glueAt(links) {
		out, err := best(market, newCargo(u, glue(u, links, least)), o, starts)
		if err != nil {
			return nil, err
		}
		starts = []Plan{out.Plan} // what is glued less may stay where it is
		all = append(all, Choice{out, CutWeight(u, out.Plan, links)})
	}
	out, err := best(market, newCargo(u, nil), o, starts)
	if err != nil {
		return nil, err
	}
	return pareto(append(all, Choice{out, CutWeight(u, out.Plan, links)})), nil
}

// glueAt returns at most mostThresholds of the weights, evenly among them, the
// lowest and the highest included, lowest first.
func glueAt(links []Link) []float64 {
	var weights []float64
	for _, l := range links {
		if l.Weight > 0 {
			weights = append(weights, l.Weight)
		}
	}
	slices.Sort(weights)
	weights = slices.Compact(weights)
	if len(weights) <= mostThresholds {
		return weights
	}
	var some []float64
	for i := range mostThresholds {
		some = append(some, weights[i*(len(weights)-1)/(mostThresholds-1)])
	}
	return some
}

// glue returns groups of containers that links of at least so much connect.
func glue(u User, links []Link, least float64) groups {
	set := make([][]int, len(u.Pods)) // union-find by pod
	for i, p := range u.Pods {
		for k := range p.Containers {
			set[i] = append(set[i], k)
		}
	}
	root := func(pod, k int) int {
		for set[pod][k] != k {
			set[pod][k] = set[pod][set[pod][k]]
			k = set[pod][k]
		}
		return k
	}
	for _, l := range links {
		if l.Weight >= least {
			set[l.Pod][root(l.Pod, l.B)] = root(l.Pod, l.A)
		}
	}
	return func(pod int) []int {
		group := make([]int, len(set[pod]))
		for k := range group {
			group[k] = root(pod, k)
		}
		return group
	}
}

// CutWeight returns the sum of the weights of links between different VMs of a plan.
func CutWeight(u User, plan Plan, links []Link) float64 {
	on := make([][]int, len(u.Pods))
	for i, p := range u.Pods {
		on[i] = make([]int, len(p.Containers))
	}
	for i, vm := range plan.VMs {
		for _, part := range vm.Parts {
			if part.Container >= 0 {
				on[part.Pod][part.Container] = i
			}
		}
	}
	var sum float64
	for _, l := range links {
		if on[l.Pod][l.A] != on[l.Pod][l.B] {
			sum += l.Weight
		}
	}
	return sum
}

// pareto returns the choices that no other beats in cost and cut, cheapest first.
func pareto(all []Choice) []Choice {
	slices.SortStableFunc(all, func(a, b Choice) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Cut, b.Cut))
	})
	var front []Choice
	for _, c := range all {
		if len(front) == 0 || c.Cut < front[len(front)-1].Cut {
			front = append(front, c)
		}
	}
	return front
}
