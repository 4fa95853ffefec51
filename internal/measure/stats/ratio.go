package stats

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Resamples is the number of bootstrap resamples for the interval of a ratio. At 2000 the
// bounds of a 95 % interval are the 50th values from the ends, which vary by a few percent
// of its width.
const Resamples = 2000

// RatioEstimate is the ratio of two medians. Point is NaN if there is no ratio. Interval
// is undefined if a side has one sample. Its Confidence is nominal: with fewer than
// MinRepetitions per side the coverage is lower.
type RatioEstimate struct {
	Point    float64
	Interval Interval
	Paired   bool // whole blocks were resampled
}

// Ratio estimates the median of a over the median of b, for samples that do not share
// blocks, such as those of two runs. The interval is the percentile bootstrap with both
// sides resampled independently, and depends only on the arguments. BCa is not used,
// because its acceleration, a jackknife, is inconsistent for medians. Values of b must be
// positive and those of a not negative, else it fails with ErrNotPositive.
func Ratio(a, b []float64, confidence float64, seed uint64) (RatioEstimate, error) {
	return ratio(a, b, confidence, func() Interval {
		ra, rb := make([]float64, len(a)), make([]float64, len(b))
		return bootstrap(confidence, seed, func(rng *rand.Rand) float64 {
			draw(rng, ra, a)
			draw(rng, rb, b)
			return median(ra) / median(rb)
		})
	})
}

// BlockRatio is Ratio for configurations that were measured in the same blocks. It
// resamples blocks, so that a disturbance of both sides of a block cancels out of the
// interval; independent resampling would count the drift of the machine during the run as
// uncertainty of the ratio. The values of a block and side count as their median. A block
// without one side counts for the other.
func BlockRatio(a, b []Observation, confidence float64, seed uint64) (RatioEstimate, error) {
	if err := checkRatio(Values(a), Values(b)); err != nil { // medians would hide NaN
		return RatioEstimate{Point: math.NaN()}, err
	}
	a, b = BlockMedians(a), BlockMedians(b)
	estimate, err := ratio(Values(a), Values(b), confidence, func() Interval {
		blocks, _ := pairs(a, b)
		var ra, rb []float64
		return bootstrap(confidence, seed, func(rng *rand.Rand) float64 {
			ra, rb = drawBlocks(rng, ra, rb, blocks)
			return median(ra) / median(rb)
		})
	})
	estimate.Paired = err == nil
	return estimate, err
}

// ratio returns the ratio of the medians, with the interval if both sides have two values.
func ratio(a, b []float64, confidence float64, interval func() Interval) (RatioEstimate, error) {
	if err := cmp.Or(checkConfidence(confidence), checkRatio(a, b)); err != nil {
		return RatioEstimate{Point: math.NaN()}, err
	}
	estimate := RatioEstimate{Point: median(slices.Clone(a)) / median(slices.Clone(b))}
	if len(a) > 1 && len(b) > 1 {
		estimate.Interval = interval()
	}
	return estimate, nil
}

func checkRatio(a, b []float64) error {
	if err := checkSample(a, 1); err != nil {
		return fmt.Errorf("numerator: %w", err)
	}
	if err := checkSample(b, 1); err != nil {
		return fmt.Errorf("denominator: %w", err)
	}
	if least := slices.Min(a); least < 0 {
		return fmt.Errorf("numerator: value %v: %w", least, ErrNotPositive)
	}
	if least := slices.Min(b); least <= 0 {
		return fmt.Errorf("denominator: value %v: %w", least, ErrNotPositive)
	}
	return nil
}

// draw fills into with values of from, drawn with replacement.
func draw(rng *rand.Rand, into, from []float64) {
	for i := range into {
		into[i] = from[rng.IntN(len(from))]
	}
}

// drawBlocks draws len(blocks) blocks with replacement into the storage of a and b. It
// repeats until both sides have a value.
func drawBlocks(rng *rand.Rand, a, b []float64, blocks []pair) ([]float64, []float64) {
	for {
		a, b = a[:0], b[:0]
		for range blocks {
			p := blocks[rng.IntN(len(blocks))]
			if p.hasA {
				a = append(a, p.a)
			}
			if p.hasB {
				b = append(b, p.b)
			}
		}
		if len(a) > 0 && len(b) > 0 {
			return a, b
		}
	}
}

// bootstrap returns the percentile interval of Resamples draws of a statistic.
func bootstrap(confidence float64, seed uint64, statistic func(*rand.Rand) float64) Interval {
	rng := rand.New(rand.NewPCG(seed, 0))
	draws := make([]float64, Resamples)
	for i := range draws {
		draws[i] = statistic(rng)
	}
	slices.Sort(draws)
	cut := int((1-confidence)/2*Resamples + 1e-9)
	return Interval{draws[cut], draws[Resamples-1-cut], confidence}
}
