package papers_test

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/report/papers"
)

// The scores of Table 4 are of the cases of the study that repeats it.
func TestNetworkScores(t *testing.T) {
	file, data, err := experiments.Open("multilevel-network")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := experiment.ParseProfile(file, data, "")
	if err != nil {
		t.Fatal(err)
	}
	published := 0
	for _, s := range papers.All().Scores {
		if s.Table == 4 {
			published++
			if !slices.ContainsFunc(spec.Cases, func(c experiment.Case) bool { return c.Name == s.Case }) {
				t.Errorf("the study has no case %s", s.Case)
			}
		}
	}
	if want := len(spec.Cases) * len(spec.Configurations); published != want {
		t.Errorf("%d scores, want %d", published, want)
	}
}

// Every row of Tables 4, 5 and 6 has a case of ours; Table 4 has scores without values.
func TestScoresAreComplete(t *testing.T) {
	if n := len(papers.All().Scores); n != 108+12 {
		t.Errorf("%d scores, want 18 cases and 2 of network, in 6 configurations each", n)
	}
	for _, s := range papers.All().Scores {
		network := s.Suite == "network"
		if !network && s.Suite != "disk" || strings.ToLower(s.Case) != s.Case || s.Score == "" || (s.Value == "") != network {
			t.Errorf("%+v", s)
		}
	}
	for _, total := range papers.All().Totals {
		if total.Cases == 0 || total.Total == "" || strings.ToLower(total.Suite) != total.Suite {
			t.Errorf("%+v", total)
		}
	}
}
