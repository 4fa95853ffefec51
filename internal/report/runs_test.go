package report_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/runs"
)

// estimateOf finds one estimate of a document.
func estimateOf(t *testing.T, doc document.Document, name, configuration, metric string) estimate.Estimate {
	t.Helper()
	for _, e := range dataOf(doc).Estimates {
		if e.Case == name && e.Configuration == configuration && e.Metric == metric {
			return e
		}
	}
	t.Fatalf("no estimate of %s of %s in %s", metric, name, configuration)
	return estimate.Estimate{}
}

// valuesOf returns the values of one cell.
func valuesOf(samples []result.Sample, name, configuration, metric string) []float64 {
	var values []float64
	for _, s := range samples {
		if s.Case == name && s.Configuration == configuration && s.Metric == metric {
			values = append(values, s.Value)
		}
	}
	return values
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func geoMean(values []float64) float64 {
	product := 1.0
	for _, v := range values {
		product *= v
	}
	return math.Pow(product, 1/float64(len(values)))
}

func near(a document.Number, b float64) bool { return math.Abs(float64(a)-b) < 1e-9*math.Abs(b) }

func TestEstimatesAreThoseOfTheSamples(t *testing.T) {
	run, samples := synthetic(6)
	doc := build(run, samples)
	if want := 4*3*10 + 3*3*2; len(dataOf(doc).Estimates) != want {
		t.Errorf("%d estimates, want one per case, configuration and metric: %d", len(dataOf(doc).Estimates), want)
	}
	e := estimateOf(t, doc, "udp_rr/1280", "BrFusion", "latency_mean")
	values := valuesOf(samples, "udp_rr/1280", "BrFusion", "latency_mean")
	total := 0.0
	for _, v := range values {
		total += v
	}
	if e.N != 6 || !near(e.Median, median(values)) || !near(e.Center, geoMean(values)) || !near(e.Mean, total/6) || !near(e.Min, slices.Min(values)) {
		t.Errorf("estimate %+v of %v", e, values)
	}
	if want, err := stats.CenterInterval(values, 0.95); err != nil || !near(e.Interval.Low, want.Low) || !near(e.Interval.High, want.High) {
		t.Errorf("interval %+v, want %+v, error %v", e.Interval, want, err)
	}
	for _, baseline := range []string{"NoCont", "NAT"} {
		c := e.Against(baseline)
		want := geoMean(values) / geoMean(valuesOf(samples, "udp_rr/1280", baseline, "latency_mean"))
		if !near(c.Ratio, want) || !(c.Interval.Low <= c.Ratio && c.Ratio <= c.Interval.High) {
			t.Errorf("ratio to %s: %v in %+v, want %v", baseline, c.Ratio, c.Interval, want)
		}
	}
	if c := e.Against("BrFusion"); c != nil {
		t.Errorf("compared with itself: %+v", c)
	}
}

// The primary metrics of all cases against the main baseline are one family, the other
// baselines and metrics are families of their own. Each pair of configurations is judged
// once; the mirror image has the inverse ratio and the opposite verdict.
func TestFamilies(t *testing.T) {
	doc := build(synthetic(6))
	ps := map[string][]float64{}
	for _, e := range dataOf(doc).Estimates {
		for _, c := range e.Comparisons {
			if c.First {
				ps[c.Family] = append(ps[c.Family], float64(c.P))
			}
		}
	}
	if n := len(ps["primary against NoCont"]); n != 2*(4+3) {
		t.Errorf("%d comparisons of the primary metrics with NoCont, want two for each of 7 cases", n)
	}
	if n := len(ps["primary against NAT"]); n != 4+3 {
		t.Errorf("%d comparisons of the primary metrics with NAT, want one for each of 7 cases", n)
	}
	if len(dataOf(doc).Families) != len(ps) {
		t.Errorf("%d families in the document, want %d", len(dataOf(doc).Families), len(ps))
	}
	for _, f := range dataOf(doc).Families {
		want := stats.Judge(ps[f.Name], 0.05)
		if f.Tests != want.Tests || f.Found != want.Found || !near(f.Level, want.Level) {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
	nat := estimateOf(t, doc, "udp_rr/64", "NAT", "latency_mean").Against("NoCont")
	mirror := estimateOf(t, doc, "udp_rr/64", "NoCont", "latency_mean").Against("NAT")
	if nat.P != mirror.P || nat.Family != mirror.Family || !near(mirror.Ratio, 1/float64(nat.Ratio)) || !near(mirror.Interval.Low, 1/float64(nat.Interval.High)) ||
		nat.Badge != "slower" || mirror.Badge != "faster" {
		t.Errorf("NAT over NoCont %+v, NoCont over NAT %+v", nat, mirror)
	}
}

// exactly returns a run of one case in NoCont and BrFusion with the values given.
func exactly(noCont, brFusion []float64) (result.Run, []result.Sample) {
	run := syntheticRun(len(noCont))
	run.Cases, run.Baselines = run.Cases[3:4], []string{"NoCont"}
	run.Configurations = slices.Delete(run.Configurations, 1, 2)
	var samples []result.Sample
	for name, values := range map[string][]float64{"NoCont": noCont, "BrFusion": brFusion} {
		for i, v := range values {
			samples = append(samples, result.Sample{Run: run.ID, Configuration: name, Suite: "network", Case: "udp_rr/1280",
				Metric: "latency_mean", Unit: "us", Order: result.LIB, Value: v, Block: i, Repetition: i})
		}
	}
	return run, samples
}

func TestVerdictsInWords(t *testing.T) {
	tests := []struct {
		name             string
		noCont, brFusion []float64
		badge            string
		want             []string
	}{
		{"equivalent", []float64{100, 101, 99, 100, 101, 99}, []float64{100.5, 101, 99.5, 100, 101, 99}, "equal within 0.44 %",
			[]string{"equal to NoCont within 0.44 %. Shown to be within 3.5 % of NoCont"}},
		{"slower", []float64{100, 101, 99, 100, 101, 99}, []float64{150, 152, 149, 150, 151, 149}, "slower",
			[]string{"slower: 50 % higher latency than NoCont. Shown to be more than 3.5 % from NoCont"}},
		{"faster", []float64{100, 101, 99, 100, 101, 99}, []float64{50, 51, 49, 50, 51, 49.5}, "faster", []string{"faster: 50 % lower latency than NoCont"}},
		{"different and equivalent", []float64{100, 100.1, 99.9, 100, 100.1, 99.9}, []float64{101, 101.1, 100.9, 101, 101.1, 101}, "slower",
			[]string{"1 % higher latency than NoCont", "Shown to be within 3.5 % of NoCont"}},
		{"much slower", []float64{100, 101, 99, 100, 101, 99}, []float64{310, 311, 309, 310, 311, 310}, "slower", []string{"3.10 times the latency of NoCont"}},
		{"noisy", []float64{100, 150, 80, 120, 90, 140}, []float64{130, 90, 150, 100, 160, 80}, "not known: within the noise",
			[]string{"not known against NoCont", "find differences of 113 % in 80 % of cases", "Not shown to be within 3.5 %"}},
		{"one each", []float64{100}, []float64{150}, "not known: needs 5 more blocks", []string{"not known against NoCont: needs 5 more blocks"}},
		{"constant", []float64{100, 100, 100, 100, 100, 100}, []float64{150, 150, 150, 150, 150, 150}, "not known: nothing varies", []string{"nothing varies"}},
		{"zero baseline", []float64{0, 0, 0, 0, 0, 0}, []float64{1, 2, 1, 2, 1, 2}, "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := estimateOf(t, build(exactly(tt.noCont, tt.brFusion)), "udp_rr/1280", "BrFusion", "latency_mean").Against("NoCont")
			if c.Badge != tt.badge {
				t.Errorf("badge %q, want %q", c.Badge, tt.badge)
			}
			for _, want := range tt.want {
				if !strings.Contains(c.Words, want) {
					t.Errorf("verdict %q lacks %q", c.Words, want)
				}
			}
			if c.Equivalent == stats.Yes && strings.Contains(c.Words, "Not shown") || strings.Contains(strings.ToLower(c.Words), "probability that") {
				t.Errorf("verdict %q", c.Words)
			}
		})
	}
}

// What is shown of a claim is a headline; what is not known is not.
func TestClaimHeadline(t *testing.T) {
	steady := []float64{100, 101, 99, 100, 101, 99}
	for want, brFusion := range map[string][]float64{
		"UDP ping-pong: BrFusion is shown to be within 3.5 % of NoCont for 1280 B.":      {100.2, 101, 99, 100, 101, 99.1},
		"UDP ping-pong: BrFusion is shown to be more than 3.5 % from NoCont for 1280 B.": {150, 151, 149, 150, 151, 149},
	} {
		if doc := build(exactly(steady, brFusion)); !slices.Contains(doc.Headlines, want) || len(doc.NotKnown) > 0 {
			t.Errorf("headlines lack %q, or something is not known: %q, %q", want, doc.Headlines, doc.NotKnown)
		}
	}
	open := []string{"UDP ping-pong, 1280 B: BrFusion against NoCont", "UDP ping-pong: BrFusion within 3.5 % of NoCont for 1280 B"}
	if doc := build(exactly(steady, []float64{130, 90, 150, 100, 160, 80})); !slices.Equal(doc.NotKnown, open) || len(doc.Headlines) != 1 {
		t.Errorf("not known %q, want %q; headlines %q", doc.NotKnown, open, doc.Headlines)
	}
}

func TestMissingCellsAreMissingAndNeverZero(t *testing.T) {
	doc := build(holed())
	e := estimateOf(t, doc, "udp_rr/256", "NAT", "latency_mean")
	if e.N != 0 || e.Median.Defined() || !strings.Contains(e.Missing, "failed 3 times") {
		t.Errorf("estimate of a missing cell: %+v", e)
	}
	if e := estimateOf(t, doc, "tcp_stream/64", "NAT", "throughput"); e.Missing != "missing: not measured yet" {
		t.Errorf("cell not reached: %q", e.Missing)
	}
	row := doc.Groups[0].Tables[0].Rows[4]
	for _, c := range row[3:] {
		if !c.Missing {
			t.Errorf("cell %+v of a row without samples", c)
		}
	}
	if c := estimateOf(t, doc, "udp_rr/256", "BrFusion", "latency_mean").Against("NAT"); c.Ratio.Defined() || c.Verdict != "" || c.Words != "" {
		t.Errorf("comparison with a missing baseline: %+v", c)
	}
	chart := doc.Groups[0].Charts[0]
	if v := chart.Series[1].Values[1]; v.Defined() || !strings.Contains(chart.Words, "256 B missing") {
		t.Errorf("chart draws %v for a missing value, and says %q", v, chart.Words)
	}
}

// A cell of a metric that some executions do not have says how many have it.
func TestCellsOfFewerExecutions(t *testing.T) {
	run, samples := synthetic(8)
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool {
		return s.Configuration == "NAT" && s.Metric == "latency_p99" && s.Block > 2
	})
	var few, all int
	for _, table := range build(run, samples).Groups[0].Tables {
		for i, row := range table.Rows {
			for j, c := range row {
				switch {
				case !strings.HasPrefix(table.Columns[j].Name, "latency_p99"):
				case strings.HasSuffix(c.Text, ", n = 3"):
					few++
				case strings.Contains(c.Text, "n = "):
					t.Errorf("row %d: %q", i, c.Text)
				default:
					all++
				}
			}
		}
	}
	if few == 0 || all != 2*few {
		t.Errorf("%d cells have n = 3, %d the n of their row; want one and two of three configurations", few, all)
	}
}

func TestThinRuns(t *testing.T) {
	run, samples := synthetic(1)
	none := run
	none.State = result.Running
	empty := result.Run{ID: "r", State: result.Failed, Error: "boot guest: timeout"}
	noBaseline := run
	noBaseline.Baselines = []string{"Metal"}
	tests := []struct {
		name    string
		doc     document.Document
		warning string
	}{
		{"one repetition", build(run, samples), "Only 1 repetition planned: a verdict takes at least 6."},
		{"no samples", build(none, nil), "The run is running, not complete: 0 of 21 planned executions have samples."},
		{"nothing at all", build(empty, nil), "The run is failed, not complete (boot guest: timeout): 0 of 0 planned executions"},
		{"no baseline", build(noBaseline, samples), "The baseline Metal is not a configuration of this run"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if all := strings.Join(tt.doc.Warnings, "\n"); !strings.Contains(all, tt.warning) {
				t.Errorf("warnings lack %q:\n%s", tt.warning, all)
			}
			if len(tt.doc.Headlines) == 0 {
				t.Error("no headline")
			}
			for _, f := range render.Formats {
				var out bytes.Buffer
				if err := f.Print(&out, tt.doc); err != nil {
					t.Errorf("%s: %v", f.Name, err)
				}
				if s := strings.ReplaceAll(out.String(), library, ""); strings.Contains(strings.ReplaceAll(s, script, ""), "NaN") {
					t.Errorf("%s prints NaN", f.Name)
				}
			}
		})
	}
	if c := estimateOf(t, tests[0].doc, "udp_rr/64", "NAT", "latency_mean"); c.StdErr.Defined() || c.Interval.Low.Defined() {
		t.Errorf("one value has no spread: %+v", c)
	}
}

