// Package frontier trades the cost of VMs against the traffic between them: it finds
// plans in which containers that communicate much share a VM.
package frontier

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
)

// Choice is a plan with what it costs in communication.
type Choice struct {
	pack.Outcome
	Cut float64 // sum of the weights of links between different VMs
}

// mostThresholds bounds how many weights Frontier tries.
const mostThresholds = 16

// Find returns plans from the cheapest to the one that cuts least, which cuts
// nothing: each costs more than the one before, and cuts less. Every two containers
// of a pod are linked by the weight pairs, and beside that by the links of the pod. It
// glues together the containers of all links of at least some weight, packs what that
// leaves with Best, and does so for up to 16 weights, from every link glued to none.
// From there it glues all links of up to 16 pods, one after the other, each the one
// that the plan before cuts most. That is a heuristic: between two choices there may be better
// ones.
func Find(u cluster.User, c cluster.Catalogue, pairs float64, o pack.Options) ([]Choice, error) {
	if err := checkLinks(u, pairs); err != nil {
		return nil, err
	}
	f := &frontier{catalogue: c, user: u, pairs: pairs, opts: o}
	weights := glueAt(u, pairs)
	for _, least := range weights {
		if err := f.try(glue(u, pairs, least)); err != nil {
			return nil, err
		}
	}
	if err := f.try(nil); err != nil {
		return nil, err
	}
	if len(weights) > 0 {
		if err := f.mend(glue(u, pairs, weights[0])); err != nil {
			return nil, err
		}
	}
	return pareto(f.all), nil
}

// frontier is a user's choices while they are found.
type frontier struct {
	catalogue cluster.Catalogue
	user      cluster.User
	pairs     float64
	opts      pack.Options
	all       []Choice
}

// try packs what the glue leaves. What was glued more may stay where it is.
func (f *frontier) try(glue pack.Groups) error {
	var starts []cluster.Plan
	if len(f.all) > 0 {
		starts = []cluster.Plan{f.all[len(f.all)-1].Plan}
	}
	return f.pack(glue, starts)
}

func (f *frontier) pack(glue pack.Groups, starts []cluster.Plan) error {
	out, err := pack.BestTogether(f.user, f.catalogue, f.opts, glue, starts...)
	if err != nil {
		return err
	}
	f.all = append(f.all, Choice{out, CutWeight(f.user, out.Plan, f.pairs)})
	return nil
}

// mostMended bounds how many pods are glued one after the other.
const mostMended = 16

// mend glues the pods that the last plan cuts most, one after the other. The first
// choice has all of them glued.
func (f *frontier) mend(glue pack.Groups) error {
	glued := make([]bool, len(f.user.Pods))
	for range mostMended {
		cuts := podCuts(f.user, f.all[len(f.all)-1].Plan, f.pairs)
		most := slices.Max(append(cuts, 0))
		if most == 0 {
			return nil
		}
		glued[slices.Index(cuts, most)] = true
		err := f.pack(func(pod int) []int {
			if glued[pod] {
				return glue(pod)
			}
			return nil
		}, []cluster.Plan{f.all[0].Plan})
		if err != nil {
			return err
		}
	}
	return nil
}

func checkLinks(u cluster.User, pairs float64) error {
	if !weighs(pairs) {
		return fmt.Errorf("every pair has the weight %v: want one from 0", pairs)
	}
	for _, p := range u.Pods {
		for i, l := range p.Links {
			if min(l.A, l.B) < 0 || max(l.A, l.B) >= len(p.Containers) || !weighs(l.Weight) {
				return fmt.Errorf("user %s: link %d of pod %s: containers %d and %d, weight %v: want existing ones and a weight from 0",
					u.Name, i, p.Name, l.A, l.B, l.Weight)
			}
		}
	}
	return nil
}

func weighs(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

// glueAt returns at most mostThresholds of the weights above 0, evenly among them, the
// lowest and the highest included, lowest first.
func glueAt(u cluster.User, pairs float64) []float64 {
	var weights []float64
	if pairs > 0 {
		weights = append(weights, pairs)
	}
	for _, p := range u.Pods {
		for _, l := range p.Links {
			if w := pairs + l.Weight; w > 0 {
				weights = append(weights, w)
			}
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
func glue(u cluster.User, pairs, least float64) pack.Groups {
	return func(pod int) []int {
		p := u.Pods[pod]
		if pairs >= least {
			return make([]int, len(p.Containers))
		}
		group := make([]int, len(p.Containers)) // union-find
		for k := range group {
			group[k] = k
		}
		root := func(k int) int {
			for group[k] != k {
				group[k] = group[group[k]]
				k = group[k]
			}
			return k
		}
		for _, l := range p.Links {
			if pairs+l.Weight >= least {
				group[root(l.B)] = root(l.A)
			}
		}
		for k := range group {
			group[k] = root(k)
		}
		return group
	}
}

// CutWeight returns the sum of the weights of links between different VMs of a plan,
// where every two containers of a pod are linked by pairs beside the pod's links.
func CutWeight(u cluster.User, plan cluster.Plan, pairs float64) float64 {
	var sum float64
	for _, cut := range podCuts(u, plan, pairs) {
		sum += cut
	}
	return sum
}

// podCuts returns that sum for each pod.
func podCuts(u cluster.User, plan cluster.Plan, pairs float64) []float64 {
	on := make([][]int, len(u.Pods)) // VM of each container
	for i, p := range u.Pods {
		on[i] = make([]int, len(p.Containers))
	}
	together := make([]int64, len(u.Pods)) // ordered pairs on one VM
	for i, vm := range plan.VMs {
		count := map[int]int64{}
		for _, part := range vm.Parts {
			if part.Container >= 0 {
				on[part.Pod][part.Container] = i
				count[part.Pod]++
			}
		}
		for pod, n := range count {
			together[pod] += n * n
		}
	}
	cuts := make([]float64, len(u.Pods))
	for i, p := range u.Pods {
		n := int64(len(p.Containers))
		cuts[i] = float64(pairs * float64((n*n-together[i])/2))
		for _, l := range p.Links {
			if on[i][l.A] != on[i][l.B] {
				cuts[i] += l.Weight
			}
		}
	}
	return cuts
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
