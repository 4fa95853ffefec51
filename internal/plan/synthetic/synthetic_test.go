package synthetic

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
)

func TestIsDeterministic(t *testing.T) {
	one := slices.Collect(Users{Seed: 1}.All())
	if len(one) != 507 {
		t.Fatalf("%d users, want 507", len(one))
	}
	if diff := cmp.Diff(one[:20], slices.Collect(Users{Seed: 1}.All())[:20]); diff != "" {
		t.Error("two runs differ:", diff)
	}
	three := slices.Collect(Users{Seed: 1, Scale: 3}.All())
	if len(three) != 3*507 || !cmp.Equal(one[:20], three[:20]) {
		t.Errorf("a larger scale has %d users, or does not begin with the users of the smaller", len(three))
	}
	if cmp.Equal(one[:20], slices.Collect(Users{Seed: 2}.All())[:20]) {
		t.Error("another seed makes the same users")
	}
}

// The synthetic users have the shape of the trace: sizes at shares within a tenth of a
// decade, and tails as heavy.
func TestFits(t *testing.T) {
	var pods, containers, cpu, memory []float64
	total, mixed, several := 0, 0, 0
	for u := range (Users{Seed: 11, Scale: 20}).All() {
		pods = append(pods, float64(len(u.Pods)))
		for _, p := range u.Pods {
			n := len(p.Containers)
			containers = append(containers, float64(n))
			total += n
			cpu = append(cpu, float64(p.Containers[0].Request.CPU)/(96*cluster.VCPU))
			memory = append(memory, float64(p.Containers[0].Request.Memory)/(384<<30))
			if n > 1 {
				several++
				if slices.ContainsFunc(p.Containers, func(c cluster.Container) bool { return c.Request != p.Containers[0].Request }) {
					mixed++
				}
			}
		}
	}
	for _, c := range []struct {
		name string
		got  []float64
		want quantiles
	}{
		{"pods", pods, podsOfUser}, {"containers", containers, containersOf},
		{"cpu", cpu, cpuOfContainer}, {"memory", memory, memoryOfContainer},
	} {
		slices.Sort(c.got)
		for i, share := range shares[:len(shares)-2] {
			got := c.got[int(share*float64(len(c.got)-1))]
			if off := math.Abs(math.Log10(got / c.want[i])); i > 0 && off > 0.1 {
				t.Errorf("%s at %g: %g, want about %g", c.name, share, got, c.want[i])
			}
		}
	}
	// In the trace a user has 262 containers, and 8 pods.
	if perUser := float64(total) / float64(len(pods)); perUser < 262/1.5 || perUser > 262*1.5 {
		t.Errorf("%g containers of a user, want about 262", perUser)
	}
	if share := float64(mixed) / float64(several); math.Abs(share-mixed2011) > 0.003 {
		t.Errorf("%g of the pods are mixed, want about %g", share, mixed2011)
	}
}

func TestMixed(t *testing.T) {
	for u := range (Users{Seed: 1, Mixed: 1}).All() {
		for _, p := range u.Pods {
			if n := len(p.Containers); n > 10 && p.Containers[0].Request == p.Containers[n-1].Request {
				t.Fatalf("pod %s of %s is of equal containers", p.Name, u.Name)
			}
		}
	}
}

// A million generated containers are yielded without being kept.
func TestMemory(t *testing.T) {
	containers, most := 0, uint64(0)
	for u := range (Users{Seed: 7, Scale: 10}).All() {
		for _, p := range u.Pods {
			containers += len(p.Containers)
		}
		if containers%5 == 0 {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	if containers < 1_000_000 {
		t.Errorf("%d containers, want a million", containers)
	}
	if most > 192<<20 {
		t.Errorf("%d MiB in use, want at most 192", most>>20)
	}
}
