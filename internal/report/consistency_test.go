package report_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// TestNoVerdictContradictsAnInterval builds the report of every published run and looks for
// a verdict that its interval, a mirrored comparison or another table contradicts.
func TestNoVerdictContradictsAnInterval(t *testing.T) {
	dirs, err := filepath.Glob("../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	verdicts := map[stats.Verdict]int{}
	for _, dir := range dirs {
		run, samples, err := rundir.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
		for _, e := range dataOf(doc).Estimates {
			for _, c := range e.Comparisons {
				verdicts[c.Verdict]++
				contradiction(t, doc.Run, e, c)
				if base := estimate.Find(sameMetric(dataOf(doc).Estimates, e), e.Case, c.Baseline); !c.First {
					mirrored(t, e, c, *base.Against(e.Configuration))
				}
			}
			if e.Step == nil || e.Step.Comparison == nil {
				continue
			}
			contradiction(t, doc.Run, e, *e.Step.Comparison)
			if c := e.Against(e.Step.Below); c != nil && (c.Verdict != e.Step.Comparison.Verdict || c.Badge != e.Step.Comparison.Badge) {
				t.Errorf("%s: %s in %s: table %q, step %q", doc.Run, e.Case, e.Configuration, c.Badge, e.Step.Comparison.Badge)
			}
		}
	}
	for _, v := range []stats.Verdict{stats.Better, stats.Worse, stats.Equal, stats.Unknown} {
		if verdicts[v] == 0 {
			t.Errorf("no comparison has the verdict %q", v)
		}
	}
}

func sameMetric(estimates []estimate.Estimate, e estimate.Estimate) (same []estimate.Estimate) {
	for _, o := range estimates {
		if o.Suite == e.Suite && o.Case == e.Case && o.Metric == e.Metric {
			same = append(same, o)
		}
	}
	return same
}

// contradiction compares a verdict with its interval, as a number and as printed.
// one matches a number that is printed as 1.
var one = regexp.MustCompile(`\b1\.0+\b`)

func contradiction(t *testing.T, run string, e estimate.Estimate, c estimate.Comparison) {
	t.Helper()
	i := c.Interval
	if !i.Low.Defined() {
		if c.Verdict != stats.TooFew && c.Verdict != "" {
			t.Errorf("%s: %s in %s: verdict %q without an interval", run, e.Case, e.Configuration, c.Verdict)
		}
		return
	}
	excludes := i.Low > 1 || i.High < 1
	different := c.Verdict == stats.Better || c.Verdict == stats.Worse
	if excludes != different || different && (c.Verdict == stats.Better) != ((c.Ratio > 1) == (e.Order == result.HIB)) {
		t.Errorf("%s: %s in %s against %s: verdict %q, interval %+v", run, e.Case, e.Configuration, c.Baseline, c.Verdict, i)
	}
	if text := document.RatioWithInterval(c.Ratio, i); different && one.MatchString(text) {
		t.Errorf("%s: %s in %s against %s: verdict %q beside %q", run, e.Case, e.Configuration, c.Baseline, c.Verdict, text)
	}
	if c.Equivalent == stats.Yes && stats.Within(stats.Interval{Low: float64(i.Low), High: float64(i.High), Confidence: 1}, 0.035) != stats.Yes {
		t.Errorf("%s: %s in %s: equivalent, interval %+v", run, e.Case, e.Configuration, i)
	}
}

// mirrored compares c, a mirrored comparison, with the one it mirrors.
func mirrored(t *testing.T, e estimate.Estimate, c, of estimate.Comparison) {
	t.Helper()
	opposite := map[stats.Verdict]stats.Verdict{stats.Better: stats.Worse, stats.Worse: stats.Better}
	want, has := opposite[of.Verdict]
	if !has {
		want = of.Verdict
	}
	if c.Verdict != want || c.P != of.P && c.P.Defined() {
		t.Errorf("%s in %s against %s: %q, the other way round %q", e.Case, e.Configuration, c.Baseline, c.Verdict, of.Verdict)
	}
}
