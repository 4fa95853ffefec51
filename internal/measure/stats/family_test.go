package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestJudge(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		name  string
		ps    []float64
		tests int
		found int
		level float64
	}{
		{"none", nil, 0, 0, 0.05},
		{"undefined", []float64{nan, nan}, 0, 0, 0.05},
		{"one", []float64{0.04}, 1, 1, 0.05},
		{"one, nothing", []float64{0.06}, 1, 0, 0.05},
		{"nothing of four", []float64{0.013, 0.9, 0.5, 0.6}, 4, 0, 0.0125},
		{"all", []float64{0.04, 0.03, 0.05}, 3, 3, 0.05},
		{"step up", []float64{0.03, 0.034, 0.9, nan}, 3, 0, 0.05 / 3},
		{"the second carries the first", []float64{0.03, 0.033, 0.9}, 3, 2, 0.1 / 3},
	} {
		if got := Judge(tc.ps, 0.05); got.Tests != tc.tests || got.Found != tc.found || !near(got.Level, tc.level, 1e-15) {
			t.Errorf("%s: %+v, want %d of %d at %v", tc.name, got, tc.found, tc.tests, tc.level)
		}
	}
}

// bruteFound is the procedure by its definition: the largest set of k values that are all
// at most rate·k/n.
func bruteFound(ps []float64, rate float64) int {
	for k := len(ps); k > 0; k-- {
		under := 0
		for _, p := range ps {
			if p <= rate*float64(k)/float64(len(ps)) {
				under++
			}
		}
		if under >= k {
			return k
		}
	}
	return 0
}

// TestVerdictIsTheInterval: over random reports, the found differences are those whose
// interval excludes 1, and no others.
func TestVerdictIsTheInterval(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	verdicts := map[Verdict]int{}
	for range 10000 {
		effects := make([]Effect, 1+rng.IntN(24))
		ps := make([]float64, len(effects))
		for i := range effects {
			n := 5 + rng.IntN(10)
			effects[i] = Effect{Log: rng.NormFloat64() * rng.ExpFloat64() * 0.1, StdErr: 0.03 * rng.ExpFloat64(), N: n, DF: float64(n - 1)}
			ps[i] = effects[i].P()
		}
		f := Judge(ps, 0.05)
		var defined []float64
		for _, p := range ps {
			if !math.IsNaN(p) {
				defined = append(defined, p)
			}
		}
		if f.Found != bruteFound(defined, 0.05) {
			t.Fatalf("found %d of %v, want %d", f.Found, defined, bruteFound(defined, 0.05))
		}
		excluded := 0
		for i, e := range effects {
			interval, verdict := e.Judge(f, 0.05, i%2 == 0)
			verdicts[verdict]++
			outside := interval.Defined() && !interval.Contains(1)
			if outside {
				excluded++
			}
			if outside != (verdict == Better || verdict == Worse) || outside != (ps[i] <= f.Level) {
				t.Fatalf("%+v: interval %+v, p = %v at %v, verdict %s", e, interval, ps[i], f.Level, verdict)
			}
			if verdict == Better && (interval.Low > 1) != (i%2 == 0) {
				t.Fatalf("%+v better, interval %+v", e, interval)
			}
		}
		if excluded != f.Found {
			t.Fatalf("%d intervals exclude 1, %d found", excluded, f.Found)
		}
	}
	for _, v := range []Verdict{Better, Worse, Equal, Unknown, TooFew} {
		if verdicts[v] == 0 {
			t.Errorf("no report had the verdict %q", v)
		}
	}
}
