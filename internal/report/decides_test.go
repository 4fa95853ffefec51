package report_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// TestQuickstartDecides repeats published runs with blocks drawn from their own. At least 9
// of 10 decide what the quickstart is for: NAT against NoCont, and BrFusion against NAT, for
// UDP messages of 1280 B. It compares the counts with docs/explanation/statistics.md; -update writes them.
func TestQuickstartDecides(t *testing.T) {
	const draws = 100
	r := rand.New(rand.NewPCG(20261122, 0))
	both := map[string]int{}
	for _, of := range []struct {
		name, run string
		blocks    int // 0: as many as the run has
	}{{"quickstart", "quickstart", 0}, {"brfusion", "brfusion", 0}, {"six", "quickstart", 6}, {"nine", "quickstart", 9}} {
		run, samples, err := rundir.Load("../../docs/results/runs/" + of.run)
		if err != nil {
			t.Fatal(err)
		}
		primary := map[string]string{}
		for _, c := range run.Cases {
			primary[c.Name] = c.Primary
		}
		samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Metric != primary[s.Case] })
		for range draws {
			doc := runs.Build(run, drawBlocks(r, samples, of.blocks), runs.Options{Papers: papers.All()})
			nat := estimate.Find(dataOf(doc).Estimates, "udp_rr/1280", "NAT").Against("NoCont")
			fused := estimate.Find(dataOf(doc).Estimates, "udp_rr/1280", "BrFusion").Against("NAT")
			if nat.Verdict == stats.Worse && fused.Verdict == stats.Better {
				both[of.name]++
			}
		}
		if of.blocks == 0 && both[of.name] < draws*9/10 {
			t.Errorf("%s: of %d draws, %d decide", of.name, draws, both[of.name])
		}
	}
	say(t, "decides", fmt.Sprintf("Of these %d reports, %d had both answers. With only six blocks of the quickstart, %d of %d had both, with nine blocks %d.\n",
		2*draws, both["quickstart"]+both["brfusion"], both["six"], draws, both["nine"]))
}

// say compares a part of docs/explanation/statistics.md with what a test has counted.
func say(t *testing.T, part, text string) {
	t.Helper()
	const file = "../../docs/explanation/statistics.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+part+" -->\n", "<!-- end "+part+" -->"
	before, rest, begins := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		t.Fatalf("%s lacks %q or %q", file, begin, end)
	}
	rewrite(t, file, string(page), before+begin+text+end+after, "counts other draws")
}

// Reports of equal sides name a difference in their first sentence in at most 5 % of cases, and somewhere more often:
// that is said. The noise is that of the quickstart: deviations from the means, with configurations drawn within blocks.
func TestReportsOfEqualSides(t *testing.T) {
	const draws = 50
	r := rand.New(rand.NewPCG(20261122, 1))
	run, samples, err := rundir.Load("../../docs/results/runs/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	type cell struct{ name, metric, configuration string }
	logs, counts := map[cell]float64{}, map[cell]float64{}
	cellOf := func(s result.Sample) cell { return cell{s.Case, s.Metric, s.Configuration} }
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Value <= 0 })
	for _, s := range samples {
		logs[cellOf(s)] += math.Log(s.Value)
		counts[cellOf(s)]++
	}
	for i, s := range samples {
		samples[i].Value = math.Exp(math.Log(s.Value) - logs[cellOf(s)]/counts[cellOf(s)])
	}
	first, somewhere := 0, 0
	for range draws {
		orders := map[result.Execution][]int{}
		drawn := slices.Clone(samples)
		for i, s := range drawn {
			e := s.Execution()
			e.Configuration = ""
			if orders[e] == nil {
				orders[e] = r.Perm(len(run.Configurations))
			}
			at := slices.IndexFunc(run.Configurations, func(c result.Configuration) bool { return c.Name == s.Configuration })
			drawn[i].Configuration = run.Configurations[orders[e][at]].Name
		}
		doc := runs.Build(run, drawn, runs.Options{})
		if strings.Contains(doc.Answer, " than ") {
			first++
		}
		if slices.ContainsFunc(dataOf(doc).Estimates, func(e estimate.Estimate) bool {
			return slices.ContainsFunc(e.Comparisons, func(c estimate.Comparison) bool { return c.Verdict == stats.Better || c.Verdict == stats.Worse })
		}) {
			somewhere++
		}
	}
	if first > 8 { // 2.5 are expected at most, and more than 8 in 1 of 1000 such tests
		t.Errorf("%d of %d first sentences name a difference of equal sides", first, draws)
	}
	say(t, "equal", fmt.Sprintf("Of %d quickstarts with equal sides and the noise of the published one, %d name a difference in the first sentence, and %d somewhere.\n", draws, first, somewhere))
}

// drawBlocks returns a number of blocks of each case, 0 as many as it has, drawn with replacement. All
// configurations of a case get the same blocks.
func drawBlocks(r *rand.Rand, samples []result.Sample, number int) (drawn []result.Sample) {
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
		for block := range cmp.Or(number, len(blocks[c])) {
			for _, s := range blocks[c][r.IntN(len(blocks[c]))] {
				s.Block = block
				drawn = append(drawn, s)
			}
		}
	}
	return drawn
}
