package pack

import (
	"testing"

	"pgregory.net/rapid"

	"unnest/internal/plan/cluster"
)

// Karpenter's plan is valid for whole pods, and not cheaper than the cheapest one.
func TestKarpenterIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DrawCatalogue(t, 4)
		u, _, err := Fit(DrawUser(t, 25), c, Cut)
		if err != nil {
			t.Fatal(err)
		}
		whole := Unsplit(u)
		plan := Karpenter(whole, c)
		if err := Check(whole, c, plan, Options{}); err != nil {
			t.Error(err)
		}
		if len(u.Pods) > 12 {
			return
		}
		best, err := Best(whole, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if Cost(plan, c) < best.Cost {
			t.Errorf("costs %d, the cheapest plan %d", Cost(plan, c), best.Cost)
		}
	})
}

// Pods go to as few VMs as a model holds, of which the last is smaller. After pods have left, a VM
// is removed if its pods fit on the others.
func TestKarpenterByHand(t *testing.T) {
	c := cluster.Catalogue{{Name: "small", Size: cluster.Resources{CPU: 4, Memory: 4}, Price: 4}, {Name: "large", Size: cluster.Resources{CPU: 16, Memory: 16}, Price: 16}}
	u := cluster.User{Name: "u"}
	for range 9 {
		u.Pods = append(u.Pods, cluster.Pod{Containers: []cluster.Container{{Request: cluster.Resources{CPU: 2, Memory: 2}}}})
	}
	if plan := Karpenter(u, c); len(plan.VMs) != 2 || Cost(plan, c) != 20 {
		t.Errorf("9 pods cost %d on %d VMs, want a large and a small one", Cost(plan, c), len(plan.VMs))
	}
	k := &karpenter{modelIndex: newModelIndex(c), user: u, budget: maxJoins}
	k.vms = []karpenterVM{{model: 1, pods: numbers(0, 4), used: cluster.Resources{CPU: 8, Memory: 8}}, {model: 1, pods: numbers(4, 8), used: cluster.Resources{CPU: 8, Memory: 8}}, {model: 1, pods: numbers(8, 9), used: cluster.Resources{CPU: 2, Memory: 2}}}
	if !k.several() || len(k.vms) != 2 || k.vms[1].model != 0 && k.vms[0].model != 0 {
		t.Errorf("three half-empty VMs became %+v", k.vms)
	}
	if k.single() || k.several() {
		t.Errorf("then %+v", k.vms)
	}
}
