package study

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

var models = cluster.Catalogue{
	{Name: "small", Size: cluster.Resources{CPU: 6, Memory: 8}, Price: 3},
	{Name: "middle", Size: cluster.Resources{CPU: 12, Memory: 16}, Price: 6, Pods: 5},
	{Name: "large", Size: cluster.Resources{CPU: 24, Memory: 32}, Price: 11},
}

// drawUsers returns a user, and the same with other requests, of which some are larger if grows.
func drawUsers(t *rapid.T, grows bool) (before, after cluster.User) {
	before.Name, after.Name = "u", "u"
	resources := func(name string, most cluster.Resources) cluster.Resources {
		return cluster.Resources{CPU: rapid.Int64Range(0, most.CPU).Draw(t, name+" CPU"), Memory: rapid.Int64Range(0, most.Memory).Draw(t, name+" memory")}
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "pods") {
		p := cluster.Pod{Name: fmt.Sprint("p", i), Whole: rapid.IntRange(0, 3).Draw(t, "whole") == 0}
		q := p
		for k := range rapid.IntRange(1, 4).Draw(t, "containers") {
			r := resources("request", cluster.Resources{CPU: 7, Memory: 9})
			most := r
			if grows {
				most = cluster.Resources{CPU: 8, Memory: 10}
			}
			p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: r})
			q.Containers = append(q.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: resources("use", most)})
		}
		if rapid.IntRange(0, 2).Draw(t, "start") == 0 { // init containers need more than the others now
			most := p.Request().Sub(q.Request()).Max(cluster.Resources{})
			if grows {
				most = cluster.Resources{CPU: 8, Memory: 10}
			}
			q.Whole, q.Overhead = true, resources("overhead", most)
		}
		before.Pods, after.Pods = append(before.Pods, p), append(after.Pods, q)
	}
	return before, after
}

// Plans of right-sized pods hold them, and cost no less than their bound. If no pod requests more
// than before, they cost at most what they did.
func TestSized(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		grows := rapid.Bool().Draw(t, "grows")
		u, sized := drawUsers(t, grows)
		o := pack.Options{Oversize: rapid.SampledFrom([]pack.Oversize{pack.Drop, pack.Cut}).Draw(t, "oversize")}
		before, _, err := Of(u, models, o)
		if err != nil {
			t.Fatal(err)
		}
		after, low, comparable, err := Sized(sized, models, o, before)
		if err != nil {
			t.Fatal(err)
		}
		if !comparable {
			return
		}
		for name, plan := range map[string]cluster.Plan{"whole": after.Whole.Plan, "best": after.Best.Plan} {
			placed := 0
			for _, vm := range plan.VMs {
				used, seen := cluster.Resources{}, map[int]bool{}
				for _, part := range vm.Parts {
					if p := sized.Pods[part.Pod]; part.Container >= 0 {
						placed++
						if used = used.Add(p.Containers[part.Container].Request); part.Container == 0 {
							used = used.Add(p.Overhead)
						}
					}
					seen[part.Pod] = true
				}
				if !used.Fits(models[vm.Model].Size) {
					t.Errorf("%s: a VM of %s holds %s", name, models[vm.Model].Name, used)
				}
				for pod := range seen {
					if sized.Pods[pod].Whole && slices.ContainsFunc(plan.VMs, func(o cluster.VM) bool {
						return o.ID != vm.ID && slices.ContainsFunc(o.Parts, func(part cluster.Part) bool { return part.Pod == pod })
					}) {
						t.Errorf("%s splits pod %d, which must stay whole", name, pod)
					}
				}
			}
			if want := containers(sized); placed != want {
				t.Errorf("%s places %d of %d containers", name, placed, want)
			}
		}
		if low > after.Best.Cost || after.Best.Cost > after.Whole.Cost || after.Whole.Plan.Split() > 0 {
			t.Errorf("bound %d, best %d, whole %d: want them to ascend", low, after.Best.Cost, after.Whole.Cost)
		}
		if !grows && (after.Whole.Cost > before.Whole.Cost || after.Best.Cost > before.Best.Cost && pack.Holds(sized, models, before.Best.Plan)) {
			t.Errorf("smaller pods cost %d and %d, larger ones %d and %d", after.Whole.Cost, after.Best.Cost, before.Whole.Cost, before.Best.Cost)
		}
	})
}

func containers(u cluster.User) (n int) {
	for _, p := range u.Pods {
		n += len(p.Containers)
	}
	return n
}
