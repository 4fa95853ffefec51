package report

import (
	"slices"
	"strings"

	"unnest/internal/measure/suite"
	"unnest/internal/report/papers"
)

// Papers are the printed figures that a report shows next to the figures of a run.
// Scores and Totals are under our names of suites and cases.
type Papers struct {
	Levels []papers.SysbenchRow // of FitzGerald 2014
	Scores []papers.Score       // of Lubomski et al.
	Totals []papers.Total
	Ratios []papers.Ratio // of Bacou et al. 2019

	Collocations []papers.Collocated // of the study of collocated domains
}

// networkCases are the cases of the study multilevel-network by the paper's names.
var networkCases = map[string]string{"netperf tcp": "tcp_stream/16384", "netperf udp": "udp_stream/1280"}

// AllPapers returns every printed figure of a case that we measure too.
func AllPapers() Papers {
	all := Papers{Levels: papers.Sysbench(), Ratios: papers.Ratios(), Totals: papers.Totals(), Collocations: papers.Collocations()}
	names := map[[2]string]string{}
	for _, c := range suite.All() {
		if c.Paper != "" {
			names[[2]string{c.Suite, c.Paper}] = c.Name
		}
	}
	for paper, name := range networkCases {
		names[[2]string{"network", paper}] = name
	}
	for _, s := range slices.Concat(papers.DiskScores(), papers.NetworkScores()) {
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
