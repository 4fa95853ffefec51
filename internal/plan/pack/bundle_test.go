package pack

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// A bundled user requests the same, pod by pod, in bundles that are small for a VM. Its plans
// cost at least the bound of the user, and have room for all containers.
func TestBundle(t *testing.T) {
	c := cluster.Catalogue{{Name: "small", Size: cluster.Resources{CPU: 32, Memory: 64}, Price: 3}, {Name: "large", Size: cluster.Resources{CPU: 160, Memory: 320}, Price: 14, Pods: 9}}
	rapid.Check(t, func(t *rapid.T) {
		u := cluster.User{Name: "u"}
		for i := range rapid.IntRange(1, 5).Draw(t, "pods") {
			p := cluster.Pod{Name: fmt.Sprint("p", i), Whole: rapid.IntRange(0, 4).Draw(t, "whole") == 0}
			for range rapid.IntRange(1, 3).Draw(t, "kinds") {
				r := DrawResources(t, "request", 0, 4)
				for range rapid.IntRange(1, 8).Draw(t, "equal") {
					p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", len(p.Containers)), Request: r})
				}
			}
			u.Pods = append(u.Pods, p)
		}
		most := rapid.IntRange(1, 30).Draw(t, "most")
		small, largest := Bundle(u, c, most)
		if containers(u) <= most && (largest != 1 || containers(small) != containers(u)) {
			t.Errorf("a small user was bundled: %d of %d containers", containers(small), containers(u))
		}
		for i, p := range small.Pods {
			if p.Request() != u.Pods[i].Request() || len(p.Containers) > len(u.Pods[i].Containers) || u.Pods[i].Whole && containers(u) > most && len(p.Containers) > 1 {
				t.Errorf("pod %+v became %+v", u.Pods[i], p)
			}
			for _, b := range p.Containers {
				if !p.Whole && !b.Request.Fits(cluster.Resources{CPU: 10, Memory: 20}) {
					t.Errorf("a bundle requests %s", b.Request)
				}
			}
		}
		fit, _, err := Fit(small, c, Cut)
		if err != nil {
			t.Fatal(err)
		}
		best, err := Best(fit, c, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(fit, c, best.Plan, Options{}); err != nil {
			t.Error(err)
		}
	})
}
