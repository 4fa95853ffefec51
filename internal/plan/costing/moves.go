package costing

import (
	"maps"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// moves returns the pods of a plan of whole pods that are not where they are today. Each VM of the
// plan is the node of its model with most of its pods, among those that no VM before it is.
func moves(u cluster.User, plan cluster.Plan, models cluster.Catalogue, modelOf map[string]string) (moved []int) {
	stay, taken := map[int]bool{}, map[string]bool{}
	for _, vm := range plan.VMs {
		on, seen := map[string]int{}, map[int]bool{}
		best := ""
		for _, part := range vm.Parts {
			o := u.Pods[part.Pod].Origin
			if o == nil || seen[part.Pod] || taken[o.Node] || modelOf[o.Node] != models[vm.Model].Name {
				continue
			}
			seen[part.Pod] = true
			if on[o.Node]++; on[o.Node] > on[best] || on[o.Node] == on[best] && o.Node < best {
				best = o.Node
			}
		}
		if best != "" {
			taken[best] = true
			for pod := range seen {
				stay[pod] = stay[pod] || u.Pods[pod].Origin.Node == best
			}
		}
	}
	for pod := range u.Pods {
		if !stay[pod] {
			moved = append(moved, pod)
		}
	}
	return moved
}

// rounds returns in how many rounds, at least, disruption budgets let the pods move, if those of a
// round are ready again before the next; 0: no budget limits them. The budgets that let none of
// them move, by name, do not count. Kubernetes refuses to evict a pod of several budgets.
func rounds(u cluster.User, moved []int) (most int, blocked []string) {
	pods, none := map[*cluster.Budget]int{}, map[string]bool{}
	for _, pod := range moved {
		o := u.Pods[pod].Origin
		if o == nil {
			continue
		}
		for _, b := range o.Budgets {
			if b.Allowed == 0 || len(o.Budgets) > 1 {
				none[b.Name] = true
				continue
			}
			pods[b]++
		}
	}
	for b, n := range pods {
		most = max(most, (n+b.Allowed-1)/b.Allowed)
	}
	return most, slices.Sorted(maps.Keys(none))
}
