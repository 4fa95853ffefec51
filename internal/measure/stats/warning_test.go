package stats

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
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
		want []Warning
	}{
		{"none", inBlocks(steady...), nil},
		{"empty", nil, []Warning{{Kind: Unusable, Err: ErrTooFew}}},
		{"NaN", inBlocks(1, math.NaN()), []Warning{{Kind: Unusable, Err: ErrNotFinite}}},
		{"three", inBlocks(100, 102, 101), []Warning{{Kind: FewRepetitions, N: 3}}},
		{"one", inBlocks(100), []Warning{{Kind: FewRepetitions, N: 1}}},
		{"constant", inBlocks(5, 5, 5, 5, 5, 5), []Warning{{Kind: NoVariance, N: 6, Value: 5}}},
		{"zeros", inBlocks(0, 0, 0, 0, 0, 0), []Warning{{Kind: NoVariance, N: 6}}},
		{"noisy", inBlocks(80, 120, 100, 85, 115, 100), []Warning{{Kind: Noisy, Value: 0.158}}},
		{"mean zero", inBlocks(-1, 1, -2, 2, -3, 3), nil},
		{"outlier", inBlocks(100, 101, 99, 115, 98, 100.5), []Warning{{Kind: Outliers, N: 1, Of: 6}}},
		{"rising", inBlocks(100, 101, 102, 103, 104, 105), []Warning{{Kind: Drift, N: 6, Value: 0.0085}}},
		{"falling", inBlocks(105, 104, 103, 102, 101, 100), []Warning{{Kind: Drift, N: 6, Value: 0.0085}}},
		{"two in a block", append(inBlocks(steady...), Observation{5, 100}), []Warning{{Kind: Repeated, N: 7, Of: 6}}},
		{"one block", []Observation{{0, 100}, {0, 101}, {0, 99}, {0, 100}, {0, 99.5}, {0, 100.2}},
			[]Warning{{Kind: FewRepetitions, N: 1}, {Kind: Repeated, N: 6, Of: 1}}},
	} {
		same := func(a, b Warning) bool {
			return a.Kind == b.Kind && a.N == b.N && a.Of == b.Of && near(a.Value, b.Value, 0.001) && errors.Is(a.Err, b.Err)
		}
		if got := Warnings(tc.obs); !slices.EqualFunc(got, tc.want, same) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
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