func TestWarnsOfSeparateBlocksAndNotes(t *testing.T) {
	run, samples := synthetic(6)
	run.Interleaved, run.Accelerator = false, "kvm"
	run.Notes = []string{"other labs were up"}
	doc := runs.Build(run, samples, runs.Options{Notes: []string{"samples.jsonl: dropped"}})
	for _, e := range dataOf(doc).Estimates {
		for _, c := range e.Comparisons {
			if c.Ratio.Defined() && (c.Verdict != "" || c.Badge != estimate.NoVerdict) {
				t.Fatalf("%s in %s of separate blocks: %q, %q", e.Case, e.Configuration, c.Verdict, c.Badge)
			}
		}
	}
	if len(doc.Warnings) != 3 || !strings.Contains(doc.Warnings[0], "not interleaved") ||
		doc.Warnings[1] != "other labs were up" || doc.Warnings[2] != "samples.jsonl: dropped" {
		t.Errorf("warnings %q", doc.Warnings)
	}
	if doc.Setting != "6 repetitions, kvm" {
		t.Errorf("setting %q", doc.Setting)
	}
}

func TestStraySamplesAreLeftOutWithAWarning(t *testing.T) {
	run, samples := synthetic(6)
	stray := func(change func(*result.Sample)) result.Sample {
		s := samples[0]
		change(&s)
		return s
	}
	doc := build(run, append(samples,
		stray(func(s *result.Sample) { s.Configuration = "Overlay" }),
		stray(func(s *result.Sample) { s.Case = "udp_rr/9" }),
		stray(func(s *result.Sample) { s.Unit = "ms" })))
	want := []string{
		`Left out: 1 sample of unknown case "udp_rr/9".`,
		`Left out: 1 sample of unknown configuration "Overlay".`,
		"Left out: 1 sample of latency_mean of udp_rr/64 in ms instead of us.",
	}
	for _, w := range want {
		if !slices.Contains(doc.Warnings, w) {
			t.Errorf("warnings lack %q: %q", w, doc.Warnings)
		}
	}
	if kept := slices.Collect(doc.Samples.All); len(kept) != len(samples) {
		t.Errorf("%d samples kept, want %d", len(kept), len(samples))
	}
}

