package domains

import (
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
