package pacing

import (
	"slices"
	"testing"
)

// climb raises the load of a server until the end, and returns the rates.
func climb(r *Ramp, server func(rate int) float64) (rates []int) {
	for rate, ok := r.Next(); ok; rate, ok = r.Next() {
		rates = append(rates, rate)
		r.Add(rate, server(rate))
	}
	return rates
}

// A server at its limit answers less than before, or the same.
func TestRamp(t *testing.T) {
	falls := func(rate int) float64 { return float64(min(rate, max(0, 900-2*(rate-450)))) }
	levels := func(rate int) float64 { return float64(min(rate, 450)) }
	dies := func(rate int) float64 {
		if rate > 450 {
			return 0
		}
		return float64(rate)
	}
	for _, tt := range []struct {
		name   string
		step   int
		server func(int) float64
		rates  []int
		peak   int
	}{
		{"by steps, falls", 100, func(rate int) float64 { return float64(min(rate, 1000-rate)) }, []int{100, 200, 300, 400, 500, 600, 700}, 500},
		{"by steps, levels", 100, levels, []int{100, 200, 300, 400, 500, 600, 700}, 500},
		{"doubling, falls", 0, falls, []int{20, 40, 80, 160, 320, 640, 352, 384, 416, 448, 480, 512, 544, 576, 608, 640, 672}, 608},
		{"doubling, levels", 0, levels, []int{20, 40, 80, 160, 320, 640, 352, 384, 416, 448, 480, 512, 544}, 640},
		{"doubling, dies", 0, dies, []int{20, 40, 80, 160, 320, 640, 352, 384, 416, 448, 480, 512}, 448},
		{"answers nothing", 0, func(int) float64 { return 0 }, []int{20, 11, 12}, 20},
	} {
		r := &Ramp{Step: tt.step}
		rates := climb(r, tt.server)
		if !slices.Equal(rates, tt.rates) || !r.Fallen() || rates[r.Peak()] != tt.peak {
			t.Errorf("%s: rates %v, peak at %d; want %v, %d", tt.name, rates, rates[r.Peak()], tt.rates, tt.peak)
		}
	}
	if rate, ok := (&Ramp{First: 5}).Next(); rate != 5 || !ok {
		t.Errorf("first rate %d, want 5", rate)
	}
	if (&Ramp{}).Peak() != -1 {
		t.Error("no step is no peak")
	}
}

// A load has an end even if the server has none.
func TestRampEnds(t *testing.T) {
	for _, step := range []int{0, 1, 100} {
		r := &Ramp{Step: step}
		if rates := climb(r, func(rate int) float64 { return float64(rate) }); len(rates) > maxSteps || rates[len(rates)-1] > maxLoad || r.Fallen() {
			t.Errorf("step %d: %d rates up to %d, fallen: %v", step, len(rates), rates[len(rates)-1], r.Fallen())
		}
	}
}
