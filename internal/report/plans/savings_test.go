package plans

import (
	"testing"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
)

// A line falls from the share of users who save to 0.
func TestSavingCurve(t *testing.T) {
	costs := func(best summary.Dollars) summary.Costs {
		return summary.Costs{Kubernetes: 448, Resize: 448, Hostlo: 448, Spread: best, Whole: 448, Best: best}
	}
	users := []summary.User{{Name: "ann", Pods: 2, Containers: 4, Cost: costs(336), Bound: 336}, {Name: "dan", Pods: 1, Containers: 3, Cost: costs(336), Bound: 300}}
	s := savingCurve(summary.Sum(users, summary.Settings{}, nil, nil)).Series[1]
	want := []document.Number{0, 25, 25, 25, 25}
	if len(s.X) != len(want) || s.Values[0] != 100 || s.Values[len(want)-1] != 0 {
		t.Errorf("best: %v over %v", s.Values, s.X)
	}
}

func TestSavesNothing(t *testing.T) {
	if words := shareWords(nil); words != "no measure saves anything" {
		t.Errorf("without savings: %s", words)
	}
}
