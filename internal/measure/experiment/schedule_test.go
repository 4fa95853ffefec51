package experiment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

// specOf returns a spec with so many configurations c0, c1, … and cases k0, k1, …
func specOf(configurations, cases, repetitions int) *Spec {
	s := &Spec{Repetitions: repetitions}
	for i := range configurations {
		s.Configurations = append(s.Configurations, stack.Configuration{Name: fmt.Sprintf("c%d", i)})
	}
	for i := range cases {
		name := fmt.Sprintf("k%d", i)
		s.Cases = append(s.Cases, Case{Case: result.Case{Name: name, Group: name}})
	}
	return s
}

func TestScheduleHoldsEachPairOncePerBlock(t *testing.T) {
	for _, size := range [][3]int{{1, 1, 1}, {1, 5, 3}, {2, 3, 7}, {3, 4, 6}, {3, 4, 8}, {5, 2, 11}, {16, 3, 2}} {
		s := specOf(size[0], size[1], size[2])
		schedule := Schedule(s, 42)
		perBlock := size[0] * size[1]
		if len(schedule) != perBlock*size[2] {
			t.Fatalf("%v: %d executions", size, len(schedule))
		}
		for block, executions := range slices.Collect(slices.Chunk(schedule, perBlock)) {
			seen := map[result.Execution]bool{}
			for i, x := range executions {
				seen[x.Key()] = true
				if x.Block != block || x.Repetition != block || x.Warmup {
					t.Errorf("%v: %+v in block %d", size, x.Key(), block)
				}
				if i%size[0] > 0 && x.Case.Name != executions[i-1].Case.Name {
					t.Errorf("%v: the configurations of %s do not follow each other", size, x.Case.Name)
				}
			}
			if len(seen) != perBlock {
				t.Errorf("%v: block %d has %d different executions, want %d", size, block, len(seen), perBlock)
			}
		}
	}
}

func TestScheduleBalancesOrders(t *testing.T) {
	const n, blocks = 4, 16
	s := specOf(n, 3, blocks)
	for seed := range uint64(20) {
		places := map[string]int{} // case, configuration, place
		before := map[string]int{} // case, two configurations
		schedule := Schedule(s, seed)
		for turn := range slices.Chunk(schedule, n) {
			for i, x := range turn {
				places[fmt.Sprint(x.Case.Name, x.Configuration.Name, i)]++
				for _, y := range turn[i+1:] {
					before[fmt.Sprint(x.Case.Name, x.Configuration.Name, y.Configuration.Name)]++
				}
			}
		}
		if len(places) != 3*n*n || len(before) != 3*n*(n-1) {
			t.Fatalf("seed %d: %d places, %d orders", seed, len(places), len(before))
		}
		for what, times := range places {
			if times != blocks/n {
				t.Errorf("seed %d: %s %d times, want %d", seed, what, times, blocks/n)
			}
		}
		for what, times := range before {
			if times != blocks/2 {
				t.Errorf("seed %d: %s %d times, want %d", seed, what, times, blocks/2)
			}
		}
	}
}

func TestThreeConfigurationsMeetInAllSixOrders(t *testing.T) {
	seen := map[string]bool{}
	for _, order := range balancedOrders(rand.New(rand.NewPCG(1, 0)), 3, 6) {
		seen[fmt.Sprint(order)] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d orders in six blocks: %v", len(seen), seen)
	}
}

func TestScheduleFollowsItsSeed(t *testing.T) {
	s := specOf(3, 4, 6)
	keys := func(seed uint64) (keys []result.Execution) {
		for _, x := range Schedule(s, seed) {
			keys = append(keys, x.Key())
		}
		return keys
	}
	if diff := cmp.Diff(keys(7), keys(7)); diff != "" {
		t.Errorf("equal seeds differ:\n%s", diff)
	}
	if cmp.Equal(keys(7), keys(8)) {
		t.Error("different seeds give one order")
	}
	first := map[string]bool{}
	for seed := range uint64(200) {
		x := Schedule(s, seed)[0]
		first[x.String()] = true
	}
	if len(first) != 12 {
		t.Errorf("of 12 pairs, only %d ever come first", len(first))
	}
}

// A schedule must not change between versions: the seed of a published run would no longer
// give its order.
func TestScheduleIsStable(t *testing.T) {
	var got []string
	for _, x := range Schedule(specOf(3, 2, 2), 42) {
		got = append(got, x.String())
	}
	want := []string{
		"c2 k0", "c1 k0", "c0 k0", "c1 k1", "c0 k1", "c2 k1",
		"c0 k0", "c2 k0", "c1 k0", "c2 k1", "c1 k1", "c0 k1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWarmupTakesTheFirstCaseOfEachGroup(t *testing.T) {
	s := mustParse(t, small)
	s.Warmup = 2
	var got []string
	for _, x := range s.Warmups() {
		got = append(got, x.String())
		if !x.Warmup {
			t.Errorf("%s is not marked", x)
		}
	}
	once := []string{"NoCont udp_rr/64", "fused udp_rr/64", "NoCont tcp_stream/1280", "fused tcp_stream/1280"}
	if diff := cmp.Diff(slices.Repeat(once, 2), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
