package pack

import (
	"cmp"
	"slices"

	"unnest/internal/plan/cluster"
)

// FirstFitDecreasing returns the cost of a user's pods as the cluster autoscaler packs them
// (kubernetes/autoscaler, cluster-autoscaler/estimator, binpacking_estimator.go). It uses VMs
// of one model, and places whole pods, biggest first by the sum of CPU and memory relative to
// the VM, each on the first VM with room. It returns the lowest cost over all models, as the
// price expander chooses, and 0 if no model holds every pod.
func FirstFitDecreasing(u cluster.User, c cluster.Catalogue) int64 {
	var least int64 = -1
	for _, m := range c {
		if n := firstFit(u, m); n >= 0 && (least < 0 || int64(n)*m.Price < least) {
			least = int64(n) * m.Price
		}
	}
	return max(least, 0)
}

// firstFit returns how many VMs of a model hold the pods, -1 if one is too large.
func firstFit(u cluster.User, m cluster.Model) int {
	requests := make([]cluster.Resources, len(u.Pods))
	for i, p := range u.Pods {
		requests[i] = p.Request()
	}
	size := func(r cluster.Resources) float64 {
		return float64(r.CPU)/float64(m.Size.CPU) + float64(r.Memory)/float64(m.Size.Memory)
	}
	slices.SortStableFunc(requests, func(a, b cluster.Resources) int { return cmp.Compare(size(b), size(a)) })
	type vm struct {
		free cluster.Resources
		pods int
	}
	var vms []vm
	for _, r := range requests {
		if !r.Fits(m.Size) {
			return -1
		}
		at := slices.IndexFunc(vms, func(v vm) bool { return r.Fits(v.free) && (m.Pods == 0 || v.pods < m.Pods) })
		if at < 0 {
			at, vms = len(vms), append(vms, vm{free: m.Size})
		}
		vms[at].free, vms[at].pods = vms[at].free.Sub(r), vms[at].pods+1
	}
	return len(vms)
}
