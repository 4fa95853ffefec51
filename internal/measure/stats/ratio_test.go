package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// inBlocks gives the i-th value block i.
func inBlocks(xs ...float64) []Observation {
	obs := make([]Observation, len(xs))
	for i, x := range xs {
		obs[i] = Observation{i, x}
	}
	return obs
}

func TestBlockMedians(t *testing.T) {
	got := BlockMedians([]Observation{{3, 7}, {1, 5}, {3, 1}, {1, 9}, {1, 6}})
	want := []Observation{{1, 6}, {3, 4}}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := BlockMedians(nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestPairs(t *testing.T) {
	joined, both := pairs([]Observation{{0, 1}, {1, 2}}, []Observation{{1, 20}, {2, 30}})
	want := []pair{{1, 0, true, false}, {2, 20, true, true}, {0, 30, false, true}}
	if both != 1 || len(joined) != 3 || joined[0] != want[0] || joined[1] != want[1] || joined[2] != want[2] {
		t.Errorf("got %+v with %d in both, want %+v with 1", joined, both, want)
	}
}

func TestRatioKnown(t *testing.T) {
	got, err := Ratio([]float64{2, 4, 600}, []float64{1, 2, 3}, 0.95, 1)
	if err != nil || got.Point != 2 || got.Paired {
		t.Errorf("got %+v, error %v, want point 2", got, err)
	}
	if got.Interval.Low < 2.0/3 || got.Interval.High > 600 || !got.Interval.Contains(2) {
		t.Errorf("interval %+v outside the range of ratios or without the point", got.Interval)
	}
	if got, err := Ratio([]float64{5, 5, 5}, []float64{4, 4, 4}, 0.95, 1); err != nil || got.Interval != (Interval{1.25, 1.25, 0.95}) {
		t.Errorf("constant sides: %+v, error %v", got, err)
	}
	if got, err := Ratio([]float64{0, 0, 0}, []float64{1, 2, 3}, 0.95, 1); err != nil || got.Point != 0 {
		t.Errorf("numerator of zeros: %+v, error %v", got, err)
	}
	if got, err := Ratio([]float64{6}, []float64{1, 2, 3}, 0.95, 1); err != nil || got.Point != 3 || got.Interval.Defined() {
		t.Errorf("one sample: %+v, error %v, want 3 without interval", got, err)
	}
	if got, err := BlockRatio(inBlocks(6), inBlocks(2), 0.95, 1); err != nil || got.Point != 3 || got.Interval.Defined() {
		t.Errorf("one block: %+v, error %v, want 3 without interval", got, err)
	}
}

func TestRatioErrors(t *testing.T) {
	ones := []float64{1, 1, 1}
	for _, tc := range []struct {
		name string
		a, b []float64
		want error
	}{
		{"empty numerator", nil, ones, ErrTooFew},
		{"empty denominator", ones, nil, ErrTooFew},
		{"zero in denominator", ones, []float64{1, 0, 1}, ErrNotPositive},
		{"zero median", ones, []float64{0, 0, 0}, ErrNotPositive},
		{"negative numerator", []float64{1, -1, 1}, ones, ErrNotPositive},
		{"NaN", []float64{math.NaN(), 1, 1}, ones, ErrNotFinite},
		{"infinite", ones, []float64{math.Inf(1), 1, 1}, ErrNotFinite},
	} {
		if got, err := Ratio(tc.a, tc.b, 0.95, 1); !errors.Is(err, tc.want) || !math.IsNaN(got.Point) {
			t.Errorf("%s: %+v, error %v, want %v", tc.name, got, err, tc.want)
		}
		if got, err := BlockRatio(inBlocks(tc.a...), inBlocks(tc.b...), 0.95, 1); !errors.Is(err, tc.want) || !math.IsNaN(got.Point) {
			t.Errorf("%s, in blocks: %+v, error %v, want %v", tc.name, got, err, tc.want)
		}
	}
	if _, err := Ratio(ones, ones, 1.5, 1); err == nil {
		t.Error("confidence 1.5: no error")
	}
	if _, err := BlockRatio(inBlocks(1, 1), inBlocks(1, 1), 0, 1); err == nil {
		t.Error("confidence 0: no error")
	}
}

func TestRatioDeterministic(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	a, b := normals(rng, 8, 110, 10), normals(rng, 8, 100, 10)
	first, err := Ratio(a, b, 0.95, 42)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Ratio(a, b, 0.95, 42)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Ratio(a, b, 0.95, 43)
	if err != nil {
		t.Fatal(err)
	}
	if first != again {
		t.Errorf("equal seeds: %+v, then %+v", first, again)
	}
	width := first.Interval.High - first.Interval.Low
	if !near(first.Interval.Low, other.Interval.Low, width/5) || !near(first.Interval.High, other.Interval.High, width/5) {
		t.Errorf("seeds 42 and 43 differ by more than a fifth of the width: %+v, %+v", first, other)
	}
}

// TestRatioProperties: the order and the scale of the samples do not matter, and a higher
// confidence gives a wider interval.
func TestRatioProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 0))
	for range 50 {
		a, b := normals(rng, 2+rng.IntN(9), 50, 5), normals(rng, 2+rng.IntN(9), 50, 5)
		wide, err := Ratio(a, b, 0.99, 1)
		if err != nil {
			t.Fatal(err)
		}
		narrow, err := Ratio(a, b, 0.80, 1)
		if err != nil {
			t.Fatal(err)
		}
		if wide.Interval.Low > narrow.Interval.Low || wide.Interval.High < narrow.Interval.High {
			t.Errorf("99 %% %+v does not hold 80 %% %+v", wide.Interval, narrow.Interval)
		}
		scaled := make([]float64, len(a))
		for i := range a {
			scaled[i] = 4 * a[i]
		}
		by4, err := Ratio(scaled, b, 0.99, 1)
		if err != nil {
			t.Fatal(err)
		}
		if by4.Point != 4*wide.Point || by4.Interval != (Interval{4 * wide.Interval.Low, 4 * wide.Interval.High, 0.99}) {
			t.Errorf("scaled by 4: %+v after %+v", by4, wide)
		}
	}
}

