package estimate

import (
	"testing"

	"unnest/internal/measure/stats"
	"unnest/internal/report/document"
)

// Every verdict has a word, by which a page chooses the tone of its badge.
func TestBadgeBeginsWithItsWord(t *testing.T) {
	for unit, words := range map[string]map[stats.Verdict]string{
		"us": {stats.Better: "faster", stats.Worse: "slower", stats.Equal: "equal within 1 %", stats.Unknown: "not known: nothing varies", stats.TooFew: "not known: nothing varies"},
		"1":  {stats.Better: "better", stats.Worse: "worse", stats.Equal: "equal within 1 %", stats.Unknown: "not known: nothing varies", stats.TooFew: "not known: nothing varies"},
	} {
		for verdict, want := range words {
			if got := badge(Estimate{Unit: unit}, Comparison{Verdict: verdict, Interval: document.Interval{Low: 0.995, High: 1.01}}); got != want {
				t.Errorf("%s of %s: badge %q, want %q", verdict, unit, got, want)
			}
		}
	}
}
