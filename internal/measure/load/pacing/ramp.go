package pacing

import (
	"cmp"
	"slices"
)

// Ramp raises the rate of a load until the throughput of the server falls. By a step it raises
// the rate by that many requests/s, as the study of collocated domains does. Without one the rate
// doubles until the server does not follow, and then rises from the last rate that it followed
// by a tenth of it, so that it takes as many steps on slow and on fast machines.
type Ramp struct {
	Step  int // requests/s; 0: doubling first
	First int // rate, when it doubles; 0: 20 requests/s

	rates   []int
	results []float64
	fine    int // by which the rate rises; 0: it doubles
	coarse  int // steps while it doubled
}

const (
	firstRate = 20  // requests/s, when it doubles
	followed  = 0.9 // share of the rate that a server has to answer to follow
	fallen    = 0.95
	maxSteps  = 200
	maxLoad   = 1_000_000
)

// Next returns the next rate, in requests/s. ok is false when the throughput has Fallen, or after the most steps or requests/s.
func (r *Ramp) Next() (rate int, ok bool) {
	n := len(r.rates)
	if n == 0 {
		return cmp.Or(r.Step, r.First, firstRate), true
	}
	last := r.rates[n-1]
	followedLast := r.results[n-1] >= followed*float64(last)
	switch {
	case n >= maxSteps || r.Fallen():
		return 0, false
	case r.Step > 0:
		rate = last + r.Step
	case r.fine == 0 && followedLast:
		rate = 2 * last
	case r.fine == 0: // from the last rate that it followed
		base := max(last/2, 1)
		r.fine, r.coarse = max(base/10, 1), n
		rate = base + r.fine
	default:
		rate = last + r.fine
	}
	return rate, rate <= maxLoad
}

// Add records the throughput of the server under a rate, in answers/s.
func (r *Ramp) Add(rate int, throughput float64) {
	r.rates, r.results = append(r.rates, rate), append(r.results, throughput)
}

// Peak returns the index of the step with the highest throughput, -1 before the first.
func (r *Ramp) Peak() int {
	peak := -1
	for i, x := range r.results {
		if peak < 0 || x > r.results[peak] {
			peak = i
		}
	}
	return peak
}

// Fallen reports whether the last two throughputs are below the highest one of the steps of
// equal size, or do not follow the rate: a server at its limit may answer as many requests as
// before. While the rate doubles, a fall leads to finer steps.
func (r *Ramp) Fallen() bool {
	rates, results := r.rates[r.coarse:], r.results[r.coarse:]
	if r.Step == 0 && r.fine == 0 || len(results) < 2 {
		return false
	}
	highest := slices.Max(results)
	for i := len(results) - 2; i < len(results); i++ {
		if results[i] >= fallen*highest && results[i] >= followed*float64(rates[i]) {
			return false
		}
	}
	return true
}
