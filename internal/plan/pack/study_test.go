package pack_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/bound"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/study"
)

// Plans of patterns are valid whatever the pods are, and costs are ordered: bound ≤ best ≤ whole
// ≤ kubernetes.
func TestStudyIsValid(t *testing.T) {
	made, better := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := pack.DrawCatalogue(t, 4)
		o := pack.DrawOptions(t, c)
		o.Effort = 1 // so that patterns are often better
		u := pack.DrawUser(t, 60)
		s, low, err := study.Of(u, c, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := pack.Check(s.User, c, s.Best.Plan, o); err != nil {
			t.Errorf("best: %v", err)
		}
		if s.Best.Cost != pack.Cost(s.Best.Plan, c) || low > s.Best.Cost || s.Best.Cost > s.Whole.Cost || s.Whole.Cost > s.Kubernetes.Cost {
			t.Errorf("bound %d, best %d of VMs that cost %d, whole %d, kubernetes %d: want them to ascend", low, s.Best.Cost, pack.Cost(s.Best.Plan, c), s.Whole.Cost, s.Kubernetes.Cost)
		}
		if again, _, err := study.Of(u, c, o); err != nil || !cmp.Equal(s, again) {
			t.Errorf("a second time it differs: %v\n%s", err, cmp.Diff(s, again))
		}
		for _, whole := range []bool{false, true} {
			of := s.User
			if whole {
				of = pack.Unsplit(of)
			}
			plan, ok := bound.Of(of, c, bound.Options{Whole: whole}).Plan(of, c, whole, true)
			if !ok {
				continue
			}
			made++
			if err := pack.Check(of, c, plan, pack.Options{}); err != nil {
				t.Errorf("patterns, whole %v: %v", whole, err)
			}
			if pack.Cost(plan, c) < s.Best.Cost {
				better++
			}
		}
	})
	t.Logf("%d plans of patterns, %d of them better than what pack finds with little effort", made, better)
	if made == 0 {
		t.Error("no plan was made of patterns")
	}
}

// Two owners of the pods never pay less than one, where all plans are tried.
func TestMoreOwnersAreNeverCheaper(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := pack.DrawCatalogue(t, 3)
		u := pack.DrawUser(t, 13)
		cost := func(pods []cluster.Pod) int64 {
			s, low, err := study.Of(cluster.User{Name: "u", Pods: pods, Limits: u.Limits}, c, pack.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if low != s.Best.Cost {
				t.Errorf("best costs %d, the bound is %d: want the optimum", s.Best.Cost, low)
			}
			return s.Best.Cost
		}
		at := rapid.IntRange(0, len(u.Pods)).Draw(t, "first owner's pods")
		if one, two := cost(u.Pods), cost(u.Pods[:at])+cost(u.Pods[at:]); two < one {
			t.Errorf("two owners pay %d, one %d", two, one)
		}
	})
}
