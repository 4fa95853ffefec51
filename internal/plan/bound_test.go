package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

const gib = 1 << 30

// bacou is Table 2 of Bacou et al., in billionths of a dollar.
var bacou = Catalogue{
	{Name: "large", Size: Resources{2 * VCPU, 8 * gib}, Price: 112_000_000},
	{Name: "xlarge", Size: Resources{4 * VCPU, 16 * gib}, Price: 224_000_000},
	{Name: "2xlarge", Size: Resources{8 * VCPU, 32 * gib}, Price: 448_000_000},
	{Name: "4xlarge", Size: Resources{16 * VCPU, 64 * gib}, Price: 896_000_000},
	{Name: "12xlarge", Size: Resources{48 * VCPU, 192 * gib}, Price: 2_689_000_000},
	{Name: "24xlarge", Size: Resources{96 * VCPU, 384 * gib}, Price: 5_376_000_000},
}

// tenByTen is a catalogue of one model of 10 by 10 that costs 1.
var tenByTen = Catalogue{{Size: Resources{10, 10}, Price: 1}}

// podOf returns a pod of containers.
func podOf(requests ...Resources) Pod {
	var p Pod
	for _, r := range requests {
		p.Containers = append(p.Containers, Container{Request: r})
	}
	return p
}

func TestBoundByHand(t *testing.T) {
	large := []Resources{{6, 1}, {6, 1}, {6, 1}}
	tests := []struct {
		name       string
		pods       []Pod
		catalogue  Catalogue
		whole      bool
		continuous int64
		largeItem  int64
		columns    int64
	}{
		{name: "nobody", catalogue: tenByTen},
		{"the paper's pod, split", []Pod{podOf(Resources{2 * VCPU, 8 * gib}, Resources{4 * VCPU, 16 * gib})}, bacou, false,
			336_000_000, 336_000_000, 336_000_000},
		{"the paper's pod, whole", []Pod{podOf(Resources{2 * VCPU, 8 * gib}, Resources{4 * VCPU, 16 * gib})}, bacou, true,
			336_000_000, 448_000_000, 448_000_000},
		{"nearly nothing needs the cheapest VM", []Pod{podOf(Resources{1, 1})}, bacou, false,
			112_000_000, 112_000_000, 112_000_000},
		{"no request at all needs the cheapest VM", []Pod{podOf(Resources{})}, bacou, false,
			112_000_000, 112_000_000, 112_000_000},
		{"more than half cannot share", []Pod{podOf(large...)}, tenByTen, false, 2, 3, 3},
		{"more than a third shares by two", []Pod{podOf(Resources{4, 0}, Resources{4, 0}, Resources{4, 0}, Resources{4, 0}, Resources{4, 0})},
			tenByTen, false, 2, 3, 3},
		{"each in its dimension can share", []Pod{podOf(Resources{6, 1}, Resources{1, 6})}, tenByTen, false, 1, 1, 1},
		// Any two of the three collide, in one dimension or the other, which no
		// function of one dimension sees.
		{"pairs collide in different dimensions", []Pod{podOf(Resources{6, 3}, Resources{5, 6}, Resources{1, 8})}, tenByTen, false, 2, 2, 3},
		{"a limit of pods", []Pod{podOf(Resources{1, 1}), podOf(Resources{1, 1}), podOf(Resources{1, 1})},
			Catalogue{{Size: Resources{10, 10}, Price: 1, Pods: 2}}, false, 2, 2, 2},
		{"a limit of pods is none of containers", []Pod{podOf(Resources{1, 1}, Resources{1, 1}, Resources{1, 1})},
			Catalogue{{Size: Resources{10, 10}, Price: 1, Pods: 1}}, false, 1, 1, 1},
		{"an overhead stays with the first container", []Pod{{Overhead: Resources{5, 0}, Containers: []Container{{Request: Resources{6, 0}}, {Request: Resources{1, 0}}}}},
			Catalogue{{Size: Resources{10, 10}, Price: 1}, {Size: Resources{20, 20}, Price: 5}}, false, 2, 5, 5},
		{"a pod without anything needs no VM", []Pod{{}}, tenByTen, false, 0, 0, 0},
		{"a pod that must not be split", []Pod{{Whole: true, Containers: []Container{{Request: Resources{5, 0}}, {Request: Resources{6, 0}}}}},
			Catalogue{{Size: Resources{10, 10}, Price: 1}, {Size: Resources{20, 20}, Price: 5}}, false, 2, 5, 5},
		{"memory is bought apart", []Pod{podOf(Resources{1, 20}, Resources{20, 1})},
			Catalogue{{Size: Resources{20, 2}, Price: 3}, {Size: Resources{2, 20}, Price: 4}, {Size: Resources{20, 20}, Price: 9}}, false, 7, 7, 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Bound(User{Pods: tt.pods}, tt.catalogue, BoundOptions{Whole: tt.whole})
			if r.Continuous != tt.continuous || r.LargeItem != tt.largeItem || r.ColumnGeneration != tt.columns {
				t.Errorf("continuous %d, large-item %d, column generation %d; want %d, %d, %d",
					r.Continuous, r.LargeItem, r.ColumnGeneration, tt.continuous, tt.largeItem, tt.columns)
			}
			if !r.Exact || r.Best < tt.columns || len(r.LeftOut) > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// Three containers of 20 vCPU are on one and a half 12xlarge, in a linear program. Two
// of them cost more than a 24xlarge.
func TestBoundWholeVMs(t *testing.T) {
	third := Resources{20 * VCPU, gib}
	r := Bound(User{Pods: []Pod{podOf(third, third, third)}}, bacou, BoundOptions{})
	if r.ColumnGeneration != 4_034_000_000 || r.WholeVMs != 5_376_000_000 || r.Best != r.WholeVMs {
		t.Errorf("%+v, want column generation 4,034,000,000 and whole VMs 5,376,000,000", r)
	}
}

func TestBoundLeavesOut(t *testing.T) {
	u := User{Pods: []Pod{podOf(Resources{3, 3}), podOf(Resources{6, 6}, Resources{6, 6}), podOf(Resources{2, 2}, Resources{11, 1})}}
	if r := Bound(u, tenByTen, BoundOptions{}); !slices.Equal(r.LeftOut, []int{2}) || r.Best != 2 {
		t.Errorf("split: %+v, want pod 2 left out and 2 VMs", r)
	}
	if r := Bound(u, tenByTen, BoundOptions{Whole: true}); !slices.Equal(r.LeftOut, []int{1, 2}) || r.Best != 1 {
		t.Errorf("whole: %+v, want pods 1 and 2 left out and 1 VM", r)
	}
	if r := Bound(u, nil, BoundOptions{}); len(r.LeftOut) != 3 || r.Best != 0 {
		t.Errorf("nothing on sale: %+v, want all left out", r)
	}
}

func TestBoundEffort(t *testing.T) {
	u := User{Pods: []Pod{podOf(Resources{6, 3}, Resources{5, 6}, Resources{1, 8})}}
	tests := []struct {
		name    string
		options BoundOptions
		columns int64
		exact   bool
		rounds  int
	}{
		{"a known plan is reached by the cheap bounds", BoundOptions{Known: 2}, 0, false, 0},
		{"too many types", BoundOptions{MaxTypes: 2}, 0, false, 0},
		{"never", BoundOptions{MaxTypes: -1}, 0, false, 0},
		{"a gap is open", BoundOptions{Known: 3}, 3, true, 1},
		{"a gap is open, but no effort allowed", BoundOptions{Known: 3, MaxNodes: -1}, 2, false, 0},
	}
	for _, tt := range tests {
		r := Bound(u, tenByTen, tt.options)
		if r.ColumnGeneration != tt.columns || r.Exact != tt.exact || r.Rounds != tt.rounds {
			t.Errorf("%s: %+v, want column generation %d, exact %v, %d rounds", tt.name, r, tt.columns, tt.exact, tt.rounds)
		}
	}
}

// randomCase is a user small enough for all plans to be tried.
func randomCase(rng *rand.Rand) (User, Catalogue) {
	limit := int64(4 + rng.IntN(40))
	var c Catalogue
	for range 1 + rng.IntN(4) {
		m := Model{Size: Resources{1 + rng.Int64N(limit), 1 + rng.Int64N(limit)}}
		m.Price = (m.Size.CPU+m.Size.Memory)*100 + rng.Int64N(40*limit)
		if rng.IntN(2) == 0 {
			m.Price = m.Price / 100 * 1_000_000
		}
		if rng.IntN(4) == 0 {
			m.Pods = 1 + rng.IntN(3)
		}
		c = append(c, m)
	}
	var u User
	most := 1 + rng.Int64N(limit)
	for parts := 1 + rng.IntN(8); parts > 0; {
		p := Pod{Whole: rng.IntN(6) == 0}
		for range 1 + rng.IntN(min(4, parts)) {
			p.Containers = append(p.Containers, Container{Request: Resources{rng.Int64N(most), rng.Int64N(most)}})
			parts--
		}
		if rng.IntN(4) == 0 {
			p.Overhead = Resources{rng.Int64N(3), rng.Int64N(3)}
		}
		u.Pods = append(u.Pods, p)
	}
	return u, c
}

// piece is what goes on one VM as one.
type piece struct {
	pod  int
	size Resources
}

// pieces returns what cannot be split, of the pods that are not left out.
func pieces(u User, whole bool, leftOut []int) []piece {
	var all []piece
	for i, p := range u.Pods {
		switch {
		case slices.Contains(leftOut, i):
		case whole || p.Whole:
			all = append(all, piece{i, p.Request()})
		default:
			for _, c := range p.Containers {
				all = append(all, piece{i, c.Request})
			}
			first := &all[len(all)-len(p.Containers)]
			first.size = first.size.Add(p.Overhead)
		}
	}
	return all
}

// optimum returns what the cheapest plan costs for the pods that can be placed, by
// trying for each set of pieces each of its subsets as one VM.
func optimum(u User, c Catalogue, whole bool, leftOut []int) int64 {
	all := pieces(u, whole, leftOut)
	one := make([]int64, 1<<len(all))
	best := make([]int64, 1<<len(all))
	for set := 1; set < len(one); set++ {
		one[set], best[set] = cheapestVM(all, set, c), math.MaxInt64/2
		first := set & -set
		for vm := set; vm > 0; vm = (vm - 1) & set {
			if vm&first > 0 {
				best[set] = min(best[set], one[vm]+best[set&^vm])
			}
		}
	}
	return best[len(best)-1]
}

// cheapestVM returns the price of the cheapest VM that holds a set of pieces.
func cheapestVM(all []piece, set int, c Catalogue) int64 {
	var sum Resources
	pods := map[int]bool{}
	for i, p := range all {
		if set>>i&1 > 0 {
			sum = sum.Add(p.size)
			pods[p.pod] = true
		}
	}
	price := int64(math.MaxInt64 / 2)
	for _, m := range c {
		if sum.Fits(m.Size) && (m.Pods == 0 || len(pods) <= m.Pods) {
			price = min(price, m.Price)
		}
	}
	return price
}

// TestBoundNeverAboveOptimum tries all plans of random users. It logs how far below
// the bounds are.
func TestBoundNeverAboveOptimum(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole=%v", whole), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			var gaps, tight [4]float64
			n := 0.0
			for range 4000 {
				u, c := randomCase(rng)
				r := Bound(u, c, BoundOptions{Whole: whole, Tolerance: -1})
				best := optimum(u, c, whole, r.LeftOut)
				if best == 0 {
					continue
				}
				n++
				for i, bound := range []int64{r.Continuous, r.LargeItem, r.ColumnGeneration, r.Best} {
					if bound > best || bound < 0 {
						t.Fatalf("%+v above the optimum %d:\n%+v\n%+v", r, best, u, c)
					}
					gaps[i] += 1 - float64(bound)/float64(best)
					if bound == best {
						tight[i]++
					}
				}
				p, _ := newRelaxation(u, c, whole)
				g := p.columnGeneration(BoundOptions{Tolerance: -1}.withDefaults(), 0, make([]float64, len(p.demands)))
				if !g.exact || !r.Exact || g.bound != r.ColumnGeneration || g.bound < r.LargeItem || r.LargeItem < r.Continuous {
					t.Fatalf("%+v, column generation alone %d: not exact, or a better bound is lower:\n%+v\n%+v", r, g.bound, u, c)
				}
			}
			t.Logf("%.0f users; mean gap of continuous, large-item, column generation, whole VMs: %.2f %%, %.2f %%, %.2f %%, %.2f %%; equal to the optimum: %.1f %%, %.1f %%, %.1f %%, %.1f %%",
				n, 100*gaps[0]/n, 100*gaps[1]/n, 100*gaps[2]/n, 100*gaps[3]/n, 100*tight[0]/n, 100*tight[1]/n, 100*tight[2]/n, 100*tight[3]/n)
			if gaps[3] >= gaps[2] || gaps[2] >= gaps[1] || gaps[1] >= gaps[0] || gaps[2]/n > 0.03 {
				t.Errorf("bounds are not as tight as they were: mean gaps %v", gaps)
			}
		})
	}
}

