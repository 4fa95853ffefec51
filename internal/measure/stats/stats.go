// Package stats computes estimates, intervals, tests and warnings from repeated
// measurements.
//
// A comparison follows one rule, which docs/explanation/statistics.md states: the ratio is
// the geometric mean of the ratios within the blocks, because configurations are measured
// close in time within a block; Student's t on their logarithms gives the interval; the
// comparisons of a report are one Family; the interval at the level of the family is the
// verdict. Reasons to trust a result less are data (Warning), not errors.
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
	DefaultConfidence = 0.95 // of the interval of one side
	DefaultAlpha      = 0.05 // of a family: the expected share of false differences
	DefaultPower      = 0.80 // with which a run detects what it is said to detect
	DefaultMargin     = 0.05 // within which two sides count as equal
)

// MinRepetitions is the least number of blocks for an interval and a verdict. With fewer,
// the scatter between blocks is hardly known, and an interval that covers the ratio in
// 95 % of runs is too wide to be of use.
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
