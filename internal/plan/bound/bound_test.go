package bound

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

const gib = 1 << 30

// bacou is Table 2 of Bacou et al., in billionths of a dollar.
var bacou = cluster.Catalogue{
	{Name: "large", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 * gib}, Price: 112_000_000},
	{Name: "xlarge", Size: cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 16 * gib}, Price: 224_000_000},
	{Name: "2xlarge", Size: cluster.Resources{CPU: 8 * cluster.VCPU, Memory: 32 * gib}, Price: 448_000_000},
	{Name: "4xlarge", Size: cluster.Resources{CPU: 16 * cluster.VCPU, Memory: 64 * gib}, Price: 896_000_000},
	{Name: "12xlarge", Size: cluster.Resources{CPU: 48 * cluster.VCPU, Memory: 192 * gib}, Price: 2_689_000_000},
	{Name: "24xlarge", Size: cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 * gib}, Price: 5_376_000_000},
}

// tenByTen is a catalogue of one model of 10 by 10 that costs 1.
var tenByTen = cluster.Catalogue{{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1}}

// podOf returns a pod of containers.
func podOf(requests ...cluster.Resources) cluster.Pod {
	var p cluster.Pod
	for _, r := range requests {
		p.Containers = append(p.Containers, cluster.Container{Request: r})
	}
	return p
}

func TestBoundByHand(t *testing.T) {
	large := []cluster.Resources{{CPU: 6, Memory: 1}, {CPU: 6, Memory: 1}, {CPU: 6, Memory: 1}}
	tests := []struct {
		name       string
		pods       []cluster.Pod
		catalogue  cluster.Catalogue
		whole      bool
		continuous int64
		largeItem  int64
		columns    int64
	}{
		{name: "nobody", catalogue: tenByTen},
		{"the paper's pod, split", []cluster.Pod{podOf(cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 * gib}, cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 16 * gib})}, bacou, false,
			336_000_000, 336_000_000, 336_000_000},
		{"the paper's pod, whole", []cluster.Pod{podOf(cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 * gib}, cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 16 * gib})}, bacou, true,
			336_000_000, 448_000_000, 448_000_000},
		{"nearly nothing needs the cheapest VM", []cluster.Pod{podOf(cluster.Resources{CPU: 1, Memory: 1})}, bacou, false,
			112_000_000, 112_000_000, 112_000_000},
		{"no request at all needs the cheapest VM", []cluster.Pod{podOf(cluster.Resources{})}, bacou, false,
			112_000_000, 112_000_000, 112_000_000},
		{"more than half cannot share", []cluster.Pod{podOf(large...)}, tenByTen, false, 2, 3, 3},
		{"more than a third shares by two", []cluster.Pod{podOf(cluster.Resources{CPU: 4, Memory: 0}, cluster.Resources{CPU: 4, Memory: 0}, cluster.Resources{CPU: 4, Memory: 0}, cluster.Resources{CPU: 4, Memory: 0}, cluster.Resources{CPU: 4, Memory: 0})},
			tenByTen, false, 2, 3, 3},
		{"each in its dimension can share", []cluster.Pod{podOf(cluster.Resources{CPU: 6, Memory: 1}, cluster.Resources{CPU: 1, Memory: 6})}, tenByTen, false, 1, 1, 1},
		// Any two of the three collide, in one dimension or the other, which no
		// function of one dimension sees.
		{"pairs collide in different dimensions", []cluster.Pod{podOf(cluster.Resources{CPU: 6, Memory: 3}, cluster.Resources{CPU: 5, Memory: 6}, cluster.Resources{CPU: 1, Memory: 8})}, tenByTen, false, 2, 2, 3},
		{"a limit of pods", []cluster.Pod{podOf(cluster.Resources{CPU: 1, Memory: 1}), podOf(cluster.Resources{CPU: 1, Memory: 1}), podOf(cluster.Resources{CPU: 1, Memory: 1})},
			cluster.Catalogue{{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1, Pods: 2}}, false, 2, 2, 2},
		{"a limit of pods is none of containers", []cluster.Pod{podOf(cluster.Resources{CPU: 1, Memory: 1}, cluster.Resources{CPU: 1, Memory: 1}, cluster.Resources{CPU: 1, Memory: 1})},
			cluster.Catalogue{{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1, Pods: 1}}, false, 1, 1, 1},
		{"an overhead stays with the first container", []cluster.Pod{{Overhead: cluster.Resources{CPU: 5, Memory: 0}, Containers: []cluster.Container{{Request: cluster.Resources{CPU: 6, Memory: 0}}, {Request: cluster.Resources{CPU: 1, Memory: 0}}}}},
			cluster.Catalogue{{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1}, {Size: cluster.Resources{CPU: 20, Memory: 20}, Price: 5}}, false, 2, 5, 5},
		{"a pod without anything needs no VM", []cluster.Pod{{}}, tenByTen, false, 0, 0, 0},
		{"a pod that must not be split", []cluster.Pod{{Whole: true, Containers: []cluster.Container{{Request: cluster.Resources{CPU: 5, Memory: 0}}, {Request: cluster.Resources{CPU: 6, Memory: 0}}}}},
			cluster.Catalogue{{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1}, {Size: cluster.Resources{CPU: 20, Memory: 20}, Price: 5}}, false, 2, 5, 5},
		{"memory is bought apart", []cluster.Pod{podOf(cluster.Resources{CPU: 1, Memory: 20}, cluster.Resources{CPU: 20, Memory: 1})},
			cluster.Catalogue{{Size: cluster.Resources{CPU: 20, Memory: 2}, Price: 3}, {Size: cluster.Resources{CPU: 2, Memory: 20}, Price: 4}, {Size: cluster.Resources{CPU: 20, Memory: 20}, Price: 9}}, false, 7, 7, 7},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Of(cluster.User{Pods: tt.pods}, tt.catalogue, Options{Whole: tt.whole})
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
	third := cluster.Resources{CPU: 20 * cluster.VCPU, Memory: gib}
	r := Of(cluster.User{Pods: []cluster.Pod{podOf(third, third, third)}}, bacou, Options{})
	if r.ColumnGeneration != 4_034_000_000 || r.WholeVMs != 5_376_000_000 || r.Best != r.WholeVMs {
		t.Errorf("%+v, want column generation 4,034,000,000 and whole VMs 5,376,000,000", r)
	}
}