// TestBoundCutShort checks that bounds hold however early the effort is used up.
func TestBoundCutShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	inexact := 0
	for range 2000 {
		u, c := randomCase(rng)
		r := Bound(u, c, BoundOptions{MaxRounds: 1 + rng.IntN(3), MaxNodes: 1 + rng.IntN(30)})
		if best := optimum(u, c, false, r.LeftOut); r.Best > best {
			t.Fatalf("%+v above the optimum %d:\n%+v\n%+v", r, best, u, c)
		}
		if !r.Exact {
			inexact++
		}
	}
	if inexact < 100 {
		t.Errorf("only %d of 2000 users used up the effort", inexact)
	}
}

func TestBoundGrowsWithItems(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		u, c := randomCase(rng)
		for i := range c {
			c[i].Price *= 1000
		}
		before := Bound(u, c, BoundOptions{Tolerance: -1, MaxNodes: 20_000})
		more, _ := randomCase(rng)
		u.Pods = append(u.Pods, more.Pods[0])
		after := Bound(u, c, BoundOptions{Tolerance: -1, MaxNodes: 20_000})
		if after.Continuous < before.Continuous || after.LargeItem < before.LargeItem ||
			after.ColumnGeneration < before.ColumnGeneration {
			t.Fatalf("one pod more lowers a bound: %+v, then %+v\n%+v\n%+v", before, after, u, c)
		}
	}
}

func TestBoundIgnoresOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 500 {
		u, c := randomCase(rng)
		want := Bound(u, c, BoundOptions{})
		rng.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
		rng.Shuffle(len(u.Pods), func(i, j int) { u.Pods[i], u.Pods[j] = u.Pods[j], u.Pods[i] })
		for _, p := range u.Pods {
			if p.Overhead != (Resources{}) {
				continue
			}
			rng.Shuffle(len(p.Containers), func(i, j int) { p.Containers[i], p.Containers[j] = p.Containers[j], p.Containers[i] })
		}
		got := Bound(u, c, BoundOptions{})
		if len(got.LeftOut) != len(want.LeftOut) {
			t.Fatalf("left out %v, and in another order %v", want.LeftOut, got.LeftOut)
		}
		got.LeftOut, want.LeftOut = nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, and in another order %+v", want, got)
		}
	}
}

// manyPods returns a user with so many containers, in pods of up to four, of so many
// distinct sizes.
func manyPods(containers, types int) User {
	rng := rand.New(rand.NewPCG(9, 10))
	sizes := make([]Resources, types)
	for i := range sizes {
		sizes[i] = Resources{(1 + rng.Int64N(8000)) * VCPU / 1000, (1 + rng.Int64N(32<<10)) << 20}
	}
	var u User
	for containers > 0 {
		var p Pod
		for range min(containers, 1+rng.IntN(4)) {
			p.Containers = append(p.Containers, Container{Request: sizes[rng.IntN(types)]})
			containers--
		}
		u.Pods = append(u.Pods, p)
	}
	return u
}

