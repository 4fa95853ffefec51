package pack

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
)

// randomUser returns a user with pods of up to ten containers, most of them small,
// some of several vCPUs, nearly all different.
func randomUser(seed uint64, containers int) cluster.User {
	r := rand.New(rand.NewPCG(seed, 7))
	u := cluster.User{Name: fmt.Sprint("u", seed)}
	for containers > 0 {
		n := min(containers, 1+r.IntN(10))
		containers -= n
		p := cluster.Pod{Name: fmt.Sprint("p", len(u.Pods))}
		for k := range n {
			cpu := int64(r.ExpFloat64() * cluster.VCPU)
			memory := int64(r.ExpFloat64() * 3 * (1 << 30))
			p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: cluster.Resources{CPU: min(cpu, 9*cluster.VCPU), Memory: min(memory, 36<<30)}})
		}
		u.Pods = append(u.Pods, p)
	}
	return u
}

// One user of 100,000 containers, by planner: none may be quadratic.
func BenchmarkLargeUser(b *testing.B) {
	for _, tt := range []struct {
		name string
		c    cluster.Catalogue
	}{{"bacou", mustBuiltin(b, "bacou")}, {"m6i", mustBuiltin(b, "m6i")}} {
		for _, containers := range []int{10_000, 100_000} {
			u := randomUser(1, containers)
			k, err := Kubernetes(u, tt.c, Options{})
			if err != nil {
				b.Fatal(err)
			}
			name := fmt.Sprintf("%s/%d/", tt.name, containers)
			for planner, plan := range map[string]func() (Outcome, error){
				"kubernetes": func() (Outcome, error) { return Kubernetes(u, tt.c, Options{}) },
				"hostlo":     func() (Outcome, error) { return Hostlo(u, tt.c, k.Plan, Options{}) },
				"container":  func() (Outcome, error) { return Hostlo(u, tt.c, k.Plan, Options{Moving: MoveByContainer}) },
				"spread":     func() (Outcome, error) { return Spread(u, tt.c, Options{}) },
				"best":       func() (Outcome, error) { return Best(u, tt.c, Options{}, k.Plan) },
			} {
				b.Run(name+planner, func(b *testing.B) {
					for b.Loop() {
						out, err := plan()
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(float64(out.Cost)/float64(k.Cost), "cost/kubernetes")
					}
				})
			}
		}
	}
}

// Every plan of a user with 1,000 containers, on all cores. With -benchtime 1000x that is a
// million containers.
func BenchmarkMillion(b *testing.B) {
	c := mustBuiltin(b, "bacou")
	b.RunParallel(func(next *testing.PB) {
		for next.Next() {
			if _, err := Compare(randomUser(rand.Uint64N(1000), 1000), c, Options{}); err != nil {
				b.Error(err)
			}
		}
	})
}
