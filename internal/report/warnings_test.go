package report

import (
	"errors"
	"testing"

	"unnest/internal/measure/stats"
)

func TestWarningText(t *testing.T) {
	for want, w := range map[string]stats.Warning{
		"too few samples": {Kind: stats.Unusable, Err: stats.ErrTooFew},
		"fewer than 6 repetitions (3): a rank test of two such samples cannot give p below 0.1":             {Kind: stats.FewRepetitions, N: 3, Value: 0.1},
		"several values of one block count as one, because they are not independent (values: 7, blocks: 6)": {Kind: stats.Repeated, N: 7, Of: 6},
		"all 6 values are 5: the resolution of the tool may be too coarse":                                  {Kind: stats.NoVariance, N: 6, Value: 5},
		"noisy: the standard deviation is 16 % of the mean":                                                 {Kind: stats.Noisy, Value: 0.158},
		"1 of 6 values lie more than 7 scaled median absolute deviations from the median":                   {Kind: stats.Outliers, N: 1, Of: 6},
		"the values drift over the 6 blocks (Mann-Kendall, p = 0.0085)":                                     {Kind: stats.Drift, N: 6, Value: 0.00854},
		"no ratio: numerator": {Kind: stats.NoRatio, Err: errors.New("numerator")},
		"the two were measured at different times: a change of the machine in between looks like a difference":                                                         {Kind: stats.NotInterleaved},
		"means and medians differ in opposite directions: the distributions are skewed":                                                                                {Kind: stats.Disagreement},
		"the interval of the ratio excludes 1, but the test finds no difference: the test does not pair blocks, so noise common to both sides may hide the difference": {Kind: stats.SharedNoise},
	} {
		if got := warningText(w); got != want {
			t.Errorf("%s: got %q, want %q", w.Kind, got, want)
		}
	}
}
