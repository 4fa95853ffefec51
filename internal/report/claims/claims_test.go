package claims

import (
	"math"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
)

func TestParse(t *testing.T) {
	for printed, want := range map[string]published{
		"2.1 times":                {low: 2.05, high: 2.15, order: 1},
		"about 2 times":            {low: 1.5, high: 2.5, order: 1},
		"18.4 % lower":             {low: 0.8155, high: 0.8165, order: -1},
		"17.9 % higher":            {low: 1.1785, high: 1.1795, order: 1},
		"6.1 times lower at worst": {low: 1 / 6.15, high: 1 / 6.05, order: -1},
		"10 to 20 % lower":         {low: 0.795, high: 0.905, order: -1},
		"27.9 % of the mean":       {low: 0.2785, high: 0.2795},
		"3 times the mean":         {low: 2.5, high: 3.5},
		"within 3.5 %":             {low: math.NaN(), high: math.NaN(), margin: 0.035},
		"no difference":            {low: math.NaN(), high: math.NaN(), margin: stats.DefaultMargin},
		"lower":                    {low: math.NaN(), high: math.NaN(), order: -1},
	} {
		got, err := parse(printed)
		same := func(a, b float64) bool { return math.Abs(a-b) < 1e-12 || math.IsNaN(a) && math.IsNaN(b) }
		if err != nil || !same(got.low, want.low) || !same(got.high, want.high) || got.order != want.order || !same(got.margin, want.margin) {
			t.Errorf("%s: %+v, %v; want %+v", printed, got, err, want)
		}
	}
	for _, printed := range []string{"", "2.1", "-3 % lower", "faster", "2 times faster"} {
		if got, err := parse(printed); err == nil {
			t.Errorf("%q: %+v, want an error", printed, got)
		}
	}
}

// A claim follows from the interval alone; a wide one that holds the paper's value and 1 decides nothing.
func TestDecide(t *testing.T) {
	for _, tt := range []struct {
		printed   string
		ratio     bool
		low, high float64
		want      Decision
	}{
		{"2.1 times", true, 1.9, 2.3, Decision{Answer: Agrees, Value: "inside", Order: "same"}},
		{"2.1 times", true, 1.1, 1.3, Decision{Answer: Agrees, Value: "outside", Order: "same"}},
		{"2.1 times", true, 0.9, 1.3, Decision{Answer: Disagrees, Value: "outside", Order: "not known"}},
		{"2.1 times", true, 0.7, 0.9, Decision{Answer: Disagrees, Value: "outside", Order: "opposite"}},
		{"18.4 % lower", true, 0.7, 1.1, Decision{Answer: NotDecided, Value: "inside", Order: "not known", Why: "the interval holds 1"}},
		{"18.4 % lower", true, 0.7, 0.9, Decision{Answer: Agrees, Value: "inside", Order: "same"}},
		{"lower", true, 0.7, 0.9, Decision{Answer: Agrees, Order: "same"}},
		{"lower", true, 0.7, 1.1, Decision{Answer: NotDecided, Order: "not known", Why: "the interval holds 1"}},
		{"lower", true, 1.2, 1.3, Decision{Answer: Disagrees, Order: "opposite"}},
		{"within 3.5 %", true, 0.98, 1.03, Decision{Answer: Agrees}},
		{"within 3.5 %", true, 1.05, 1.2, Decision{Answer: Disagrees}},
		{"within 3.5 %", true, 0.98, 1.2, Decision{Answer: NotDecided, Why: "the interval is neither within the margin nor outside of it"}},
		{"27.9 % of the mean", false, 0.2, 0.3, Decision{Answer: Agrees, Value: "inside"}},
		{"27.9 % of the mean", false, 0.4, 0.6, Decision{Answer: Disagrees, Value: "outside"}},
		{"about 2 times the mean", false, 0.4, 2.6, Decision{Answer: Agrees, Value: "inside"}},
	} {
		p, err := parse(tt.printed)
		if err != nil {
			t.Fatal(err)
		}
		if got := decide(p, tt.ratio, stats.Interval{Low: tt.low, High: tt.high, Confidence: 0.95}); got != tt.want {
			t.Errorf("%s, ours %v to %v: %+v, want %+v", tt.printed, tt.low, tt.high, got, tt.want)
		}
	}
}