func TestBoundLeavesOut(t *testing.T) {
	u := cluster.User{Pods: []cluster.Pod{podOf(cluster.Resources{CPU: 3, Memory: 3}), podOf(cluster.Resources{CPU: 6, Memory: 6}, cluster.Resources{CPU: 6, Memory: 6}), podOf(cluster.Resources{CPU: 2, Memory: 2}, cluster.Resources{CPU: 11, Memory: 1})}}
	if r := Of(u, tenByTen, Options{}); !slices.Equal(r.LeftOut, []int{2}) || r.Best != 2 {
		t.Errorf("split: %+v, want pod 2 left out and 2 VMs", r)
	}
	if r := Of(u, tenByTen, Options{Whole: true}); !slices.Equal(r.LeftOut, []int{1, 2}) || r.Best != 1 {
		t.Errorf("whole: %+v, want pods 1 and 2 left out and 1 VM", r)
	}
	if r := Of(u, nil, Options{}); len(r.LeftOut) != 3 || r.Best != 0 {
		t.Errorf("nothing on sale: %+v, want all left out", r)
	}
}

func TestBoundEffort(t *testing.T) {
	u := cluster.User{Pods: []cluster.Pod{podOf(cluster.Resources{CPU: 6, Memory: 3}, cluster.Resources{CPU: 5, Memory: 6}, cluster.Resources{CPU: 1, Memory: 8})}}
	tests := []struct {
		name    string
		options Options
		columns int64
		exact   bool
		rounds  int
	}{
		{"a known plan is reached by the cheap bounds", Options{Known: 2}, 0, false, 0},
		{"too many types", Options{MaxTypes: 2}, 0, false, 0},
		{"never", Options{MaxTypes: -1}, 0, false, 0},
		{"a gap is open", Options{Known: 3}, 3, true, 1},
		{"a gap is open, but no effort allowed", Options{Known: 3, MaxNodes: -1}, 2, false, 0},
	}
	for _, tt := range tests {
		r := Of(u, tenByTen, tt.options)
		if r.ColumnGeneration != tt.columns || r.Exact != tt.exact || r.Rounds != tt.rounds {
			t.Errorf("%s: %+v, want column generation %d, exact %v, %d rounds", tt.name, r, tt.columns, tt.exact, tt.rounds)
		}
	}
}

