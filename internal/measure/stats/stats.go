// Package stats computes estimates, intervals, tests and warnings from repeated
// measurements.
//
// It is made for noisy machines. Estimates are medians and their ratios, because one
// disturbed execution moves a mean but hardly a median. The interval of a ratio
// resamples whole blocks, because configurations are measured close in time within a
// block. Welch's t test decides, the Mann-Whitney test is reported too, and Holm's
// procedure corrects a table. Reasons to trust a result less are data (Warning), not
// errors.
//
// The package is pure: seeds are arguments, and equal arguments give equal results.
// Metrics, the choice of configurations to compare, number formats and scores of suites
// do not belong here.
package stats

import (
	"errors"
	"fmt"
	"math"
)

// Default levels.
const (
	DefaultConfidence = 0.95
	DefaultAlpha      = 0.05
)

// MinRepetitions is the least number of samples per side for a conclusive test. With
// three per side the Mann-Whitney test cannot give p below 0.10; with six it reaches
// 0.002, which leaves room for Holm's correction.
const MinRepetitions = 6

// Errors.
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
