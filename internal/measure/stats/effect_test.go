package stats

import (
	"errors"
	"math"
	"slices"
	"testing"
)

func inBlocks(xs ...float64) []Observation {
	obs := make([]Observation, len(xs))
	for i, x := range xs {
		obs[i] = Observation{i, x}
	}
	return obs
}

func compare(t *testing.T, a, b []Observation, interleaved bool) Effect {
	t.Helper()
	e, err := Compare(a, b, interleaved)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// near1 reports whether a is b up to a relative error.
func near1(a, b, relative float64) bool { return near(a, b, relative*math.Abs(b)) }

var (
	slow = inBlocks(231.2, 240.1, 170.7, 252.0, 229.5, 238.8, 244.4)
	fast = inBlocks(173.3, 186.9, 170.9, 181.2, 175.5, 172.8, 190.3)
)

// TestComparePaired compares with scipy.stats.ttest_1samp and t.interval of the log ratios.
func TestComparePaired(t *testing.T) {
	e := compare(t, slow, fast, true)
	if !e.Paired || e.N != 7 || e.DF != 6 || !near1(e.Ratio(), 1.276591860840794, 1e-14) {
		t.Errorf("got %+v, ratio %v", e, e.Ratio())
	}
	if !near1(e.Log/e.StdErr, 5.724670192189745, 1e-12) || !near1(e.P(), 0.0012323293291051497, 1e-12) {
		t.Errorf("t = %v, p = %v", e.Log/e.StdErr, e.P())
	}
	for confidence, want := range map[float64][2]float64{
		0.95:   {1.1500638081657584, 1.4170403134102234},
		0.975:  {1.1247495418542934, 1.4489330455544924},
		0.9979: {1.0244919542381088, 1.5907267718631544},
	} {
		i := e.Interval(confidence)
		if !near1(i.Low, want[0], 1e-12) || !near1(i.High, want[1], 1e-12) || i.Confidence != confidence {
			t.Errorf("at %v: %+v, want %v", confidence, i, want)
		}
	}
	back := compare(t, fast, slow, true)
	if !near1(back.Ratio()*e.Ratio(), 1, 1e-14) || back.P() != e.P() {
		t.Errorf("exchanged: %+v after %+v", back, e)
	}
}

// TestCompareSeparate compares with scipy.stats.ttest_ind of the logarithms, with unequal
// variances.
func TestCompareSeparate(t *testing.T) {
	elsewhere := make([]Observation, 6)
	for i, o := range fast[:6] {
		elsewhere[i] = Observation{o.Block + 100, o.Value}
	}
	for name, e := range map[string]Effect{
		"not interleaved": compare(t, slow, fast[:6], false), "no shared block": compare(t, slow, elsewhere, true),
	} {
		i := e.Interval(0.95)
		if e.Paired || e.N != 6 || !near1(e.DF, 6.928511449361853, 1e-12) || !near1(e.P(), 0.0017288224594445938, 1e-12) ||
			!near1(i.Low, 1.1417245107204552, 1e-12) || !near1(i.High, 1.45799918764793, 1e-12) {
			t.Errorf("%s: %+v, p = %v, %+v", name, e, e.P(), i)
		}
	}
}

func TestCompareByBlock(t *testing.T) {
	often := slices.Concat(slow, slow, slow)
	if once, repeated := compare(t, slow, fast, true), compare(t, often, fast, true); once != repeated {
		t.Errorf("three equal values in each block: %+v, want %+v", repeated, once)
	}
	a := []Observation{{2, 4}, {0, 1}, {2, 9}, {3, 5}}
	if got, want := ByBlock(a), []Observation{{0, 1}, {2, 6}, {3, 5}}; !slices.EqualFunc(got, want, func(x, y Observation) bool {
		return x.Block == y.Block && near(x.Value, y.Value, 1e-12)
	}) {
		t.Errorf("geometric means by block: %v, want %v", got, want)
	}
	if got := ByBlock([]Observation{{1, 0}, {1, 3}}); got[0].Value != 1.5 {
		t.Errorf("with a zero: %v, want the mean", got)
	}
	// Blocks without the other side do not count.
	if e := compare(t, slow, fast[:3], true); e.N != 3 || !e.Paired {
		t.Errorf("three shared blocks of seven: %+v", e)
	}
}

func TestCompareWithoutTest(t *testing.T) {
	for name, e := range map[string]Effect{
		"one block":        compare(t, slow[:1], fast[:1], true),
		"five blocks":      compare(t, slow[:5], fast[:5], true),
		"constant ratio":   compare(t, slow, slow, true),
		"one, separate":    compare(t, slow[:1], fast, false),
		"constant, apart":  compare(t, inBlocks(2, 2, 2, 2, 2, 2), inBlocks(1, 1, 1, 1, 1, 1), false),
		"five shared only": compare(t, slow[2:], fast, true),
	} {
		i, verdict := e.Judge(Family{Level: 0.05}, 0.05, true)
		if e.Testable() || !math.IsNaN(e.P()) || i.Defined() || verdict != TooFew || !math.IsNaN(e.Detectable(0.05, 0.8)) || e.BlocksFor(0.05, 0.95, 100) != 0 || e.BlocksToDecide(0.05, 0.05, 100) != 0 {
			t.Errorf("%s: %+v, p = %v, %+v, %s", name, e, e.P(), i, verdict)
		}
		if !(e.Ratio() > 0) {
			t.Errorf("%s: ratio %v", name, e.Ratio())
		}
	}
}

func TestCompareErrors(t *testing.T) {
	hidden := append(inBlocks(1, 2, 3), Observation{0, math.NaN()}, Observation{0, 2})
	for name, tc := range map[string]struct {
		bad  []Observation
		want error
	}{
		"empty": {nil, ErrTooFew}, "NaN": {hidden, ErrNotFinite}, "zero": {inBlocks(1, 0), ErrNotPositive}, "negative": {inBlocks(-1), ErrNotPositive},
	} {
		if _, err := Compare(tc.bad, fast, true); !errors.Is(err, tc.want) {
			t.Errorf("%s: error %v, want %v", name, err, tc.want)
		}
		if _, err := Compare(fast, tc.bad, true); !errors.Is(err, tc.want) {
			t.Errorf("%s as baseline: error %v, want %v", name, err, tc.want)
		}
	}
}

func TestBlocksFor(t *testing.T) {
	e := compare(t, slow, fast, true)
	n := e.BlocksFor(0.05, 0.95, 10000)
	half := func(n int) float64 {
		return tCritical(0.05, float64(n-1)) * e.StdErr * math.Sqrt(7/float64(n))
	}
	if !(half(n) <= math.Log(1.05)) || half(n-1) <= math.Log(1.05) {
		t.Errorf("%d blocks: half width %v, with one less %v, want log 1.05 = %v between", n, half(n), half(n-1), math.Log(1.05))
	}
	if got := e.BlocksFor(1, 0.95, 100); got != MinRepetitions {
		t.Errorf("a coarse precision: %d blocks, want %d", got, MinRepetitions)
	}
	if got := e.BlocksFor(1e-9, 0.95, 50); got != 50 {
		t.Errorf("an unreachable precision: %d blocks, want the limit", got)
	}
}

func TestBlocksToDecide(t *testing.T) {
	for _, tc := range []struct {
		name string
		log  float64
	}{{"a clear difference", 0.1}, {"a slight difference", 0.02}, {"none", 0}} {
		e := Effect{Log: tc.log, StdErr: 0.1 / math.Sqrt(6), DF: 5, N: 6, Paired: true}
		n := e.BlocksToDecide(0.05, 0.05, 100000)
		decided := func(n int) bool {
			stdErr, df := 0.1/math.Sqrt(float64(n)), float64(n-1)
			return power(tc.log/stdErr, 0.05, df) >= 0.8 || tc.log+tCritical(0.05, df)*stdErr <= math.Log(1.05)
		}
		// Within one block, because the power is approximated.
		if !decided(n+1) || decided(n-2) {
			t.Errorf("%s: %d blocks; decided with %d: %v, with %d: %v", tc.name, n, n+1, decided(n+1), n-2, decided(n-2))
		}
	}
}

func TestVerdict(t *testing.T) {
	effect := func(log, stdErr float64) Effect { return Effect{Log: log, StdErr: stdErr, DF: 5, N: 6, Paired: true} }
	for _, tc := range []struct {
		name   string
		e      Effect
		higher bool
		want   Verdict
	}{
		{"more throughput", effect(0.2, 0.01), true, Better},
		{"more latency", effect(0.2, 0.01), false, Worse},
		{"less throughput", effect(-0.2, 0.01), true, Worse},
		{"less latency", effect(-0.2, 0.01), false, Better},
		{"close", effect(0.01, 0.01), true, Equal},
		{"close, but different", effect(0.01, 0.001), true, Better},
		{"wide", effect(0.01, 0.1), true, Unknown},
	} {
		if _, got := tc.e.Judge(Family{Level: 0.05}, 0.05, tc.higher); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
