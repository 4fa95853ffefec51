package costing

import (
	"cmp"
	"slices"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
)

// firstFitDecreasing returns the cost of a user's pods as the cluster autoscaler packs them
// (kubernetes/autoscaler, cluster-autoscaler/estimator, binpacking_estimator.go). It uses VMs
// of one model, and places whole pods, biggest first by the sum of CPU and memory relative to
// the VM, each on the first VM with room. It returns the lowest cost over all models, as the
// price expander chooses, and 0 if no model holds every pod.
func firstFitDecreasing(u cluster.User, c cluster.Catalogue) int64 {
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

// Three pods of 3 vCPU, and 1 vCPU: one model of 4 holds them on three VMs, one of 8
// on two.
func TestFirstFitDecreasing(t *testing.T) {
	pod := func(cpu int64) cluster.Pod {
		return cluster.Pod{Containers: []cluster.Container{{Request: cluster.Resources{CPU: cpu, Memory: cpu}}}}
	}
	c := cluster.Catalogue{
		{Name: "small", Size: cluster.Resources{CPU: 2, Memory: 2}, Price: 1},
		{Name: "four", Size: cluster.Resources{CPU: 4, Memory: 4}, Price: 10},
		{Name: "eight", Size: cluster.Resources{CPU: 8, Memory: 8}, Price: 16},
		{Name: "single", Size: cluster.Resources{CPU: 8, Memory: 8}, Price: 9, Pods: 1},
	}
	tests := []struct {
		pods []cluster.Pod
		want int64
	}{
		{[]cluster.Pod{pod(1), pod(3), pod(3), pod(3)}, 30},
		{[]cluster.Pod{pod(3), pod(3), pod(3), pod(3)}, 32},
		{[]cluster.Pod{pod(3)}, 9},
		{[]cluster.Pod{pod(9)}, 0},
		{nil, 0},
	}
	for _, tt := range tests {
		if got := firstFitDecreasing(cluster.User{Pods: tt.pods}, c); got != tt.want {
			t.Errorf("%d pods: got %d, want %d", len(tt.pods), got, tt.want)
		}
	}
}