// TestBoundOfManyContainers checks bounds that brute force cannot: all must lie
// between the continuous one and the price of a VM for each container.
func TestBoundOfManyContainers(t *testing.T) {
	u := manyPods(100_000, 12)
	r := Bound(u, bacou, BoundOptions{Tolerance: -1})
	if r.Items != 100_000 || r.Continuous <= 0 || r.LargeItem < r.Continuous || r.ColumnGeneration < r.LargeItem || !r.Exact {
		t.Errorf("%+v: want 100,000 items, and column generation ended at the highest bound", r)
	}
	alone := int64(0)
	for _, p := range u.Pods {
		for i := range p.Containers {
			alone += cheapestVM([]piece{{size: p.Containers[i].Request}}, 1, bacou)
		}
	}
	if r.Best > alone {
		t.Errorf("bound %d is above %d, a VM for each container", r.Best, alone)
	}
}

// TestBoundBelowPlans compares with what the planners make of users that are too
// large for all plans to be tried. It logs the mean gaps.
func TestBoundBelowPlans(t *testing.T) {
	var gaps [2]float64
	const users = 60
	for n := range users {
		u := manyPods(1+n, 1+n/2)
		s, err := Compare(u, bacou, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, plan := range []Outcome{s.Best, s.Whole} {
			r := Bound(s.User, bacou, BoundOptions{Whole: i == 1, Known: plan.Cost})
			if r.Best > plan.Cost || 2*r.Best < plan.Cost {
				t.Errorf("%d containers: %+v, want at most the %d of a plan, and not less than half of that", 1+n, r, plan.Cost)
			}
			gaps[i] += (1 - float64(r.Best)/float64(plan.Cost)) / users
		}
	}
	t.Logf("mean gap to the best plan: %.2f %% split, %.2f %% whole", 100*gaps[0], 100*gaps[1])
}

func BenchmarkBound(b *testing.B) {
	for _, n := range []struct{ containers, types int }{{5, 5}, {50, 30}, {200, 100}, {1000, 100}, {100_000, 12}, {100_000, 100_000}} {
		u := manyPods(n.containers, n.types)
		for _, o := range []struct {
			name string
			BoundOptions
		}{{"cheap", BoundOptions{MaxTypes: -1}}, {"all", BoundOptions{}}} {
			b.Run(fmt.Sprintf("containers=%d/types=%d/%s", n.containers, n.types, o.name), func(b *testing.B) {
				var r BoundResult
				for b.Loop() {
					r = Bound(u, bacou, o.BoundOptions)
				}
				b.ReportMetric(float64(r.Rounds), "rounds")
			})
		}
	}
}