// A metric that the case did not declare is reported all the same.
func TestUndeclaredMetricsAreFound(t *testing.T) {
	run, samples := synthetic(6)
	for i := range run.Cases {
		run.Cases[i].Metrics = nil
	}
	doc := build(run, samples)
	if want := 4*3*10 + 3*3*2; len(dataOf(doc).Estimates) != want {
		t.Errorf("%d estimates, want %d", len(dataOf(doc).Estimates), want)
	}
	if title := doc.Groups[0].Tables[0].Title; title != "UDP ping-pong: latency_mean (µs, lower is better)" {
		t.Errorf("first table %q", title)
	}
}

func TestSeveralValuesOfABlockCountOnce(t *testing.T) {
	run, samples := synthetic(6)
	e := estimateOf(t, build(run, append(samples, samples...)), "udp_rr/64", "NAT", "latency_mean")
	if e.N != 6 || !slices.ContainsFunc(e.Warnings, func(d string) bool { return strings.Contains(d, "several values of one block") }) {
		t.Errorf("n = %d, warnings %q", e.N, e.Warnings)
	}
}

// What would stand in every row of a table stands once below it.
func TestTooFewBlocksAreToldOnce(t *testing.T) {
	runA, samplesA := exactly([]float64{100}, []float64{150})
	runA.Configurations[1].Name = "other" // no claim is made of it
	for i := range samplesA {
		if samplesA[i].Configuration == "BrFusion" {
			samplesA[i].Configuration = "other"
		}
	}
	const note = "No verdict against "
	for baseline, doc := range map[string]document.Document{
		"NoCont": runs.Build(runA, samplesA, runs.Options{}),
		"A":      comparison.Build(provenance.Source{Dir: "a", Run: runA, Samples: samplesA}, provenance.Source{Dir: "b", Run: runA, Samples: samplesA}, true, nil),
	} {
		table := doc.Groups[0].Tables[0]
		if len(table.Notes) != 1 || !strings.HasPrefix(table.Notes[0], note+baseline) {
			t.Errorf("against %s: notes %q", baseline, table.Notes)
		}
		for _, row := range table.Rows {
			if verdict := row[len(row)-1]; verdict.Text != "" || verdict.Short != "" {
				t.Errorf("against %s: verdict %+v", baseline, verdict)
			}
		}
	}
}