// TestBlockRatioCancelsCommonNoise: when a is exactly 1.25 b in every block,
// the block interval collapses, however much the blocks differ.
func TestBlockRatioCancelsCommonNoise(t *testing.T) {
	b := inBlocks(100, 140, 90, 300, 120)
	a := make([]Observation, len(b))
	for i, o := range b {
		a[i] = Observation{o.Block, 1.25 * o.Value}
	}
	got, err := BlockRatio(a, b, 0.95, 1)
	if err != nil || got.Point != 1.25 || got.Interval != (Interval{1.25, 1.25, 0.95}) || !got.Paired {
		t.Errorf("got %+v, error %v, want 1.25 sharp", got, err)
	}
	apart, err := Ratio(Values(a), Values(b), 0.95, 1)
	if err != nil || apart.Point != got.Point || apart.Interval.High-apart.Interval.Low < 0.5 {
		t.Errorf("independent resampling: %+v, error %v, want the same point and a wide interval", apart, err)
	}
}

func TestBlockRatioMissingSides(t *testing.T) {
	a, b := []Observation{{0, 10}, {1, 11}, {2, 12}}, []Observation{{2, 5}, {3, 6}, {4, 7}}
	got, err := BlockRatio(a, b, 0.95, 1)
	if err != nil || !near(got.Point, 11.0/6, 1e-15) || got.Interval.Low < 10.0/7 || got.Interval.High > 12.0/5 {
		t.Errorf("got %+v, error %v, want 11/6 within [10/7, 12/5]", got, err)
	}
}

// TestRatioCoverage simulates how often the intervals include the true ratio, on
// skewed data; the paired one with noise common to the blocks.
func TestRatioCoverage(t *testing.T) {
	const runs, truth = 500, 1.1
	for _, n := range []int{6, 10} {
		rng := rand.New(rand.NewPCG(8, uint64(n)))
		apart, paired := 0, 0
		for seed := range uint64(runs) {
			a, b := make([]float64, n), make([]float64, n)
			oa, ob := make([]Observation, n), make([]Observation, n)
			for i := range n {
				a[i], b[i] = 110*math.Exp(0.2*rng.NormFloat64()), 100*math.Exp(0.2*rng.NormFloat64())
				common := math.Exp(rng.NormFloat64())
				oa[i], ob[i] = Observation{i, common * a[i]}, Observation{i, common * b[i]}
			}
			ra, err := Ratio(a, b, 0.95, seed)
			if err != nil {
				t.Fatal(err)
			}
			rb, err := BlockRatio(oa, ob, 0.95, seed)
			if err != nil {
				t.Fatal(err)
			}
			if ra.Interval.Contains(truth) {
				apart++
			}
			if rb.Interval.Contains(truth) {
				paired++
			}
		}
		for name, hits := range map[string]int{"independent": apart, "paired": paired} {
			if coverage := float64(hits) / runs; coverage < 0.90 || coverage > 0.995 {
				t.Errorf("%s, n = %d: coverage %v, want about 0.95", name, n, coverage)
			}
		}
	}
}

func BenchmarkBlockRatio(b *testing.B) {
	rng := rand.New(rand.NewPCG(9, 0))
	x, y := inBlocks(normals(rng, 6, 110, 5)...), inBlocks(normals(rng, 6, 100, 5)...)
	for b.Loop() {
		if _, err := BlockRatio(x, y, 0.95, 1); err != nil {
			b.Fatal(err)
		}
	}
}
