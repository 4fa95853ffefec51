package report_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"unnest/internal/measure/result"
	"unnest/internal/measure/rundir"
	"unnest/internal/measure/stats"
	"unnest/internal/report/estimate"
	"unnest/internal/report/papers"
	"unnest/internal/report/runs"
)

// TestQuickstartDecides repeats published runs with blocks drawn from their own. At least 9
// of 10 decide what the quickstart is for: NAT against NoCont, and BrFusion against NAT, for
// UDP messages of 1280 B.
func TestQuickstartDecides(t *testing.T) {
	const draws = 100
	r := rand.New(rand.NewPCG(20261122, 0))
	for _, name := range []string{"quickstart", "brfusion"} {
		run, samples, err := rundir.Load("../../docs/results/runs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		primary := map[string]string{}
		for _, c := range run.Cases {
			primary[c.Name] = c.Primary
		}
		samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Metric != primary[s.Case] })
		decided := map[string]int{}
		for range draws {
			doc := runs.Build(run, drawBlocks(r, samples), runs.Options{Papers: papers.All()})
			nat := estimate.Find(dataOf(doc).Estimates, "udp_rr/1280", "NAT").Against("NoCont")
			fused := estimate.Find(dataOf(doc).Estimates, "udp_rr/1280", "BrFusion").Against("NAT")
			if nat.Verdict == stats.Worse {
				decided["NAT against NoCont"]++
			}
			if fused.Verdict == stats.Better {
				decided["BrFusion against NAT"]++
			}
			if nat.Verdict == stats.Worse && fused.Verdict == stats.Better {
				decided["both"]++
			}
		}
		t.Logf("%s: of %d draws decide: %v", name, draws, decided)
		if decided["both"] < draws*9/10 {
			t.Errorf("%s: of %d draws, %d decide", name, draws, decided["both"])
		}
	}
}

// drawBlocks returns as many blocks of each case as it has, drawn with replacement. All
// configurations of a case get the same blocks.
func drawBlocks(r *rand.Rand, samples []result.Sample) (drawn []result.Sample) {
	blocks := map[string]map[int][]result.Sample{}
	var cases []string
	for _, s := range samples {
		if blocks[s.Case] == nil {
			blocks[s.Case] = map[int][]result.Sample{}
			cases = append(cases, s.Case)
		}
		blocks[s.Case][s.Block] = append(blocks[s.Case][s.Block], s)
	}
	slices.Sort(cases)
	for _, c := range cases {
		for block := range len(blocks[c]) {
			for _, s := range blocks[c][r.IntN(len(blocks[c]))] {
				s.Block = block
				drawn = append(drawn, s)
			}
		}
	}
	return drawn
}
