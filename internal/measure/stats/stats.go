// Package stats turns repeated measurements into estimates, intervals, tests
// and warnings.
//
// The choices are those of noisy machines that cannot be tamed: medians and
// their ratios for what is shown, because one disturbed execution moves a mean
// and hardly a median; resampling of whole blocks for the interval of a ratio,
// because configurations are measured side by side within a block; Welch's t
// for the decision, with the Mann-Whitney test beside it and Holm's correction
// over a table. What weakens a conclusion is returned as data (Warning), never as
// a failure.
//
// The package is pure: seeds are arguments, and equal arguments give equal
// results. What a metric is, which configurations are compared and how numbers
// are printed does not belong here, nor do scores that sum up a suite.
package stats

import (
	"errors"
	"fmt"
	"math"
)

// Usual levels.
const (
	DefaultConfidence = 0.95
	DefaultAlpha      = 0.05
)

// MinRepetitions is the number of samples per side below which a test that
// sees nothing says little. With three per side the Mann-Whitney test cannot
// give less than 0.10, with six it reaches 0.002, which leaves room for Holm's
// correction.
const MinRepetitions = 6

// Errors that callers may want to tell apart.
var (
	ErrTooFew      = errors.New("too few samples")
	ErrNotFinite   = errors.New("not a finite number")
	ErrNotPositive = errors.New("not positive")
	ErrNoVariance  = errors.New("both samples are constant")
)

// checkSample returns an error unless xs has at least least values, all finite.
func checkSample(xs []float64, least int) error {
	if len(xs) < least {
		return fmt.Errorf("%w: %d given, at least %d needed", ErrTooFew, len(xs), least)
	}
	for i, x := range xs {
		if !finite(x) {
			return fmt.Errorf("sample %d is %v: %w", i, x, ErrNotFinite)
		}
	}
	return nil
}

func checkConfidence(c float64) error {
	if !(c > 0 && c < 1) {
		return fmt.Errorf("confidence %v: want a number between 0 and 1, such as %v", c, DefaultConfidence)
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
