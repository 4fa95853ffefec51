package stats_test

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
)

var calibrate = flag.Bool("calibrate", false, "simulate many reports and rewrite the tables of docs/explanation/statistics.md")

const (
	statisticsPage = "../../../docs/explanation/statistics.md"
	calibrationRNG = 20261122 // seed
)

// noise draws the disturbance of a block's log ratio. Its deviation is 1.
type noise struct {
	name      string
	draw      func(*rand.Rand) float64
	published bool
}

var noises = []noise{
	{name: "normal", draw: func(r *rand.Rand) float64 { return r.NormFloat64() }},
	{name: "skewed executions", draw: func(r *rand.Rand) float64 { return (r.ExpFloat64() - r.ExpFloat64()) / math.Sqrt2 }},
	{name: "heavy tails", draw: func(r *rand.Rand) float64 { // Student's t with 4 degrees of freedom
		chi2 := 0.0
		for range 4 {
			chi2 += math.Pow(r.NormFloat64(), 2)
		}
		return r.NormFloat64() / math.Sqrt(chi2/4) / math.Sqrt2
	}},
}

// residuals returns noise with the distribution of the log ratios of the published runs
// around their means, each scaled to deviation 1.
func residuals(t *testing.T) noise {
	t.Helper()
	var pooled []float64
	dirs, err := filepath.Glob("../../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	for _, dir := range dirs {
		run, samples, err := rundir.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range run.Cases {
			for _, conf := range run.Configurations[1:] {
				pooled = append(pooled, scaled(logRatios(samples, c, run.Configurations[0].Name, conf.Name))...)
			}
		}
	}
	if len(pooled) < 1000 {
		t.Fatalf("%d residuals in %d runs", len(pooled), len(dirs))
	}
	return noise{fmt.Sprintf("residuals of %d published runs", len(dirs)), func(r *rand.Rand) float64 { return pooled[r.IntN(len(pooled))] }, true}
}

// logRatios returns the log ratios of b over a in the blocks that have both.
func logRatios(samples []result.Sample, c result.Case, a, b string) (ratios []float64) {
	of := map[string]map[int]float64{a: {}, b: {}}
	for _, s := range samples {
		if of[s.Configuration] != nil && s.Case == c.Name && s.Metric == c.Primary && s.Value > 0 {
			of[s.Configuration][s.Block] = math.Log(s.Value)
		}
	}
	for block, x := range of[a] {
		if y, both := of[b][block]; both {
			ratios = append(ratios, y-x)
		}
	}
	return ratios
}

// scaled returns xs with mean 0 and deviation 1, nothing if there are too few or they do
// not vary.
func scaled(xs []float64) []float64 {
	if len(xs) < stats.MinRepetitions {
		return nil
	}
	s, err := stats.Summarize(xs)
	if err != nil || s.StdDev == 0 {
		return nil
	}
	n := float64(len(xs))
	shrink := math.Sqrt((n - 1) / n) // what subtracting the mean takes from the deviation
	for i, x := range xs {
		xs[i] = (x - s.Mean) / s.StdDev / shrink
	}
	return xs
}

// outcome is what simulated reports get right.
type outcome struct {
	reports, anyFalse int     // reports; those with a false difference
	falseShare        float64 // sum over reports of the share of false ones among the differences found
	found, effects    int     // true differences found; true differences
	covered, selected int     // among the intervals of found differences: those that cover the truth
	inside, all       int     // among all intervals: those that cover the truth
}

// report simulates one report of m comparisons in n blocks. Each case has a baseline and a
// configuration; the block disturbs both, and effects are the true log ratios.
func (o *outcome) report(r *rand.Rand, z noise, n, m int, effects []float64) {
	found, wrong := 0, 0
	es, ps := make([]stats.Effect, m), make([]float64, m)
	for i := range m {
		a, b := make([]stats.Observation, n), make([]stats.Observation, n)
		for block := range n {
			common := 0.2 * r.NormFloat64()
			b[block] = stats.Observation{Block: block, Value: math.Exp(common)}
			a[block] = stats.Observation{Block: block, Value: math.Exp(common + sigma*z.draw(r) + effects[i])}
		}
		e, err := stats.Compare(a, b, true)
		if err != nil {
			panic(err)
		}
		es[i], ps[i] = e, e.P()
	}
	family := stats.Judge(ps, stats.DefaultAlpha)
	for i, e := range es {
		interval, verdict := e.Judge(family, stats.DefaultMargin, true)
		difference := verdict == stats.Better || verdict == stats.Worse
		o.all++
		if interval.Contains(math.Exp(effects[i])) {
			o.inside++
		}
		if effects[i] != 0 {
			o.effects++
		}
		if !difference {
			continue
		}
		found++
		o.selected++
		if interval.Contains(math.Exp(effects[i])) {
			o.covered++
		}
		if effects[i] == 0 {
			wrong++
		} else {
			o.found++
		}
	}
	o.reports++
	if wrong > 0 {
		o.anyFalse++
		o.falseShare += float64(wrong) / float64(found)
	}
}

// sigma is the deviation of the log ratio within a block.
const sigma = 0.05

// half gives half of m comparisons true log ratios of 1, 2, 3 … deviations.
func half(m int) []float64 {
	effects := make([]float64, m)
	for i := range (m + 1) / 2 {
		effects[i] = sigma * float64(1+i%4)
	}
	return effects
}

func simulate(z noise, n, m, reports int, effects []float64) outcome {
	r := rand.New(rand.NewPCG(calibrationRNG, uint64(n*1000+m)))
	var o outcome
	for range reports {
		o.report(r, z, n, m, effects)
	}
	return o
}