// runOf is a run in which NAT takes twice as long as NoCont, its deviation is half of its mean, and
// BrFusion is equal. Every disturbed-th execution was disturbed; 0: none.
func runOf(blocks, disturbed int) provenance.Source {
	run := result.Run{ID: "x", Experiment: "brfusion", Accelerator: "kvm", Interleaved: true, Cases: []result.Case{
		{Name: "udp_rr/64", Primary: "latency_mean", Metrics: []result.Metric{{Name: "latency_mean", Order: result.LIB}}},
		{Name: "udp_rr/1280", Primary: "latency_mean", Metrics: []result.Metric{{Name: "latency_mean", Order: result.LIB}}},
		{Name: "other", Primary: "throughput", Metrics: []result.Metric{{Name: "throughput", Order: result.HIB}}},
	}}
	var samples []result.Sample
	for i, configuration := range []string{"NoCont", "NAT", "BrFusion"} {
		run.Configurations = append(run.Configurations, result.Configuration{Name: configuration})
		for block := range blocks {
			for j, c := range run.Cases {
				value := 100 * (1 + 0.01*math.Sin(float64(7*block+3*i+j)))
				if configuration == "NAT" {
					value *= 2
				}
				tags := map[string]string{"others": "0.000", "steal": "0.000"}
				if disturbed > 0 && block%disturbed == 0 {
					tags["others"] = "1.500"
				}
				for metric, factor := range map[string]float64{c.Primary: 1, "latency_stddev": 0.5, "guest_usr": 0.1, "guest_sys": 0.2, "response_rate": 3} {
					samples = append(samples, result.Sample{Configuration: configuration, Case: c.Name, Metric: metric, Value: value * factor, Block: block, Tags: tags})
				}
			}
		}
	}
	return provenance.Source{Run: run, Samples: samples}
}

func claim(t *testing.T, c Claim, printed string) Claim {
	t.Helper()
	p, err := parse(printed)
	if err != nil {
		t.Fatal(err)
	}
	c.ID, c.Paper, c.Run, c.Printed, c.published = "x", "bacou", "brfusion", printed, p
	return c
}

func TestMeasure(t *testing.T) {
	input := runOf(8, 0)
	for _, tt := range []struct {
		c       Claim
		printed string
		ours    float64
		want    Answer
	}{
		{Claim{Case: "udp_rr/1280", Metric: "latency_mean", Configuration: "NAT", Baseline: "NoCont"}, "31 % higher", 2, Agrees},
		{Claim{Case: "udp_rr/*", Metric: "latency_mean", Configuration: "NAT", Baseline: "NoCont"}, "2 times", 2, Agrees},
		{Claim{Case: "*", Metric: "performance", Configuration: "NAT", Baseline: "NoCont"}, "1.5 times lower", math.Pow(2, -1./3), Agrees},
		{Claim{Case: "udp_rr/1280", Metric: "latency_mean", Configuration: "BrFusion", Baseline: "NoCont"}, "within 3.5 %", 1, Agrees},
		{Claim{Case: "udp_rr/1280", Metric: "latency_mean", Configuration: "BrFusion", Baseline: "NAT"}, "higher", 0.5, Disagrees},
		{Claim{Case: "udp_rr/1280", Metric: "latency_stddev/latency_mean", Configuration: "NAT"}, "50 % of the mean", 0.5, Agrees},
		{Claim{Case: "udp_rr/1280", Metric: "guest_usr+guest_sys*response_rate", Configuration: "NAT", Baseline: "NoCont"}, "4 times", 4, Agrees},
		{Claim{Case: "udp_rr/1280", Metric: "lost", Configuration: "NAT", Baseline: "NoCont"}, "4 times", math.NaN(), NotDecided},
	} {
		rows, _ := Test([]Claim{claim(t, tt.c, tt.printed)}, map[string]provenance.Source{"brfusion": input})
		r := rows[0]
		if r.Answer != tt.want || math.Abs(float64(r.Ours)-tt.ours) > 0.02*tt.ours || r.Ours.Defined() == math.IsNaN(tt.ours) {
			t.Errorf("%s %s: %v %v, %+v; want %v, %s", tt.c.Case, tt.c.Metric, r.Ours, r.Interval, r.Decision, tt.ours, tt.want)
		}
		if r.Command != "unnest bench brfusion" || r.Accelerator != "kvm" {
			t.Errorf("%q, %q", r.Command, r.Accelerator)
		}
	}
}

