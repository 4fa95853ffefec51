// Package frontier trades the cost of VMs against the traffic between them: it finds
// plans in which containers that communicate much share a VM.
package frontier

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Choice is a plan with the traffic between its VMs.
type Choice struct {
	pack.Outcome
	Cut float64 // sum of the weights of links between VMs
}

// Limits of Find.
const (
	maxThresholds = 16 // weights
	maxJoined     = 16 // pods
)

// Find returns plans from the cheapest to one that cuts nothing. Each plan costs more than the
// one before, and cuts less. A link between any two containers of a pod has the weight pairs,
// plus the weight of the pod's link between them.
//
// Find joins containers, which then stay on one VM, and packs with pack.BestTogether. First it
// joins containers with links of at least some weight, for up to 16 weights, from all links to
// none. Then it joins all linked containers of up to 16 pods, one pod after the other, each time
// the pod that the plan before cuts most. This is a heuristic: it may miss better plans. The known
// plans are choices too.
func Find(u cluster.User, c cluster.Catalogue, pairs float64, o pack.Options, known ...pack.Outcome) ([]Choice, error) {
	if err := checkLinks(u, pairs); err != nil {
		return nil, err
	}
	f := &finder{catalogue: c, user: u, pairs: pairs, opts: o}
	weights := thresholds(u, pairs)
	for _, least := range weights {
		if err := f.add(joined(u, pairs, least)); err != nil {
			return nil, err
		}
	}
	if err := f.add(nil); err != nil {
		return nil, err
	}
	if len(weights) > 0 {
		if err := f.joinPods(joined(u, pairs, weights[0])); err != nil {
			return nil, err
		}
	}
	for _, k := range known {
		f.all = append(f.all, Choice{k, CutWeight(u, k.Plan, pairs)})
	}
	return pareto(f.all), nil
}

type finder struct {
	catalogue cluster.Catalogue
	user      cluster.User
	pairs     float64
	opts      pack.Options
	all       []Choice
}

// add adds the best packing for some groups. It starts from the plan before, whose groups are
// larger.
func (f *finder) add(groups pack.Groups) error {
	if len(f.all) == 0 {
		return f.pack(groups)
	}
	return f.pack(groups, f.all[len(f.all)-1].Plan)
}

func (f *finder) pack(groups pack.Groups, starts ...cluster.Plan) error {
	out, err := pack.BestTogether(f.user, f.catalogue, f.opts, groups, starts...)
	if err != nil {
		return err
	}
	f.all = append(f.all, Choice{out, CutWeight(f.user, out.Plan, f.pairs)})
	return nil
}

// joinPods joins the groups of the pods that the last plan cuts most, one pod after the other.
// It starts from the first choice, which has all groups joined.
func (f *finder) joinPods(groups pack.Groups) error {
	joined := make([]bool, len(f.user.Pods))
	for range maxJoined {
		cuts := podCuts(f.user, f.all[len(f.all)-1].Plan, f.pairs)
		most := slices.Max(append(cuts, 0))
		if most == 0 {
			return nil
		}
		joined[slices.Index(cuts, most)] = true
		err := f.pack(func(pod int) []int {
			if joined[pod] {
				return groups(pod)
			}
			return nil
		}, f.all[0].Plan)
		if err != nil {
			return err
		}
	}
	return nil
}

func checkLinks(u cluster.User, pairs float64) error {
	if !validWeight(pairs) {
		return fmt.Errorf("weight %v of every pair: want 0 or more", pairs)
	}
	for _, p := range u.Pods {
		for i, l := range p.Links {
			if min(l.A, l.B) < 0 || max(l.A, l.B) >= len(p.Containers) || !validWeight(l.Weight) {
				return fmt.Errorf("user %s: link %d of pod %s: containers %d and %d, weight %v: want containers of the pod and a weight of 0 or more",
					u.Name, i, p.Name, l.A, l.B, l.Weight)
			}
		}
	}
	return nil
}

func validWeight(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

// thresholds returns at most maxThresholds of the weights above 0, evenly spaced and ascending,
// including the lowest and the highest.
func thresholds(u cluster.User, pairs float64) []float64 {
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
	if len(weights) <= maxThresholds {
		return weights
	}
	var some []float64
	for i := range maxThresholds {
		some = append(some, weights[i*(len(weights)-1)/(maxThresholds-1)])
	}
	return some
}

// joined returns groups of containers that links of at least some weight connect.
func joined(u cluster.User, pairs, least float64) pack.Groups {
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

// CutWeight returns the sum of the weights of links between VMs of a plan.
func CutWeight(u cluster.User, plan cluster.Plan, pairs float64) float64 {
	var sum float64
	for _, cut := range podCuts(u, plan, pairs) {
		sum += cut
	}
	return sum
}

// podCuts returns CutWeight of each pod.
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

// pareto returns the choices that no other dominates in cost and cut, cheapest first.
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