func TestAnswer(t *testing.T) {
	steady := []float64{100, 101, 99, 100, 101, 99}
	for name, tc := range map[string]struct {
		brFusion []float64
		want     string
	}{
		"faster":  {[]float64{50, 51, 49, 50, 51, 49.5}, "UDP ping-pong, 1280 B: BrFusion is faster than NoCont (0.50×)."},
		"equal":   {[]float64{100.5, 101, 99.5, 100, 101, 99}, "UDP ping-pong, 1280 B: BrFusion is equal to NoCont within 0.44 %."},
		"open":    {[]float64{130, 90, 150, 100, 160, 80}, "UDP ping-pong, 1280 B: this run decides nothing"},
		"too few": {nil, ""},
	} {
		if got := build(exactly(steady, tc.brFusion)).Answer; !strings.HasPrefix(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	const more = "UDP ping-pong, 1280 B: this run decides nothing yet. At this noise, about 3 more blocks would: --repetitions 6."
	if got := build(exactly(steady[:3], []float64{150, 151, 149})).Answer; got != more {
		t.Errorf("too few blocks: %q, want %q", got, more)
	}
	if doc, _ := kept(t, "quickstart"); strings.Contains(doc.Answer, "ot known") || len(doc.NotKnown) == 0 {
		t.Errorf("the answer %q has what is not known, not %q", doc.Answer, doc.NotKnown)
	}
}
