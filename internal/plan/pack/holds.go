package pack

import (
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Holds reports whether the VMs of a plan have room for a user's pods, which the plan places, but
// which may request something else than those that it was made for.
func Holds(u cluster.User, c cluster.Catalogue, plan cluster.Plan) bool {
	return !slices.ContainsFunc(plan.VMs, func(vm cluster.VM) bool {
		var used cluster.Resources
		for _, part := range vm.Parts {
			if part.Container < 0 {
				used = used.Add(u.Pods[part.Pod].Overhead)
			} else {
				used = used.Add(u.Pods[part.Pod].Containers[part.Container].Request)
			}
		}
		return !used.Fits(c[vm.Model].Size)
	})
}
