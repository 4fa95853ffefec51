package costing

import "unnest/internal/plan/cluster"

// moves returns how many pods of a plan of whole pods are not where they are today. Each VM of the
// plan is the node of its model with most of its pods, among those that no VM before it is.
func moves(u cluster.User, plan cluster.Plan, models cluster.Catalogue, modelOf map[string]string) int {
	stay, taken := 0, map[string]bool{}
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
			stay += on[best]
		}
	}
	return len(u.Pods) - stay
}