// randomCase is a user small enough for all plans to be tried.
func randomCase(rng *rand.Rand) (cluster.User, cluster.Catalogue) {
	limit := int64(4 + rng.IntN(40))
	var c cluster.Catalogue
	for range 1 + rng.IntN(4) {
		m := cluster.Model{Size: cluster.Resources{CPU: 1 + rng.Int64N(limit), Memory: 1 + rng.Int64N(limit)}}
		m.Price = (m.Size.CPU+m.Size.Memory)*100 + rng.Int64N(40*limit)
		if rng.IntN(2) == 0 {
			m.Price = m.Price / 100 * 1_000_000
		}
		if rng.IntN(4) == 0 {
			m.Pods = 1 + rng.IntN(3)
		}
		c = append(c, m)
	}
	var u cluster.User
	most := 1 + rng.Int64N(limit)
	for parts := 1 + rng.IntN(8); parts > 0; {
		p := cluster.Pod{Whole: rng.IntN(6) == 0}
		for range 1 + rng.IntN(min(4, parts)) {
			p.Containers = append(p.Containers, cluster.Container{Request: cluster.Resources{CPU: rng.Int64N(most), Memory: rng.Int64N(most)}})
			parts--
		}
		if rng.IntN(4) == 0 {
			p.Overhead = cluster.Resources{CPU: rng.Int64N(3), Memory: rng.Int64N(3)}
		}
		u.Pods = append(u.Pods, p)
	}
	return u, c
}

// piece is what goes on one VM as one.
type piece struct {
	pod   int
	rules *cluster.Rules
	size  cluster.Resources
}

// pieces returns what cannot be split, of the pods that are not left out.
func pieces(u cluster.User, whole bool, leftOut []int) []piece {
	var all []piece
	for i, p := range u.Pods {
		switch {
		case slices.Contains(leftOut, i):
		case whole || p.Whole:
			all = append(all, piece{i, p.Rules, p.Request()})
		default:
			for _, c := range p.Containers {
				all = append(all, piece{i, p.Rules, c.Request})
			}
			first := &all[len(all)-len(p.Containers)]
			first.size = first.size.Add(p.Overhead)
		}
	}
	return all
}

