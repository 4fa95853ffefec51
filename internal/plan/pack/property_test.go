package pack

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// Every plan is valid, and the costs are ordered as Compare says.
func TestCompareIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DrawCatalogue(t, 4)
		u := DrawUser(t, 30)
		o := DrawOptions(t, c)
		s, err := Compare(u, c, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, plan := range []struct {
			name string
			Outcome
		}{{"kubernetes", s.Kubernetes}, {"resize", s.Resize}, {"hostlo", s.Hostlo}, {"spread", s.Spread}, {"best", s.Best}} {
			if err := Check(s.User, c, plan.Plan, o); err != nil {
				t.Errorf("%s: %v", plan.name, err)
			}
		}
		if err := Check(Unsplit(s.User), c, s.Whole.Plan, o); err != nil {
			t.Errorf("whole: %v", err)
		}
		for _, pair := range [][2]Outcome{
			{s.Kubernetes, s.Resize}, {s.Resize, s.Kubernetes}, {s.Kubernetes, s.Hostlo}, {s.Kubernetes, s.Whole},
			{s.Hostlo, s.Best}, {s.Whole, s.Best}, {s.Spread, s.Best},
		} {
			if err := CheckImproved(c, pair[0], pair[1]); err != nil {
				t.Error(err)
			}
		}
		again, err := Compare(u, c, o)
		if diff := cmp.Diff(s, again); err != nil || diff != "" {
			t.Errorf("a second time it differs: %v\n%s", err, diff)
		}
	})
}

// The steps say how a plan came about: each begins at the cost where the last ended,
// and the moves lead to where the parts are.
func TestStepsLeadToPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DrawCatalogue(t, 4)
		o := DrawOptions(t, c)
		o.Explain = true
		s, err := Compare(DrawUser(t, 25), c, o)
		if err != nil {
			t.Fatal(err)
		}
		on := map[cluster.Part]int{}
		follow(t, "kubernetes", on, 0, s.Kubernetes)
		bought := len(on)
		follow(t, "hostlo", on, s.Kubernetes.Cost, s.Hostlo)
		if len(on) != bought {
			t.Errorf("hostlo moved what was not placed")
		}
		follow(t, "spread", map[cluster.Part]int{}, 0, s.Spread)
	})
}

// follow does what the steps say, and compares with the plan.
func follow(t *rapid.T, name string, on map[cluster.Part]int, cost int64, o Outcome) {
	for i, step := range o.Steps {
		if step.Before != cost {
			t.Errorf("%s: step %d begins at %d, the last ended at %d", name, i, step.Before, cost)
		}
		cost = step.After
		for _, m := range step.Moves {
			from, placed := on[m.Part]
			if placed && from != m.From || !placed && m.From >= 0 {
				t.Errorf("%s: step %d moves %v from VM %d, it is on %d", name, i, m.Part, m.From, from)
			}
			on[m.Part] = m.To
		}
	}
	if cost != o.Cost {
		t.Errorf("%s: the steps end at %d, the plan costs %d", name, cost, o.Cost)
	}
	for _, vm := range o.Plan.VMs {
		for _, part := range vm.Parts {
			if on[part] != vm.ID {
				t.Errorf("%s: %v is on VM %d, by the steps on %d", name, part, vm.ID, on[part])
			}
		}
	}
}

// leastCost goes through all ways to put the items of a user together.
func leastCost(c cluster.Catalogue, u cluster.User) int64 {
	itemSet := newItems(u, nil)
	m := newModelIndex(c)
	least := int64(-1)
	var sets [][]int32
	var try func(k int32)
	try = func(k int32) {
		if int(k) < len(itemSet.items) {
			for i := range sets {
				sets[i] = append(sets[i], k)
				try(k + 1)
				sets[i] = sets[i][:len(sets[i])-1]
			}
			sets = append(sets, []int32{k})
			try(k + 1)
			sets = sets[:len(sets)-1]
			return
		}
		var sum int64
		for _, set := range sets {
			var req cluster.Resources
			pods := map[int32]bool{}
			for _, u := range set {
				req = req.Add(itemSet.items[u].req)
				pods[itemSet.items[u].pod] = true
			}
			if !itemSet.together(set) {
				return
			}
			model := m.cheapest(req, len(pods))
			if model < 0 {
				return
			}
			sum += c[model].Price
		}
		if least < 0 || sum < least {
			least = sum
		}
	}
	try(0)
	return least
}