// How evenly two domains answer is a claim about both, of which the samples have one value each.
func TestLeastAndMost(t *testing.T) {
	input := runOf(8, 0)
	for i, s := range input.Samples {
		tags := map[string]string{"domain": "a", "active": "true", "others": "0.000", "steal": "0.000"}
		input.Samples[i].Tags = tags
		other := s
		other.Value, other.Tags = s.Value*0.8, map[string]string{"domain": "b", "active": "true", "others": "0.000", "steal": "0.000"}
		input.Samples = append(input.Samples, other)
	}
	c := Claim{Case: "other", Metric: "least_throughput/most_throughput", Configuration: "NAT"}
	rows, _ := Test([]Claim{claim(t, c, "within 5 %"), claim(t, c, "within 30 %")}, map[string]provenance.Source{"brfusion": input})
	if a, b := rows[0], rows[1]; math.Abs(float64(a.Ours)-0.8) > 1e-9 || a.Answer != Disagrees || b.Answer != Agrees {
		t.Errorf("%+v, %+v", a, b)
	}
}

// A noisy run, few blocks or no run at all decide nothing, whatever their values.
func TestNoDecision(t *testing.T) {
	c := claim(t, Claim{Case: "udp_rr/1280", Metric: "latency_mean", Configuration: "NAT", Baseline: "NoCont"}, "2 times")
	separate := runOf(8, 0)
	separate.Run.Interleaved = false
	selected := runOf(8, 0)
	selected.Samples = slices.DeleteFunc(selected.Samples, func(s result.Sample) bool {
		return s.Configuration == "NAT" && s.Metric == "latency_mean" && s.Block == 1
	})
	for why, runs := range map[string]map[string]provenance.Source{
		"too noisy to conclude":             {"brfusion": runOf(8, 2)},
		"too few blocks":                    {"brfusion": runOf(5, 0)},
		"the configurations share no block": {"brfusion": separate},
		"no run of it":                      {},
		"only a part of the executions has it, which is not a random choice": {"brfusion": selected},
	} {
		rows, _ := Test([]Claim{c}, runs)
		if got := rows[0].Decision; got.Answer != NotDecided || got.Why != why {
			t.Errorf("%+v, want not decided: %s", got, why)
		}
	}
}

const part = "the run has only a part of the cases"

