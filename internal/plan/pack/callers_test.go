package pack_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/frontier"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/replay"
)

// The choices of a frontier are valid, ascend in cost and descend in cut, which is
// what counting link by link finds; the last cuts nothing.
func TestFrontierIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := pack.DrawCatalogue(t, 3)
		o := pack.DrawOptions(t, c)
		drawn := pack.DrawUser(t, 20)
		for i, p := range drawn.Pods {
			for k := 1; k < len(p.Containers); k++ {
				drawn.Pods[i].Links = append(drawn.Pods[i].Links, cluster.Link{A: k, B: rapid.IntRange(0, k-1).Draw(t, "to"), Weight: float64(rapid.IntRange(0, 4).Draw(t, "weight"))})
			}
		}
		u, _, err := pack.Fit(drawn, c, o.Oversize)
		if err != nil {
			t.Fatal(err)
		}
		pairs := float64(rapid.IntRange(0, 2).Draw(t, "pairs"))
		choices, err := frontier.Find(u, c, pairs, o)
		if err != nil {
			t.Fatal(err)
		}
		for i, choice := range choices {
			if err := pack.Check(u, c, choice.Plan, o); err != nil {
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
func cutOneByOne(u cluster.User, plan cluster.Plan, pairs float64) float64 {
	on := map[cluster.Part]int{}
	for i, vm := range plan.VMs {
		for _, part := range vm.Parts {
			on[part] = i
		}
	}
	var sum float64
	for i, p := range u.Pods {
		apart := func(a, b int) bool {
			return on[cluster.Part{Pod: i, Container: a}] != on[cluster.Part{Pod: i, Container: b}]
		}
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
		c := pack.DrawCatalogue(t, 3)
		u, _, err := pack.Fit(pack.DrawTrace(t, 20), c, pack.Drop)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pack.Kubernetes(u, c, pack.Options{})
		if err != nil {
			t.Fatal(err)
		}
		line, err := replay.Run("u", []replay.Event{{Arrive: u.Pods}}, time.Hour, c, replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if line.Cost != plan.Cost || line.Bought != len(plan.Plan.VMs) || line.States[0].Rate != plan.Cost {
			t.Errorf("over an hour: %+v; the plan costs %d with %d VMs", line, plan.Cost, len(plan.Plan.VMs))
		}
	})
}

// Whatever comes and goes: when all pods have left, every VM is released, and nothing
// migrated unless pods may be split.
func TestReplayIsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := pack.DrawCatalogue(t, 3)
		o := replay.Options{Options: pack.DrawOptions(t, c), Split: rapid.Bool().Draw(t, "split"), Migrations: rapid.IntRange(0, 9).Draw(t, "migrations")}
		u, _, err := pack.Fit(pack.DrawTrace(t, 40), c, pack.Drop)
		if err != nil {
			t.Fatal(err)
		}
		var events []replay.Event
		var there []cluster.Pod
		var now time.Duration
		for next := 0; next < len(u.Pods) || len(there) > 0; {
			e := replay.Event{At: now}
			for range rapid.IntRange(0, len(there)).Draw(t, "depart") {
				e.Depart = append(e.Depart, there[0].Name)
				there = there[1:]
			}
			n := min(len(u.Pods)-next, rapid.IntRange(0, 4).Draw(t, "arrive"))
			e.Arrive = u.Pods[next : next+n]
			there = append(slices.Clone(there), e.Arrive...)
			next += n
			events = append(events, e)
			now += time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second
		}
		events = append(events, replay.Event{At: now + time.Hour})
		line, err := replay.Run("u", events, now+2*time.Hour, c, o)
		if err != nil {
			t.Fatal(err)
		}
		bought := 0
		for _, s := range line.States {
			bought = max(bought, s.VMs)
			if s.VMs == 0 != (s.Rate == 0) {
				t.Errorf("at %v %d VMs cost %d", s.At, s.VMs, s.Rate)
			}
		}
		if last := line.States[len(line.States)-1]; last.VMs != 0 {
			t.Errorf("at the end %d VMs are left", last.VMs)
		}
		if n := len(line.States); line.Bought < bought || n < len(events) || n > len(events)+line.Bought {
			t.Errorf("%d VMs bought in %d states: want at least %d VMs, and a state for each of %d events and at most one for each VM", line.Bought, n, bought, len(events))
		}
		if !o.Split && line.Migrations != 0 {
			t.Errorf("%d migrations without splitting", line.Migrations)
		}
	})
}