// On small instances no plan beats the optimum, which Best reaches: it tries all.
func TestSmallAgainstOptimum(t *testing.T) {
	var cases, kubernetes, hostlo, best int
	rapid.Check(t, func(t *rapid.T) {
		c := DrawCatalogue(t, 3)
		s, err := Compare(DrawUser(t, 6), c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		least := leastCost(c, s.User)
		if s.Kubernetes.Cost < s.Hostlo.Cost || s.Hostlo.Cost < s.Best.Cost || s.Best.Cost != least {
			t.Errorf("kubernetes %d, hostlo %d, best %d, optimum %d: want them not to ascend, and best to be the optimum",
				s.Kubernetes.Cost, s.Hostlo.Cost, s.Best.Cost, least)
		}
		cases++
		kubernetes += btoi(s.Kubernetes.Cost == least)
		hostlo += btoi(s.Hostlo.Cost == least)
		best += btoi(s.Best.Cost == least)
	})
	t.Logf("optimal of %d: kubernetes %d, hostlo %d, best %d", cases, kubernetes, hostlo, best)
}

// Above what it packs exactly, Best is a heuristic: it must find the optimum of 16
// containers, by dynamic programming, mostly, and never miss it by far.
func TestBestNearOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := mustBuiltin(t, "bacou")
	const cases = 8
	var found int
	worst := 1.0
	for range cases {
		u := cluster.User{Name: "u"}
		for i := range 4 {
			p := cluster.Pod{Name: fmt.Sprint(i)}
			for range min(4, 16-4*i) {
				p.Containers = append(p.Containers, cluster.Container{Name: "c", Request: cluster.Resources{CPU: 1 + r.Int64N(5*cluster.VCPU), Memory: 1 + r.Int64N(20<<30)}})
			}
			u.Pods = append(u.Pods, p)
		}
		out, err := Best(u, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := newPacking(newModelIndex(c), newItems(u, nil), Options{})
		budget := 0
		least := p.price(p.packExactly(p.all(), &budget))
		if out.Cost < least {
			t.Fatalf("best costs %d, less than the optimum %d", out.Cost, least)
		}
		found += btoi(out.Cost == least)
		worst = max(worst, float64(out.Cost)/float64(least))
	}
	t.Logf("best is the optimum for %d of %d users of 16 containers, at worst %.3f of it", found, cases, worst)
	if found < cases*3/4 || worst > 1.1 {
		t.Errorf("best is the optimum for %d of %d users, at worst %.3f of it: want three quarters, and at most 1.1", found, cases, worst)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Whatever pods come, go and migrate: the plan is valid and has its cost.
func TestLiveIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DrawCatalogue(t, 3)
		o := DrawOptions(t, c)
		split := rapid.Bool().Draw(t, "split")
		most := rapid.IntRange(0, 9).Draw(t, "migrations")
		u, _, err := Fit(DrawUser(t, 40), c, Drop)
		if err != nil {
			t.Fatal(err)
		}
		live, err := NewLive(u, c, o, split)
		if err != nil {
			t.Fatal(err)
		}
		var there []int
		for next := 0; next < len(u.Pods) || len(there) > 0; {
			for range rapid.IntRange(0, len(there)).Draw(t, "depart") {
				live.Remove(there[0])
				there = there[1:]
			}
			first := next
			for range min(len(u.Pods)-next, rapid.IntRange(0, 4).Draw(t, "arrive")) {
				there = append(slices.Clone(there), next)
				next++
			}
			if err := live.Place(first, next); err != nil {
				t.Fatal(err)
			}
			checkPresent(t, live, u, c, there)
			if moved := live.Migrate(most); moved > most || !split && moved > 0 {
				t.Errorf("%d containers migrated, want at most %d", moved, most)
			}
			checkPresent(t, live, u, c, there)
			for vm := range live.Bought() {
				if live.Model(vm) >= 0 && live.Empty(vm) && rapid.Bool().Draw(t, "release") {
					live.Release(vm)
				}
			}
			checkPresent(t, live, u, c, there)
		}
	})
}

// checkPresent checks the plan of the pods that are present.
func checkPresent(t *rapid.T, live *Live, u cluster.User, c cluster.Catalogue, present []int) {
	index := map[int]int{} // in all pods -> among those present
	now := cluster.User{Limits: u.Limits}
	for i, pod := range present {
		index[pod] = i
		now.Pods = append(now.Pods, u.Pods[pod])
	}
	plan := live.plan()
	for i := range plan.VMs {
		for j, part := range plan.VMs[i].Parts {
			at, ok := index[part.Pod]
			if !ok {
				t.Fatalf("pod %d has left and is on VM %d", part.Pod, plan.VMs[i].ID)
			}
			plan.VMs[i].Parts[j].Pod = at
		}
	}
	if err := Check(now, c, plan, live.opts); err != nil {
		t.Error(err)
	}
	if Cost(plan, c) != live.Rate() {
		t.Errorf("VMs cost %d, the rate is %d", Cost(plan, c), live.Rate())
	}
	if !live.split && plan.Split() > 0 {
		t.Error("pods are split, want none")
	}
}
