package study

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Plans of small pools mostly cost the bound, also with whole pods, with more than the usual effort.
func TestPoolsReachTheBound(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var c cluster.Catalogue
	for i, name := range []string{"large", "xlarge", "2xlarge", "4xlarge"} {
		vms := int64(1) << i
		c = append(c, cluster.Model{Name: name, Size: cluster.Resources{CPU: 2000*vms - 330, Memory: 8192*vms - 1200}, Price: 96 * vms, Pods: 20 + 20*i})
	}
	const pools = 20
	above, whole := 0, 0
	for i := range pools {
		u := cluster.User{Name: fmt.Sprint(i)}
		for app := range 15 + rng.IntN(10) {
			p := cluster.Pod{}
			if app%2 == 0 {
				p.Rules = cluster.Apart(int32(app + 1))
			}
			for k := range 1 + rng.IntN(3) {
				p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: cluster.Resources{CPU: 50 * (1 + rng.Int64N(16)), Memory: 128 * (1 + rng.Int64N(11))}})
			}
			for range 1 + rng.IntN(3) {
				p.Name = fmt.Sprint("p", len(u.Pods))
				u.Pods = append(u.Pods, p)
			}
		}
		s, low, err := Of(u, c, pack.Options{Effort: 2000})
		if err != nil {
			t.Fatal(err)
		}
		if s.Best.Cost > low {
			above++
		}
		if s.Whole.Cost > low {
			whole++
		}
	}
	if above > 2 || whole > 3 {
		t.Errorf("%d of %d pools cost more than the bound, %d with whole pods: want at most 2 and 3", above, pools, whole)
	}
}
