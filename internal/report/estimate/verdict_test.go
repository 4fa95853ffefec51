package estimate

import (
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
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

// A run of many blocks that shows nothing is within its noise too, however many blocks would decide.
func TestLongRunWithinTheNoise(t *testing.T) {
	for _, n := range []int{6, 100, 300, 2000} {
		c := Comparison{N: n, effect: stats.Effect{Log: 0.01, StdErr: 0.5, DF: float64(n - 1), N: n, Paired: true}}
		if c.judge(stats.Judge([]float64{0.98}, stats.DefaultAlpha), Estimate{}, Claim{}); c.Badge != "not known: within the noise" {
			t.Errorf("%d blocks: %s, with %d more", n, c.Badge, c.Needs)
		}
	}
}

// A pair that shares no block, in a run whose other pairs do, is no test of their family, unless verdicts on such are asked for.
func TestSeparatePairIsNoTest(t *testing.T) {
	effect := stats.Effect{Log: 0.1, StdErr: 0.01, DF: 11, N: 12}
	for _, tt := range []struct {
		paired   []bool
		separate bool
		want     int
	}{{[]bool{true, true, false}, false, 2}, {[]bool{true, true, false}, true, 3}, {[]bool{false, false}, false, 2}} {
		var all []judged
		for _, paired := range tt.paired {
			c := Comparison{N: effect.N, Paired: paired, P: document.Number(effect.P()), effect: effect}
			all = append(all, judged{&Estimate{}, &c, "primary"})
		}
		if got := judge(all, Claim{}, tt.separate); got[0].Tests != tt.want || got[0].Found != tt.want {
			t.Errorf("%v, separate %v: %+v, want %d tests", tt.paired, tt.separate, got[0], tt.want)
		}
	}
}

// A claim with a margin of its own does not change the verdict: what is within 5 % is equal, also if it is not known
// to be within 3.5 %.
func TestClaimKeepsTheVerdict(t *testing.T) {
	claim := Claim{Configuration: "BrFusion", Baseline: "NoCont", Margin: 0.035}
	for _, of := range []struct {
		log  float64
		want stats.Answer
	}{{0.02, stats.Undecided}, {0.001, stats.Yes}} {
		c := Comparison{Baseline: "NoCont", N: 12, effect: stats.Effect{Log: of.log, StdErr: 0.01, DF: 11, N: 12, Paired: true}}
		c.judge(stats.Judge([]float64{0.5}, stats.DefaultAlpha), Estimate{Configuration: "BrFusion", Primary: true, Order: result.LIB}, claim)
		if c.Verdict != stats.Equal || c.Equivalent != of.want || c.Needs != 0 {
			t.Errorf("%v: %s, within 3.5 %%: %s, needs %d", of.log, c.Verdict, c.Equivalent, c.Needs)
		}
	}
}
