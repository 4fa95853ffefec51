package costing

import (
	"testing"

	"unnest/internal/plan/cluster"
)

// Pods that stay on a VM of the model of their node do not move. A node is one VM.
func TestMoves(t *testing.T) {
	modelOf := map[string]string{"a": "large", "b": "large", "c": "small"}
	var u cluster.User
	for _, node := range []string{"a", "a", "b", "b", "c"} {
		u.Pods = append(u.Pods, cluster.Pod{Origin: &cluster.Origin{Node: node}, Containers: make([]cluster.Container, 2)})
	}
	vm := func(model int, pods ...int) (v cluster.VM) {
		v.Model = model
		for _, p := range pods {
			v.Parts = append(v.Parts, cluster.Part{Pod: p}, cluster.Part{Pod: p, Container: 1})
		}
		return v
	}
	models := cluster.Catalogue{{Name: "large"}, {Name: "small"}}
	for _, c := range []struct {
		vms  []cluster.VM
		want int
	}{
		{[]cluster.VM{vm(0, 0, 1), vm(0, 2, 3), vm(1, 4)}, 0},
		{[]cluster.VM{vm(0, 0, 1, 2, 3), vm(1, 4)}, 2},
		{[]cluster.VM{vm(0, 0), vm(0, 1, 2, 3, 4)}, 2},
		{[]cluster.VM{vm(1, 0, 1, 2, 3, 4)}, 4},
	} {
		if got := moves(u, cluster.Plan{VMs: c.vms}, models, modelOf); got != c.want {
			t.Errorf("%+v: %d moves, want %d", c.vms, got, c.want)
		}
	}
}
