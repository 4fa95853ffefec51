package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func kinds(warnings []Warning) []Kind {
	var ks []Kind
	for _, d := range warnings {
		ks = append(ks, d.Kind)
	}
	return ks
}

func TestWarnings(t *testing.T) {
	steady := []float64{100, 101, 99, 102, 98, 100.5}
	for _, tc := range []struct {
		name string
		obs  []Observation
		want []Kind
		text string // part of the text of the last
	}{
		{"none", inBlocks(steady...), nil, ""},
		{"empty", nil, []Kind{Unusable}, "too few samples"},
		{"NaN", inBlocks(1, math.NaN()), []Kind{Unusable}, "NaN"},
		{"three", inBlocks(100, 102, 101), []Kind{FewRepetitions}, "fewer than 6 repetitions (3): a rank test of two such samples cannot give p below 0.1"},
		{"one", inBlocks(100), []Kind{FewRepetitions}, "below 1"},
		{"constant", inBlocks(5, 5, 5, 5, 5, 5), []Kind{NoVariance}, "all 6 values are 5"},
		{"zeros", inBlocks(0, 0, 0, 0, 0, 0), []Kind{NoVariance}, "all 6 values are 0"},
		{"noisy", inBlocks(80, 120, 100, 85, 115, 100), []Kind{Noisy}, "16 % of the mean"},
		{"mean zero", inBlocks(-1, 1, -2, 2, -3, 3), nil, ""},
		{"outlier", inBlocks(100, 101, 99, 115, 98, 100.5), []Kind{Outliers}, "1 of 6 values"},
		{"rising", inBlocks(100, 101, 102, 103, 104, 105), []Kind{Drift}, "over the 6 blocks"},
		{"falling", inBlocks(105, 104, 103, 102, 101, 100), []Kind{Drift}, "over the 6 blocks"},
		{"two in a block", append(inBlocks(steady...), Observation{5, 100}), []Kind{Repeated}, "(values: 7, blocks: 6)"},
		{"one block", []Observation{{0, 100}, {0, 101}, {0, 99}, {0, 100}, {0, 99.5}, {0, 100.2}},
			[]Kind{FewRepetitions, Repeated}, "(values: 6, blocks: 1)"},
	} {
		got := Warnings(tc.obs)
		if !slices.Equal(kinds(got), tc.want) {
			t.Errorf("%s: %+v, want %v", tc.name, got, tc.want)
			continue
		}
		if len(got) > 0 && !strings.Contains(got[len(got)-1].Text, tc.text) {
			t.Errorf("%s: text %q, want it to hold %q", tc.name, got[len(got)-1].Text, tc.text)
		}
	}
}

// TestWarningsFollowBlocks: drift is over blocks, not over positions.
func TestWarningsFollowBlocks(t *testing.T) {
	obs := []Observation{{4, 104}, {0, 100}, {5, 105}, {2, 102}, {1, 101}, {3, 103}}
	if got := kinds(Warnings(obs)); !slices.Equal(got, []Kind{Drift}) {
		t.Errorf("warnings %v, want drift", got)
	}
}

func TestLeastRankP(t *testing.T) {
	for n, want := range map[int]float64{1: 1, 2: 1.0 / 3, 3: 0.1, 4: 2.0 / 70, 6: 2.0 / 924} {
		if got := leastRankP(n); !near(got, want, 1e-15) {
			t.Errorf("n = %d: %v, want %v", n, got, want)
		}
	}
}

// TestTrend compares the approximation with the enumeration of all orders.
func TestTrend(t *testing.T) {
	for _, xs := range [][]float64{{1, 2, 3, 4, 5, 6, 7}, {1, 2, 2, 3, 4, 4, 5}} {
		statistic := func(xs []float64) float64 {
			s := 0.0
			for i, x := range xs {
				for _, y := range xs[i+1:] {
					s += float64(cmp.Compare(y, x))
				}
			}
			return math.Abs(s)
		}
		rng := rand.New(rand.NewPCG(10, 0))
		var all []float64
		permute(slices.Clone(xs), 0, func(order []float64) { all = append(all, statistic(order)) })
		for range 30 {
			rng.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
			far, seen := 0, statistic(xs)
			for _, s := range all {
				if s >= seen {
					far++
				}
			}
			if got, want := trendP(xs), float64(far)/float64(len(all)); !near(got, want, 0.04) {
				t.Errorf("%v: p = %v, exactly %v", xs, got, want)
			}
		}
	}
	for _, xs := range [][]float64{nil, {1}, {1, 1, 1, 1}} {
		if got := trendP(xs); got != 1 {
			t.Errorf("%v: p = %v, want 1", xs, got)
		}
	}
}

func permute(xs []float64, from int, visit func([]float64)) {
	if from == len(xs) {
		visit(xs)
		return
	}
	for i := from; i < len(xs); i++ {
		xs[from], xs[i] = xs[i], xs[from]
		permute(xs, from+1, visit)
		xs[from], xs[i] = xs[i], xs[from]
	}
}

// TestFalseWarnings: undisturbed samples of six rarely give a warning.
func TestFalseWarnings(t *testing.T) {
	const runs = 3000
	rng := rand.New(rand.NewPCG(11, 0))
	count := map[Kind]int{}
	for range runs {
		for _, d := range Warnings(inBlocks(normals(rng, 6, 100, 3)...)) {
			count[d.Kind]++
		}
	}
	for kind, limit := range map[Kind]float64{Outliers: 0.04, Drift: 0.01, Noisy: 0.001, FewRepetitions: 0, NoVariance: 0} {
		if rate := float64(count[kind]) / runs; rate > limit {
			t.Errorf("%s in %v of the samples, want at most %v", kind, rate, limit)
		}
	}
}
