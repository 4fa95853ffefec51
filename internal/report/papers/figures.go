package papers

import (
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/suite"
)

// Figures are the printed figures that a report shows next to the figures of a run.
// Scores and Totals are under our names of suites and cases.
type Figures struct {
	Levels       []SysbenchRow // of FitzGerald 2014
	Scores       []Score       // of Lubomski et al.
	Totals       []Total
	Ratios       []Ratio      // of Bacou et al. 2019
	Collocations []Collocated // of the study of collocated domains
}

// networkCases are the cases of the study multilevel-network by the paper's names.
var networkCases = map[string]string{"netperf tcp": "tcp_stream/16384", "netperf udp": "udp_stream/1280"}

// All returns every printed figure of a case that we measure too.
func All() Figures {
	all := Figures{Levels: Sysbench(), Ratios: Ratios(), Totals: Totals(), Collocations: Collocations()}
	names := map[[2]string]string{}
	for _, c := range suite.All() {
		if c.Paper != "" {
			names[[2]string{c.Suite, c.Paper}] = c.Name
		}
	}
	for paper, name := range networkCases {
		names[[2]string{"network", paper}] = name
	}
	for _, s := range slices.Concat(DiskScores(), NetworkScores()) {
		s.Suite = strings.ToLower(s.Suite)
		if name, ok := names[[2]string{s.Suite, s.Case}]; ok {
			s.Case = name
			all.Scores = append(all.Scores, s)
		}
	}
	for i := range all.Totals {
		all.Totals[i].Suite = strings.ToLower(all.Totals[i].Suite)
	}
	return all
}

// Score returns the printed score of a case in a configuration, nil if there is none.
func (f Figures) Score(suite, name, configuration string) *Score {
	i := slices.IndexFunc(f.Scores, func(s Score) bool {
		return s.Suite == suite && s.Case == name && s.Configuration == configuration
	})
	if i < 0 {
		return nil
	}
	return &f.Scores[i]
}

// Total returns the printed total of a suite in a configuration, nil if there is none.
func (f Figures) Total(suite, configuration string) *Total {
	i := slices.IndexFunc(f.Totals, func(t Total) bool { return t.Suite == suite && t.Configuration == configuration })
	if i < 0 {
		return nil
	}
	return &f.Totals[i]
}
