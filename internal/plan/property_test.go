package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Every plan is valid, and the costs are ordered as Compare says.
func TestCompareIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCatalogue(t, 4)
		u := drawUser(t, 30)
		o := drawOptions(t, c)
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
		c := drawCatalogue(t, 4)
		o := drawOptions(t, c)
		o.Explain = true
		s, err := Compare(drawUser(t, 25), c, o)
		if err != nil {
			t.Fatal(err)
		}
		on := map[Part]int{}
		follow(t, "kubernetes", on, 0, s.Kubernetes)
		bought := len(on)
		follow(t, "hostlo", on, s.Kubernetes.Cost, s.Hostlo)
		if len(on) != bought {
			t.Errorf("hostlo moved what was not placed")
		}
		follow(t, "spread", map[Part]int{}, 0, s.Spread)
	})
}

// follow does what the steps say, and compares with the plan.
func follow(t *rapid.T, name string, on map[Part]int, cost int64, o Outcome) {
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

// leastCost goes through all ways to put the units of a user together.
func leastCost(c Catalogue, u User) int64 {
	cargo := newCargo(u, nil)
	m := newMarket(c)
	least := int64(-1)
	var sets [][]int32
	var try func(k int32)
	try = func(k int32) {
		if int(k) < len(cargo.units) {
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
			var req Resources
			pods := map[int32]bool{}
			for _, u := range set {
				req = req.Add(cargo.units[u].req)
				pods[cargo.units[u].pod] = true
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
		c := drawCatalogue(t, 3)
		s, err := Compare(drawUser(t, 6), c, Options{})
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

// Above what it packs exactly, Best is a heuristic: it must find the optimum of 14
// containers, by dynamic programming, mostly, and never miss it by far.
func TestBestNearOptimum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := mustBuiltin(t, "bacou")
	const cases = 40
	var found int
	worst := 1.0
	for range cases {
		u := User{Name: "u"}
		for i := range 5 {
			p := Pod{Name: fmt.Sprint(i)}
			for range min(3, 14-3*i) {
				p.Containers = append(p.Containers, Container{"c", Resources{1 + r.Int64N(5*VCPU), 1 + r.Int64N(20<<30)}})
			}
			u.Pods = append(u.Pods, p)
		}
		out, err := Best(u, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := newPacking(newMarket(c), newCargo(u, nil), Options{})
		budget := 0
		least := p.price(p.packExactly(p.all(), &budget))
		if out.Cost < least {
			t.Fatalf("best costs %d, less than the optimum %d", out.Cost, least)
		}
		found += btoi(out.Cost == least)
		worst = max(worst, float64(out.Cost)/float64(least))
	}
	t.Logf("best is the optimum for %d of %d users of 14 containers, at worst %.3f of it", found, cases, worst)
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

// The choices of a frontier are valid, ascend in cost and descend in cut, which is
// what counting link by link finds; the last cuts nothing.
func TestFrontierIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCatalogue(t, 3)
		o := drawOptions(t, c)
		drawn := drawUser(t, 20)
		for i, p := range drawn.Pods {
			for k := 1; k < len(p.Containers); k++ {
				drawn.Pods[i].Links = append(drawn.Pods[i].Links, Link{k, rapid.IntRange(0, k-1).Draw(t, "to"), float64(rapid.IntRange(0, 4).Draw(t, "weight"))})
			}
		}
		u, _, err := Fit(drawn, c, o.Oversize)
		if err != nil {
			t.Fatal(err)
		}
		pairs := float64(rapid.IntRange(0, 2).Draw(t, "pairs"))
		choices, err := Frontier(u, c, pairs, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, choice := range choices {
			if err := Check(u, c, choice.Plan, o); err != nil {
				t.Errorf("choice %d: %v", i, err)
			}
			if cut := cutOneByOne(u, choice.Plan, pairs); cut != choice.Cut {
				t.Errorf("choice %d cuts %v, says %v", i, cut, choice.Cut)
			}
			if i > 0 && (choice.Cost <= choices[i-1].Cost || choice.Cut >= choices[i-1].Cut) {
				t.Errorf("choice %d costs %d and cuts %v, the one before %d and %v", i, choice.Cost, choice.Cut, choices[i-1].Cost, choices[i-1].Cut)
			}
		}
		if last := choices[len(choices)-1]; last.Cut != 0 {
			t.Errorf("the last choice cuts %v", last.Cut)
		}
	})
}

// cutOneByOne is CutWeight by looking at every two containers of each pod.
func cutOneByOne(u User, plan Plan, pairs float64) float64 {
	on := map[Part]int{}
	for i, vm := range plan.VMs {
		for _, part := range vm.Parts {
			on[part] = i
		}
	}
	var sum float64
	for i, p := range u.Pods {
		apart := func(a, b int) bool { return on[Part{i, a}] != on[Part{i, b}] }
		for a := range p.Containers {
			for b := range a {
				if apart(a, b) {
					sum += pairs
				}
			}
		}
		for _, l := range p.Links {
			if apart(l.A, l.B) {
				sum += l.Weight
			}
		}
	}
	return sum
}

// Over time no pod is lost, and with one event that lasts an hour the cost is that
// of the plan.
func TestReplayAgainstPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCatalogue(t, 3)
		u, _, err := Fit(drawUser(t, 20), c, Drop)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := Kubernetes(u, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		line, err := Replay("u", []Event{{Arrive: u.Pods}}, time.Hour, c, ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if line.Cost != plan.Cost || line.Bought != len(plan.Plan.VMs) || line.States[0].Rate != plan.Cost {
			t.Errorf("over an hour: %+v; the plan costs %d with %d VMs", line, plan.Cost, len(plan.Plan.VMs))
		}
	})
}

// Whatever comes and goes: the rate is that of VMs that hold what is there, and all
// is billed.
func TestReplayIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCatalogue(t, 3)
		o := ReplayOptions{Options: drawOptions(t, c), Split: rapid.Bool().Draw(t, "split"), Migrations: rapid.IntRange(0, 9).Draw(t, "migrations")}
		o.Oversize = Drop
		var err error
		if o.Options, err = o.withDefaults(c); err != nil {
			t.Fatal(err)
		}
		o.Minimum = time.Minute
		fit, _, err := Fit(drawUser(t, 40), c, Drop)
		if err != nil {
			t.Fatal(err)
		}
		r := &replay{opts: o, packing: newPacking(newMarket(c), newCargo(fit, nil), o.Options), present: map[string]int32{}}
		var there []Pod
		var now time.Duration
		for next := 0; next < len(fit.Pods) || len(there) > 0; {
			e := Event{At: now}
			for range rapid.IntRange(0, len(there)).Draw(t, "depart") {
				e.Depart = append(e.Depart, there[0].Name)
				there = there[1:]
			}
			n := min(len(fit.Pods)-next, rapid.IntRange(0, 4).Draw(t, "arrive"))
			e.Arrive = fit.Pods[next : next+n]
			there = append(slices.Clone(there), e.Arrive...)
			next += n
			if err := r.event(e); err != nil {
				t.Fatal(err)
			}
			checkPresent(t, r, c, there)
			now += time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second
		}
		r.now = now
		for b := range r.bins {
			r.release(b, true)
		}
		if r.cost != 0 || r.out.Bought != len(r.bins) {
			t.Errorf("at the end VMs of %d are left, and %d of %d are bought", r.cost, r.out.Bought, len(r.bins))
		}
		if !o.Split && r.out.Migrations != 0 {
			t.Errorf("%d migrations without splitting", r.out.Migrations)
		}
	})
}

// checkPresent checks the plan of the pods that are there.
func checkPresent(t *rapid.T, r *replay, c Catalogue, there []Pod) {
	index := map[int]int{} // in all pods -> among those there
	for i, p := range there {
		index[int(r.present[p.Name])] = i
	}
	plan := r.plan()
	for i := range plan.VMs {
		for j, part := range plan.VMs[i].Parts {
			now, ok := index[part.Pod]
			if !ok {
				t.Fatalf("pod %d has left and is on VM %d", part.Pod, plan.VMs[i].ID)
			}
			plan.VMs[i].Parts[j].Pod = now
		}
	}
	if err := Check(User{Pods: there}, c, plan, r.opts.Options); err != nil {
		t.Errorf("at %v: %v", r.now, err)
	}
	if plan.Cost(c) != r.cost {
		t.Errorf("at %v VMs cost %d, the rate is %d", r.now, plan.Cost(c), r.cost)
	}
	if !r.opts.Split && plan.Split() > 0 {
		t.Errorf("at %v pods are split", r.now)
	}
}
