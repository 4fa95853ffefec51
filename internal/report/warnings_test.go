package report

import (
	"errors"
	"testing"

	"unnest/internal/measure/stats"
)

func TestWarningText(t *testing.T) {
	for want, w := range map[string]stats.Warning{
		"too few samples": {Kind: stats.Unusable, Err: stats.ErrTooFew},
		"fewer than 6 blocks (3): no interval and no verdict":                                               {Kind: stats.FewRepetitions, N: 3},
		"several values of one block count as one, because they are not independent (values: 7, blocks: 6)": {Kind: stats.Repeated, N: 7, Of: 6},
		"all 6 values are 5: the resolution of the tool may be too coarse":                                  {Kind: stats.NoVariance, N: 6, Value: 5},
		"noisy: the standard deviation is 16 % of the mean":                                                 {Kind: stats.Noisy, Value: 0.158},
		"1 of 6 values lie more than 7 scaled median absolute deviations from the median":                   {Kind: stats.Outliers, N: 1, Of: 6},
		"the values drift over the 6 blocks (Mann-Kendall, p = 0.0085)":                                     {Kind: stats.Drift, N: 6, Value: 0.00854},
		"no ratio: numerator": {Kind: stats.NoRatio, Err: errors.New("numerator")},
	} {
		if got := warningText(w); got != want {
			t.Errorf("%s: got %q, want %q", w.Kind, got, want)
		}
	}
}
