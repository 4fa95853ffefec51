package domains

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

func TestPercentCell(t *testing.T) {
	for _, tt := range []struct {
		s    collocation.Spread
		want string
	}{
		{collocation.Spread{N: 6, Mean: 0.454, Interval: stats.Interval{Low: 0.374, High: 0.534, Confidence: 0.95}}, "45 % [37, 53]"},
		{collocation.Spread{N: 6, Mean: 0.0581, Interval: stats.Interval{Low: 0.0274, High: 0.0899, Confidence: 0.95}}, "5.8 % [2.7, 9.0]"},
		{collocation.Spread{N: 1, Mean: 0.5}, "50 %"},
		{collocation.Spread{}, document.NoValue.Text},
	} {
		if got := percentCell(tt.s).Text; got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.s, got, tt.want)
		}
	}
}

// A difference that one interval at 95 % shows, but not the family of its comparisons, is none.
func TestFamilies(t *testing.T) {
	var f collocation.Findings
	for i, log := range []float64{0.3, 0.01, -0.02, 0.03} { // p is 0.03 and above 0.7
		r := collocation.Ratio{Load: collocation.Load{Configuration: string(rune('a' + i)), Size: 1024, Intensity: 100}, Effect: stats.Effect{Log: log, StdErr: 0.1, N: 6, DF: 5, Paired: true}}
		f.Idle = append(f.Idle, r)
		f.Pairs = append(f.Pairs, collocation.Pair{Load: r.Load, OfSum: &r})
	}
	answer, said := headlines(f)
	if want := "Idle neighbours: 4 comparisons with the same domain alone, no difference found."; said[len(said)-1] != want || !strings.Contains(answer, "(98.75 % intervals)") {
		t.Errorf("%q, %q; want %q", answer, said, want)
	}
	for _, figure := range pairFigures(f) {
		if !figure.Open || !strings.HasSuffix(figure.Detail, " (98.75 %)") {
			t.Errorf("%+v, want an open one", figure)
		}
	}
	if column := pairTable(f.Pairs).Columns[2].Name; column != "over sum of singles, 98.75 %" {
		t.Errorf("column %q", column)
	}
	if column := effectTable("x", "x", f.Idle).Columns[3].Name; column != "ratio, 98.75 %" {
		t.Errorf("column %q", column)
	}
}
