package costing

import (
	"fmt"
	"slices"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
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
		want []int
	}{
		{[]cluster.VM{vm(0, 0, 1), vm(0, 2, 3), vm(1, 4)}, nil},
		{[]cluster.VM{vm(0, 0, 1, 2, 3), vm(1, 4)}, []int{2, 3}},
		{[]cluster.VM{vm(0, 0), vm(0, 1, 2, 3, 4)}, []int{1, 4}},
		{[]cluster.VM{vm(1, 0, 1, 2, 3, 4)}, []int{0, 1, 2, 3}},
	} {
		if got := moves(u, cluster.Plan{VMs: c.vms}, models, modelOf); !slices.Equal(got, c.want) {
			t.Errorf("%+v: moves %v, want %v", c.vms, got, c.want)
		}
	}
}

// A budget that lets two pods go at a time needs three rounds for five. One that lets none go, and
// two for one pod, forbid the step today.
func TestRounds(t *testing.T) {
	two, none, other := &cluster.Budget{Name: "shop/two", Allowed: 2}, &cluster.Budget{Name: "shop/none"}, &cluster.Budget{Name: "shop/other", Allowed: 5}
	var u cluster.User
	for _, budgets := range [][]*cluster.Budget{{two}, {two}, {two}, {two}, {two}, {other}, {none}, {two, other}, nil} {
		u.Pods = append(u.Pods, cluster.Pod{Origin: &cluster.Origin{Budgets: budgets}})
	}
	for _, c := range []struct {
		moved []int
		want  string
	}{{nil, "0 []"}, {[]int{8}, "0 []"}, {[]int{0, 1, 5, 8}, "1 []"}, {[]int{0, 1, 2, 3, 4, 5}, "3 []"}, {[]int{0, 6}, "1 [shop/none]"}, {[]int{7}, "0 [shop/other shop/two]"}} {
		n, blocked := rounds(u, c.moved)
		if got := fmt.Sprint(n, " ", blocked); got != c.want {
			t.Errorf("pods %v: %s, want %s", c.moved, got, c.want)
		}
	}
}
