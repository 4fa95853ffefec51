package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestHolm(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct{ ps, want []float64 }{
		{nil, nil},
		{[]float64{0.03}, []float64{0.03}},
		{[]float64{0.01, 0.04, 0.03, 0.005}, []float64{0.03, 0.06, 0.06, 0.02}},
		{[]float64{0.6, 0.5}, []float64{1, 1}},
		{[]float64{nan, 0.02, nan, 0.01}, []float64{nan, 0.02, nan, 0.02}},
		{[]float64{nan}, []float64{nan}},
	} {
		got := Holm(tc.ps)
		if !sameFloats(got, tc.want) {
			t.Errorf("Holm(%v) = %v, want %v", tc.ps, got, tc.want)
		}
	}
}

func sameFloats(got, want []float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if math.IsNaN(got[i]) != math.IsNaN(want[i]) || math.Abs(got[i]-want[i]) > 1e-12 {
			return false
		}
	}
	return true
}

// rejectedByHolm is the procedure as defined: visit the tests from the smallest p, reject
// while p ≤ α/(tests left), and stop at the first larger one.
func rejectedByHolm(ps []float64, alpha float64) []bool {
	rejected := make([]bool, len(ps))
	left := 0
	for _, p := range ps {
		if !math.IsNaN(p) {
			left++
		}
	}
	for ; left > 0; left-- {
		smallest := -1
		for i, p := range ps {
			if !rejected[i] && !math.IsNaN(p) && (smallest < 0 || p < ps[smallest]) {
				smallest = i
			}
		}
		if ps[smallest] > alpha/float64(left) {
			break
		}
		rejected[smallest] = true
	}
	return rejected
}

func TestHolmBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	for range 2000 {
		ps := make([]float64, rng.IntN(8))
		for i := range ps {
			ps[i] = math.Pow(rng.Float64(), 3)
			if rng.IntN(6) == 0 {
				ps[i] = math.NaN()
			} else if i > 0 && rng.IntN(5) == 0 {
				ps[i] = ps[i-1]
			}
		}
		alpha := rng.Float64() / 3
		adjusted := Holm(ps)
		for i, want := range rejectedByHolm(ps, alpha) {
			if got := adjusted[i] <= alpha; got != want {
				t.Fatalf("Holm(%v)[%d] = %v at α = %v: rejected %v, want %v", ps, i, adjusted[i], alpha, got, want)
			}
		}
	}
}
