package stats

import (
	"math"
	"testing"
)

func TestFairness(t *testing.T) {
	for _, tt := range []struct {
		shares          []float64
		jain, deviation float64
	}{
		{[]float64{7, 7}, 1, 0},
		{[]float64{100, 95}, 0.99934297, 0.05},
		{[]float64{1, 0, 0, 0}, 0.25, 1},
		{[]float64{3, 1}, 0.8, 2.0 / 3},
		{[]float64{5}, 1, 0},
	} {
		if jain, dev := Jain(tt.shares), LargestDeviation(tt.shares); math.Abs(jain-tt.jain) > 1e-8 || math.Abs(dev-tt.deviation) > 1e-12 {
			t.Errorf("%v: Jain %v, deviation %v; want %v, %v", tt.shares, jain, dev, tt.jain, tt.deviation)
		}
	}
	if !math.IsNaN(Jain(nil)) || !math.IsNaN(Jain([]float64{0, 0})) || !math.IsNaN(LargestDeviation([]float64{0})) || !math.IsNaN(LargestDeviation(nil)) {
		t.Error("nothing to share has no fairness")
	}
}