// A run of some of the cases decides nothing about all, but claims about those that it has.
func TestPartOfTheCases(t *testing.T) {
	input := runOf(8, 0)
	input.Samples = slices.DeleteFunc(input.Samples, func(s result.Sample) bool { return s.Case == "udp_rr/64" })
	for name, want := range map[string]string{"udp_rr/*": part, "*": part, "udp_rr/1280": "", "other*": ""} {
		c := claim(t, Claim{Case: name, Metric: "performance", Configuration: "NAT", Baseline: "NoCont"}, "lower")
		rows, _ := Test([]Claim{c}, map[string]provenance.Source{"brfusion": input})
		if r := rows[0]; r.Why != want || (r.Answer == NotDecided) != (want != "") || r.Ours.Defined() != (want == "") {
			t.Errorf("%s: %v, %+v; want %q", name, r.Ours, r.Decision, want)
		}
	}
	for _, extent := range []string{"", "worst"} { // has all cases, but not the configuration
		c := claim(t, Claim{Case: "udp_rr/*", Metric: "performance", Configuration: "other", Baseline: "NoCont", Extent: extent}, "2 times")
		if rows, _ := Test([]Claim{c}, map[string]provenance.Source{"brfusion": runOf(8, 0)}); rows[0].Why != "no values" {
			t.Errorf("without the configuration: %+v", rows[0].Decision)
		}
	}
}

// Where a case could be the worst, but decides nothing, no other one is called the worst.
func TestNoExtremeWithoutACase(t *testing.T) {
	c := claim(t, Claim{Case: "udp_rr/*", Metric: "latency_mean", Configuration: "NAT", Baseline: "NoCont", Extent: "worst"}, "2 times")
	without := func(blocks int) provenance.Source {
		input := runOf(8, 0)
		input.Samples = slices.DeleteFunc(input.Samples, func(s result.Sample) bool { return s.Case == "udp_rr/64" && s.Block >= blocks })
		return input
	}
	for want, input := range map[string]provenance.Source{"too noisy to conclude": runOf(8, 2), "too few blocks": without(3), part: without(0), "": runOf(8, 0)} {
		rows, _ := Test([]Claim{c}, map[string]provenance.Source{"brfusion": input})
		if r := rows[0]; r.Why != want || r.Ours.Defined() != (want == "") || (r.Where == "") != (want != "") {
			t.Errorf("%v of %q, %+v; want %q", r.Ours, r.Where, r.Decision, want)
		}
	}
}

// Every claim is complete, there is one of each, and every claim without a run says why.
func TestAll(t *testing.T) {
	ids, papers := map[string]bool{}, map[string]int{}
	for _, c := range All() {
		if c.ID == "" || c.Section == "" || c.Words == "" || c.Printed == "" || ids[c.ID] || strings.ContainsAny(c.ID, " :") {
			t.Errorf("incomplete, or twice: %+v", c)
		}
		if (c.Run == "") == (c.Reason == "") {
			t.Errorf("want a run or a reason: %+v", c)
		}
		ids[c.ID] = true
		papers[c.Paper]++
	}
	for paper, least := range map[string]int{"bacou": 50, "domains": 20, "lubomski": 30, "fitzgerald": 41} {
		if papers[paper] < least {
			t.Errorf("%s: %d claims, want at least %d", paper, papers[paper], least)
		}
	}
}

// The page of no runs has every claim, and draws the paper's value next to ours.
func TestBuild(t *testing.T) {
	doc := Build(map[string]provenance.Source{"brfusion": runOf(8, 0)}, nil)
	rows := 0
	for _, g := range doc.Groups {
		rows += len(g.Tables[0].Rows)
		for _, c := range g.Charts {
			if c.Kind != document.Forest || len(c.Series) != 2 || len(c.Series[0].Values) != len(c.Categories) || len(c.Series[1].Values) != len(c.Categories) {
				t.Errorf("%s: %+v", c.ID, c)
			}
		}
	}
	if rows != len(All()) || len(doc.Records) != rows+1 || len(doc.Groups[0].Charts) != 1 {
		t.Errorf("%d rows, %d records, want %d", rows, len(doc.Records), len(All()))
	}
	fresh := runOf(8, 0)
	fresh.Run.Fresh = true
	for where, input := range map[string]provenance.Source{"brfusion, kvm, 0001-01-01": runOf(8, 0), "brfusion, kvm, 0001-01-01, fresh guests": fresh} {
		page := Build(map[string]provenance.Source{"brfusion": input}, []string{"a warning"})
		named := slices.ContainsFunc(page.Groups[0].Tables[0].Rows, func(row []document.Cell) bool { return row[6].Text == where })
		if !named || !slices.Equal(page.Warnings, []string{"a warning"}) {
			t.Errorf("no row of %q, or warnings %q", where, page.Warnings)
		}
	}
	if len(doc.Warnings) > 0 || !slices.ContainsFunc(doc.Groups[0].Tables[0].Rows, func(row []document.Cell) bool { return row[4].Text == "agrees in order, not in size" }) {
		t.Errorf("warnings %q, rows %+v", doc.Warnings, doc.Groups[0].Tables[0].Rows[4])
	}
}

