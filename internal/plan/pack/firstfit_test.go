package pack

import (
	"testing"

	"unnest/internal/plan/cluster"
)

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
		if got := FirstFitDecreasing(cluster.User{Pods: tt.pods}, c); got != tt.want {
			t.Errorf("%d pods: got %d, want %d", len(tt.pods), got, tt.want)
		}
	}
}