// optimum returns what the cheapest plan costs for the pods that can be placed, by
// trying for each set of pieces each of its subsets as one VM.
func optimum(u cluster.User, c cluster.Catalogue, whole bool, leftOut []int) int64 {
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

// legal is how many pods with a part of a limit a VM may have. Plans are stricter.
const legal = 2

// cheapestVM returns the price of the cheapest VM that holds a set of pieces.
func cheapestVM(all []piece, set int, c cluster.Catalogue) int64 {
	var sum cluster.Resources
	pods, taken := map[int]*cluster.Rules{}, 0
	for i, p := range all {
		if set>>i&1 == 0 {
			continue
		}
		for other, rules := range pods {
			if other != p.pod && rules.Clash(p.rules) {
				return math.MaxInt64 / 2
			}
		}
		if _, counted := pods[p.pod]; !counted && p.rules != nil {
			taken += len(p.rules.Takes)
		}
		sum = sum.Add(p.size)
		pods[p.pod] = p.rules
	}
	if taken > legal {
		return math.MaxInt64 / 2
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
				r := Of(u, c, Options{Whole: whole, Tolerance: -1})
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
				g := p.columnGeneration(Options{Tolerance: -1}.withDefaults(), 0, make([]float64, len(p.demands)))
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

// Pods that must be apart need as many VMs, of models that hold them.
func TestBoundApart(t *testing.T) {
	catalogue := cluster.Catalogue{
		{Size: cluster.Resources{CPU: 10, Memory: 10}, Price: 1},
		{Size: cluster.Resources{CPU: 100, Memory: 100}, Price: 5},
	}
	replicas := func(n int, number int32, cpu ...int64) (pods []cluster.Pod) {
		for range n {
			p := cluster.Pod{Rules: cluster.Apart(number)}
			for _, size := range cpu {
				p.Containers = append(p.Containers, cluster.Container{Request: cluster.Resources{CPU: size, Memory: 1}})
			}
			pods = append(pods, p)
		}
		return pods
	}
	tests := []struct {
		name string
		pods []cluster.Pod
		want int64
	}{
		{"twenty small pods", replicas(20, 1, 1), 20},
		{"of three large and two small ones, the small ones need other VMs", slices.Concat(replicas(3, 1, 20), replicas(2, 1, 1)), 17},
		{"two numbers share VMs", slices.Concat(replicas(20, 1, 1), replicas(12, 2, 1)), 20},
		{"two large VMs hold the others", slices.Concat(replicas(4, 1, 2), replicas(20, 0, 8)), 12},
		{"a pod that is split counts once", replicas(6, 1, 6, 3, 1), 6},
		{"a pod without anything does not count", slices.Concat(replicas(20, 1), replicas(3, 1, 1)), 3},
		{"pods that nothing holds do not count", slices.Concat(replicas(20, 1, 101), replicas(3, 1, 1)), 3},
	}
	for _, tt := range tests {
		if r := Of(cluster.User{Pods: tt.pods}, catalogue, Options{}); r.Best != tt.want {
			t.Errorf("%s: %+v, want %d", tt.name, r, tt.want)
		}
	}
}

// TestBoundApartNeverAboveOptimum tries all plans of random users with pods that must be apart.
func TestBoundApartNeverAboveOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var with, without, tight, n float64
	for range 4000 {
		u, c := randomCase(rng)
		free := cluster.User{Pods: slices.Clone(u.Pods)}
		for i := range u.Pods {
			if u.Pods[i].Rules = cluster.Apart(int32(rng.IntN(3))); rng.IntN(5) == 0 {
				u.Pods[i].Rules = &cluster.Rules{Takes: []cluster.Take{{Amount: 1}}}
			}
		}
		u.Limits = []cluster.Limit{{Most: 1, Legal: legal}}
		whole := rng.IntN(2) == 0
		o := Options{Whole: whole, MaxNodes: []int{0, 0, 30}[rng.IntN(3)], MaxTypes: []int{0, 0, -1}[rng.IntN(3)]}
		r := Of(u, c, o)
		best := optimum(u, c, whole, r.LeftOut)
		if r.Best > best {
			t.Fatalf("%+v above the optimum %d:\n%+v\n%+v", r, best, u, c)
		}
		if best == 0 {
			continue
		}
		ignored := Of(free, c, o)
		if r.Best < r.Apart || r.LargeItem != ignored.LargeItem || r.Apart > 0 && r.Apart < r.LargeItem {
			t.Fatalf("%+v, and without pods that must be apart %+v:\n%+v\n%+v", r, ignored, u, c)
		}
		n++
		with += 1 - float64(r.Best)/float64(best)
		without += 1 - float64(ignored.Best)/float64(best)
		if r.Best == best {
			tight++
		}
	}
	t.Logf("%.0f users; mean gap %.2f %%, without the inequalities %.2f %%; equal to the optimum: %.1f %%", n, 100*with/n, 100*without/n, 100*tight/n)
	if with > without/2 {
		t.Errorf("mean gap %.2f %%, and without the inequalities %.2f %%: want less than half", 100*with/n, 100*without/n)
	}
}

// TestBoundCutShort checks that bounds hold however early the effort is used up.
func TestBoundCutShort(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	inexact := 0
	for range 2000 {
		u, c := randomCase(rng)
		r := Of(u, c, Options{MaxRounds: 1 + rng.IntN(3), MaxNodes: 1 + rng.IntN(30)})
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
		before := Of(u, c, Options{Tolerance: -1, MaxNodes: 20_000})
		more, _ := randomCase(rng)
		u.Pods = append(u.Pods, more.Pods[0])
		after := Of(u, c, Options{Tolerance: -1, MaxNodes: 20_000})
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
		want := Of(u, c, Options{})
		rng.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
		rng.Shuffle(len(u.Pods), func(i, j int) { u.Pods[i], u.Pods[j] = u.Pods[j], u.Pods[i] })
		for _, p := range u.Pods {
			if p.Overhead != (cluster.Resources{}) {
				continue
			}
			rng.Shuffle(len(p.Containers), func(i, j int) { p.Containers[i], p.Containers[j] = p.Containers[j], p.Containers[i] })
		}
		got := Of(u, c, Options{})
		if len(got.LeftOut) != len(want.LeftOut) {
			t.Fatalf("left out %v, and in another order %v", want.LeftOut, got.LeftOut)
		}
		got.LeftOut, want.LeftOut = nil, nil
		for _, r := range []*Result{&got, &want} {
			r.relaxation, r.fillings, r.program = nil, nil, nil // which number models as the catalogue does
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, and in another order %+v", want, got)
		}
	}
}

// manyPods returns a user with so many containers, in pods of up to four, of so many
// distinct sizes.
func manyPods(containers, types int) cluster.User {
	rng := rand.New(rand.NewPCG(9, 10))
	sizes := make([]cluster.Resources, types)
	for i := range sizes {
		sizes[i] = cluster.Resources{CPU: (1 + rng.Int64N(8000)) * cluster.VCPU / 1000, Memory: (1 + rng.Int64N(32<<10)) << 20}
	}
	var u cluster.User
	for containers > 0 {
		var p cluster.Pod
		for range min(containers, 1+rng.IntN(4)) {
			p.Containers = append(p.Containers, cluster.Container{Request: sizes[rng.IntN(types)]})
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
	r := Of(u, bacou, Options{Tolerance: -1})
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

// TestPatternsOfManyTypes: with more types than fewTypes there are patterns only if there are many
// items of each. They make a cheaper plan than a search.
func TestPatternsOfManyTypes(t *testing.T) {
	few := manyPods(40*(fewTypes+10), fewTypes+10)
	if r := Of(few, bacou, Options{}); r.Types <= fewTypes || r.Rounds > 0 {
		t.Errorf("%d types of 40 items each: %d rounds, want none", r.Types, r.Rounds)
	}
	many := manyPods((manyOfEach+1)*(fewTypes+10), fewTypes+10)
	r := Of(many, bacou, Options{})
	if r.Types <= fewTypes || r.Rounds == 0 || r.Rounds > fewRounds {
		t.Fatalf("%d types of %d items each: %d rounds, want 1 to %d", r.Types, manyOfEach+1, r.Rounds, fewRounds)
	}
	plan, ok := r.Plan(many, bacou, false, false)
	if !ok {
		t.Fatal("the patterns make no plan")
	}
	if !pack.Holds(many, bacou, plan) {
		t.Error("the plan of the patterns does not hold the pods")
	}
	found, err := pack.Compare(many, bacou, pack.Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	if cost := costOf(plan, bacou); cost < r.Best || cost >= found.Best.Cost {
		t.Errorf("the patterns cost %d, the search %d, the bound is %d", cost, found.Best.Cost, r.Best)
	}
}

func costOf(plan cluster.Plan, c cluster.Catalogue) (sum int64) {
	for _, vm := range plan.VMs {
		sum += c[vm.Model].Price
	}
	return sum
}

// TestBoundBelowPlans compares with what the planners make of users that are too
// large for all plans to be tried. It logs the mean gaps.
func TestBoundBelowPlans(t *testing.T) {
	var gaps [2]float64
	const users = 60
	for n := range users {
		u := manyPods(1+n, 1+n/2)
		s, err := pack.Compare(u, bacou, pack.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, plan := range []pack.Outcome{s.Best, s.Whole} {
			r := Of(s.User, bacou, Options{Whole: i == 1, Known: plan.Cost})
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
			Options
		}{{"cheap", Options{MaxTypes: -1}}, {"all", Options{}}} {
			b.Run(fmt.Sprintf("containers=%d/types=%d/%s", n.containers, n.types, o.name), func(b *testing.B) {
				var r Result
				for b.Loop() {
					r = Of(u, bacou, o.Options)
				}
				b.ReportMetric(float64(r.Rounds), "rounds")
			})
		}
	}
}