// The ratios of Bacou et al. that reports show next to a run are claims with the same figures.
func TestRatiosAreClaims(t *testing.T) {
	all := All()
	for _, r := range papers.Ratios() {
		if !slices.ContainsFunc(all, func(c Claim) bool {
			return c.Paper == "bacou" && c.Section == r.Section && c.Printed == r.String() && c.Configuration == r.Configuration && c.Baseline == r.Baseline
		}) {
			t.Errorf("no claim says %s of %s against %s, %s", r, r.Configuration, r.Baseline, r.Section)
		}
	}
}

// The values of Lubomski et al. follow from what their tables print of single cases: totals subtract where lower is better, so
// of a suite with such cases only the order is tested.
func TestLubomskiFollowsFromTables(t *testing.T) {
	all, tested := papers.All(), map[string]int{}
	for _, c := range All() {
		if c.Paper != "lubomski" || c.Run == "" || c.published.margin > 0 {
			continue
		}
		var logs []float64
		switch c.Run {
		case "multilevel-disk", "multilevel-network":
			suite := strings.TrimPrefix(c.Run, "multilevel-")
			for _, s := range all.Scores {
				if s.Suite != suite || s.Configuration != c.Configuration || c.Case != "*" && s.Case != c.Case {
					continue
				}
				of := all.Score(suite, s.Case, c.Baseline)
				quotient := math.Log(s.Score.Float() / of.Score.Float())
				if s.Value != "" {
					quotient = math.Log(s.Value.Float() / of.Value.Float())
				}
				if s.Order == result.LIB {
					quotient = -quotient
				}
				logs = append(logs, quotient)
			}
		case "multilevel-application-short":
			logs = append(logs, math.Log(all.Total("application", c.Configuration).Total.Float()/all.Total("application", c.Baseline).Total.Float()))
		default:
			if !math.IsNaN(c.published.low) {
				t.Errorf("%s: a value that follows from totals: %s", c.ID, c.Printed)
			}
			continue
		}
		sum := 0.0
		for _, l := range logs {
			sum += l
		}
		tested[c.Run]++
		// "about 4 %" is what §4.2 says in words.
		if value := math.Exp(sum / float64(len(logs))); (value < c.published.low || c.published.high < value) && !strings.HasPrefix(c.Printed, "about ") {
			t.Errorf("%s: %s, the tables have %.3f", c.ID, c.Printed, value)
		}
	}
	if tested["multilevel-disk"] != 5+18 || tested["multilevel-network"] != 8+2 || tested["multilevel-application-short"] != 3 {
		t.Errorf("tested %v", tested)
	}
}

// The changes of the study of collocated domains that reports show next to a run are claims.
func TestCollocationsAreClaims(t *testing.T) {
	all := All()
	for _, r := range papers.Collocations() {
		if r.Form == "%" && !slices.ContainsFunc(all, func(c Claim) bool {
			alone := r.Baseline == "alone" && strings.HasPrefix(r.Configuration, c.Baseline+"-")
			return c.Paper == "domains" && c.Configuration == r.Configuration && (c.Baseline == r.Baseline || alone)
		}) {
			t.Errorf("no claim says %s of %s against %s", r.Value, r.Configuration, r.Baseline)
		}
	}
}
