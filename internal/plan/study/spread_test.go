package study

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Plans of users with a spread over their VMs are legal, and the bound is at most the cheapest legal
// placement of whole pods, which all partitions are tried for.
func TestSpreadsAreLegal(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	raisedPlans := 0
	for i := range 400 {
		size := func() cluster.Resources { return cluster.Resources{CPU: 1 + rng.Int64N(4), Memory: 1 + rng.Int64N(4)} }
		c := cluster.Catalogue{{Name: "small", Size: cluster.Resources{CPU: 5, Memory: 5}, Price: 10}, {Name: "large", Size: cluster.Resources{CPU: 11, Memory: 11}, Price: 15 + rng.Int64N(10)}}
		u := cluster.User{Name: fmt.Sprint(i)}
		spread := int64(0)
		for p := range 2 + rng.IntN(5) {
			pod := cluster.Pod{Name: fmt.Sprint("p", p), Whole: true, Containers: []cluster.Container{{Name: "c", Request: size()}}}
			if rng.IntN(3) > 0 {
				spread++
				pod.Rules = &cluster.Rules{Takes: []cluster.Take{{Amount: 1}}}
			}
			u.Pods = append(u.Pods, pod)
		}
		skew := 1 + rng.Int64N(2)
		u.Limits = []cluster.Limit{{Name: "spread", Most: skew, Skew: skew, Legal: skew + spread, MinDomains: rng.IntN(3)}}
		s, low, err := Of(u, c, pack.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for name, o := range map[string]pack.Outcome{"whole": s.Whole, "best": s.Best} {
			if !legal(u, o.Plan) {
				t.Fatalf("%s of %+v is not legal: %+v", name, u, o.Plan)
			}
		}
		if !u.Within(s.Whole.Plan) {
			raisedPlans++
		}
		if best := cheapest(u, c); low > best || s.Whole.Cost < best {
			t.Fatalf("bound %d, whole pods %d, cheapest %d: %+v", low, s.Whole.Cost, best, u)
		}
	}
	if raisedPlans == 0 {
		t.Error("no plan has more of a spread on a VM than the skew")
	}
}

// legal reports whether each pod could be where it is, with the others in place.
func legal(u cluster.User, p cluster.Plan) bool {
	l := u.Limits[0]
	counts := make([]int64, len(p.VMs))
	for i, vm := range p.VMs {
		for _, part := range vm.Parts {
			if u.Pods[part.Pod].Rules != nil {
				counts[i]++
			}
		}
	}
	for i, n := range counts {
		if n == 0 {
			continue
		}
		least := n - 1 // without the pod
		for k, other := range counts {
			if k != i {
				least = min(least, other)
			}
		}
		if len(counts) < l.MinDomains {
			least = 0
		}
		if n-least > l.Skew {
			return false
		}
	}
	return true
}

// cheapest returns the cost of the cheapest legal placement of whole pods.
func cheapest(u cluster.User, c cluster.Catalogue) int64 {
	best := int64(math.MaxInt64)
	var try func(pod int, plan cluster.Plan)
	try = func(pod int, plan cluster.Plan) {
		if pod == len(u.Pods) {
			if !legal(u, plan) {
				return
			}
			var sum int64
			for _, vm := range plan.VMs {
				var used cluster.Resources
				for _, part := range vm.Parts {
					used = used.Add(u.Pods[part.Pod].Request())
				}
				price := int64(math.MaxInt32)
				for _, m := range c {
					if used.Fits(m.Size) {
						price = min(price, m.Price)
					}
				}
				sum += price
			}
			best = min(best, sum)
			return
		}
		for i := range len(plan.VMs) + 1 {
			var next cluster.Plan
			for k, vm := range plan.VMs {
				vm.Parts = append([]cluster.Part{}, vm.Parts...)
				if k == i {
					vm.Parts = append(vm.Parts, cluster.Part{Pod: pod})
				}
				next.VMs = append(next.VMs, vm)
			}
			if i == len(plan.VMs) {
				next.VMs = append(next.VMs, cluster.VM{Parts: []cluster.Part{{Pod: pod}}})
			}
			try(pod+1, next)
		}
	}
	try(0, cluster.Plan{})
	return best
}