// detection simulates how often a single test finds the difference that a run of its kind
// says it detects with a probability of 80 %.
func detection(z noise, n, runs int) float64 {
	r := rand.New(rand.NewPCG(calibrationRNG, uint64(n)))
	// What a run says depends on its scatter; the true scatter gives the true answer.
	said := stats.Effect{StdErr: sigma / math.Sqrt(float64(n)), DF: float64(n - 1), N: n, Paired: true}.Detectable(stats.DefaultAlpha, stats.DefaultPower)
	found := 0
	for range runs {
		var o outcome
		o.report(r, z, n, 1, []float64{math.Log1p(said)})
		found += o.found
	}
	return float64(found) / float64(runs)
}

// TestCalibration simulates reports: few by default, to find mistakes, many with
// -calibrate, to publish the rates.
func TestCalibration(t *testing.T) {
	reports := 300
	if *calibrate {
		reports = 20000
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, "| noise | blocks | comparisons | true differences | reports with a false one | false among the found | intervals that cover: all | of the found | differences found |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	spare := 3 * math.Sqrt(0.05*0.95/float64(reports)) // three deviations of a rate of 5 %
	for _, z := range append(noises, residuals(t)) {
		for _, size := range []struct{ n, m int }{{6, 1}, {6, 10}, {6, 24}, {12, 24}} {
			for _, effects := range [][]float64{make([]float64, size.m), half(size.m)} {
				o := simulate(z, size.n, size.m, reports, effects)
				falseRate, share := rate(o.anyFalse, o.reports), o.falseShare/float64(o.reports)
				fmt.Fprintf(&page, "| %s | %d | %d | %d | %s | %s | %s | %s | %s |\n", z.name, size.n, size.m, o.effects/o.reports,
					percent(falseRate), percent(share), percent(rate(o.inside, o.all)), percent(rate(o.covered, o.selected)), percent(rate(o.found, o.effects)))
				limit := stats.DefaultAlpha + spare
				if z.published {
					limit += 0.02 // see the page
				}
				if share > limit {
					t.Errorf("%s, %d blocks, %d comparisons, %d with effects: %s false among the found, want 5 %%", z.name, size.n, size.m, o.effects/o.reports, percent(share))
				}
				if o.effects == 0 && falseRate > limit {
					t.Errorf("%s, %d blocks, %d equal pairs: %s of the reports have a false difference, want 5 %%", z.name, size.n, size.m, percent(falseRate))
				}
			}
		}
	}
	fmt.Fprintf(&page, "\n| noise | blocks | how often the difference is found that is said to be found in 80 %% |\n|---|---:|---:|\n")
	for _, z := range append(noises, residuals(t)) {
		for _, n := range []int{6, 12} {
			power := detection(z, n, 5*reports)
			fmt.Fprintf(&page, "| %s | %d | %s |\n", z.name, n, percent(power))
			if math.Abs(power-0.8) > 0.1 {
				t.Errorf("%s, %d blocks: power %v where 80 %% is said", z.name, n, power)
			}
		}
	}
	sequentialTable(t, &page, reports)
	if *calibrate {
		publish(t, page.String())
	}
}

// sequentialTable simulates cases that go on until their ratio is known to ± 5 %, looking
// after each block from the sixth on.
func sequentialTable(t *testing.T, page *bytes.Buffer, reports int) {
	t.Helper()
	fmt.Fprintf(page, "\n| noise | scatter of a block's ratio | limit | blocks, mean | intervals that cover | equal pairs called different |\n|---|---:|---:|---:|---:|---:|\n")
	for _, z := range append(noises, residuals(t)) {
		for _, scatter := range []float64{0.04, 0.08, 0.16} {
			for _, limit := range []int{15, 60} {
				r := rand.New(rand.NewPCG(calibrationRNG, uint64(limit)))
				blocks, covered := 0, 0
				for range reports {
					e := sequential(r, z, scatter, limit)
					blocks += e.N
					if e.Interval(stats.DefaultConfidence).Contains(1) {
						covered++
					}
				}
				coverage := rate(covered, reports)
				fmt.Fprintf(page, "| %s | %.0f %% | %d | %.1f | %s | %s |\n", z.name, 100*scatter, limit, rate(blocks, reports), percent(coverage), percent(1-coverage))
				if coverage < 0.90-3*math.Sqrt(0.05/float64(reports)) {
					t.Errorf("%s, scatter %v, limit %d: coverage %v of sequential intervals", z.name, scatter, limit, coverage)
				}
			}
		}
	}
}

// sequential measures one pair of equal sides until the ratio is known to ± 5 %.
func sequential(r *rand.Rand, z noise, scatter float64, limit int) stats.Effect {
	var a, b []stats.Observation
	for block := 0; ; block++ {
		a = append(a, stats.Observation{Block: block, Value: math.Exp(scatter * z.draw(r))})
		b = append(b, stats.Observation{Block: block, Value: 1})
		if len(a) < stats.MinRepetitions {
			continue
		}
		e, err := stats.Compare(a, b, true)
		if err != nil {
			panic(err)
		}
		if len(a) >= limit || e.Interval(stats.DefaultConfidence).High/e.Ratio() <= 1.05 {
			return e
		}
	}
}

func rate(n, of int) float64 { return float64(n) / float64(of) }

func percent(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*v)
}

// publish replaces the tables of the page.
func publish(t *testing.T, tables string) {
	t.Helper()
	const begin, end = "<!-- begin calibration -->\n", "<!-- end calibration -->"
	page, err := os.ReadFile(statisticsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks %q or %q", statisticsPage, begin, end)
	}
	if err := os.WriteFile(statisticsPage, []byte(before+begin+"\n"+tables+"\n"+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
