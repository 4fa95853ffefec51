// Package claims tests what the papers claim against runs: each claim that has a number or an order has a row
// with the paper's value, ours with its interval, and what follows by one rule, see Decide.
package claims

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/stats"
	"unnest/internal/report/papers"
)

//go:embed claims.csv
var file []byte

// Claim is one claim of a paper, and how it is measured here.
type Claim struct {
	ID      string `json:"id"`
	Paper   string `json:"paper"` // bacou, domains, lubomski, fitzgerald
	Section string `json:"section"`
	Words   string `json:"claim"`
	Printed string `json:"printed"` // as the paper says it

	Run           string `json:"run,omitempty"`  // published run; empty: not testable here
	Case          string `json:"case,omitempty"` // a final * stands for all such cases
	Metric        string `json:"metric,omitempty"`
	Configuration string `json:"configuration,omitempty"`
	Baseline      string `json:"baseline,omitempty"` // empty: Metric itself, not its ratio
	Extent        string `json:"extent,omitempty"`   // worst or best of the cases by Words
	Reason        string `json:"reason,omitempty"`   // why it is not testable here

	published published
}

// published is what a claim says as numbers.
type published struct {
	low, high float64 // the value, within its rounding; NaN: only an order
	order     int     // of the ratio against 1: -1 lower, 1 higher, 0 none
	margin    float64 // of an equality; 0: none is claimed
}

// value is the middle of what the paper prints; 1 of an equality.
func (p published) value() float64 {
	if p.margin > 0 {
		return 1
	}
	return math.Sqrt(p.low * p.high)
}

var (
	printedForm  = regexp.MustCompile(`^(?:about )?([0-9.]+)(?: to ([0-9.]+))? (times lower|times the mean|times|% higher|% lower|% of the mean)(?: at (?:worst|best))?$`)
	equalityForm = regexp.MustCompile(`^within ([0-9.]+) %$`)
)

// parse reads what a paper prints. A number stands for all that are rounded to it.
func parse(printed string) (published, error) {
	none := published{low: math.NaN(), high: math.NaN()}
	switch printed {
	case "lower":
		none.order = -1
		return none, nil
	case "higher":
		none.order = 1
		return none, nil
	case "no difference":
		none.margin = stats.DefaultMargin
		return none, nil
	}
	if m := equalityForm.FindStringSubmatch(printed); m != nil {
		percent, err := strconv.ParseFloat(m[1], 64)
		none.margin = percent / 100
		return none, err
	}
	m := printedForm.FindStringSubmatch(printed)
	if m == nil {
		return none, fmt.Errorf("%q: want such as 17.9 %% higher, 2.1 times, lower or within 3.5 %%", printed)
	}
	first, last := papers.Number(m[1]), papers.Number(m[1])
	if m[2] != "" {
		last = papers.Number(m[2])
	}
	factor := func(x float64) float64 {
		return papers.Ratio{Value: papers.Number(strconv.FormatFloat(x, 'g', -1, 64)), Form: m[3]}.Factor()
	}
	low, high := factor(first.Float()-first.Unit()/2), factor(last.Float()+last.Unit()/2)
	p := published{low: min(low, high), high: max(low, high)}
	switch {
	case strings.HasSuffix(m[3], "mean"):
	case p.low > 1:
		p.order = 1
	case p.high < 1:
		p.order = -1
	}
	return p, nil
}

// All returns the claims by paper and section. It panics on data that it cannot read, because they are compiled in.
func All() []Claim {
	var all []Claim
	for _, paper := range []func() []Claim{ratios, collocations, network, levels, read} {
		all = append(all, paper()...)
	}
	slices.SortStableFunc(all, func(a, b Claim) int {
		if a.Paper == b.Paper && a.Paper != "fitzgerald" { // whose tables are in order, and of which 10 follows 9
			return strings.Compare(a.Section, b.Section)
		}
		return strings.Compare(a.Paper, b.Paper)
	})
	for i, c := range all {
		if c.Run == "" {
			continue
		}
		p, err := parse(c.Printed)
		if err != nil {
			panic(fmt.Sprintf("claims: %s: %v", c.ID, err))
		}
		all[i].published = p
	}
	return all
}

// read returns the claims of the embedded file.
func read() (all []Claim) {
	reader := csv.NewReader(bytes.NewReader(file))
	reader.Comment = '#'
	lines, err := reader.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("claims: %v", err))
	}
	for _, l := range lines[1:] {
		all = append(all, Claim{ID: l[0], Paper: l[1], Section: l[2], Words: l[3], Printed: l[4], Run: l[5], Case: l[6], Metric: l[7], Configuration: l[8], Baseline: l[9], Reason: l[10]})
	}
	return all
}

// paperMetrics are our metrics for those of Bacou et al.; CPU usage is time per answer or message times
// their rate.
var paperMetrics = map[string]string{
	"latency": "latency_mean", "throughput": "throughput", "deviation": "latency_stddev/latency_mean",
	"VM CPU": "vm_usr+vm_sys+vm_guest*", "guest soft": "guest_soft*", "guest total": "guest_usr+guest_sys+guest_soft*",
	"client and server sys": "guest_sys*", "client and server CPU": "guest_usr+guest_sys+guest_soft*", "guest CPU": "vm_usr+vm_guest*",
}

// ratios returns the claims of Bacou et al. of which package papers has the ratios.
func ratios() (all []Claim) {
	for _, r := range papers.Ratios() {
		server, split := strings.ToLower(r.Benchmark), r.Configuration == "Hostlo" || r.Configuration == "SameNode"
		c := Claim{
			ID:    strings.ToLower(strings.ReplaceAll(strings.Join([]string{"bacou", r.Section, r.Benchmark, r.Metric, r.Extent, r.Configuration, r.Baseline}, "-"), " ", "-")),
			Paper: "bacou", Section: r.Section, Printed: r.String(), Metric: paperMetrics[r.Metric], Configuration: r.Configuration, Baseline: r.Baseline,
			Case: server, Run: map[bool]string{false: "applications", true: "applications-pod"}[split],
		}
		what := r.Benchmark
		switch server {
		case "udp_rr", "tcp_stream":
			what = map[string]string{"udp_rr": "UDP ping-pong", "tcp_stream": "TCP stream"}[server]
			c.Run, c.Case = map[bool]string{false: "brfusion", true: "hostlo"}[split], server+"/*"
			if r.Size > 0 {
				c.Case = fmt.Sprintf("%s/%d", server, r.Size)
				what += fmt.Sprintf(" %d B", r.Size)
			} else {
				what += ", every size"
			}
		case "kafka":
			c.Run = "applications-kafka"
		}
		if r.Extent == "worst" || r.Extent == "best" {
			c.Extent = r.Extent
		}
		if strings.HasSuffix(c.Metric, "*") {
			c.Metric += map[bool]string{true: "message_rate", false: "response_rate"}[server == "kafka"]
		}
		c.Words = fmt.Sprintf("%s: %s, %s against %s", what, r.Metric, r.Configuration, r.Baseline)
		if r.Baseline == "" {
			c.Words = fmt.Sprintf("%s: standard deviation of latency, %s", what, r.Configuration)
			if server == "kafka" {
				c.Run, c.Reason = "", "Kafka's tool prints no deviation of its latencies"
			}
		}
		all = append(all, c)
	}
	return all
}

// collocations returns the claims of the study of domains of which package papers has the changes.
func collocations() (all []Claim) {
	for _, p := range papers.Collocations() {
		if p.Form != "%" {
			continue // a rate of the paper's machine
		}
		percent := p.Value.Float()
		printed := strings.TrimLeft(string(p.Value), "-") + " % " + map[bool]string{true: "lower", false: "higher"}[percent < 0]
		baseline, against := p.Baseline, p.Baseline
		if p.Baseline == "alone" {
			baseline, _, _ = strings.Cut(p.Configuration, "-")
			against = baseline + " alone"
		}
		c := Claim{
			ID:    strings.ToLower(strings.NewReplacer(" ", "-", ":", "-").Replace(fmt.Sprintf("domains-%s-%s-%s", p.Section, p.Configuration, p.Baseline))),
			Paper: "domains", Section: p.Section, Printed: printed, Run: "collocation-pairs",
			Case: fmt.Sprintf("web@100/%d", p.Size<<10), Metric: "aggregate_throughput", Configuration: p.Configuration, Baseline: baseline,
			Words: fmt.Sprintf("%d KB: throughput, %s against %s", p.Size, p.Configuration, against),
		}
		switch {
		case strings.Contains(p.Baseline, ":"):
			c.Run, c.Reason = "", "no published run has two documents side by side; unnest bench collocation has"
		case p.Configuration == "HVMCON":
			c.Run, c.Reason = "", "no published run has containers in an HVM; unnest bench collocation --suite baseline has"
		case p.Configuration == "PVMCON":
			c.Run = "collocation-quick"
		}
		all = append(all, c)
	}
	return all
}

// network returns the claims of Table 4 of Lubomski et al.: each score against that of the host.
func network() (all []Claim) {
	cases := map[string]string{"netperf tcp": "tcp_stream/16384", "netperf udp": "udp_stream/1280"}
	for _, s := range papers.NetworkScores() {
		if s.Configuration == "metal.remote" { // which has 1.00
			continue
		}
		printed := string(s.Score) + " times"
		if s.Score.Float() == 1 {
			printed = "no difference"
		}
		all = append(all, Claim{
			ID: "lubomski-4-" + strings.ReplaceAll(s.Case, " ", "-") + "-" + s.Configuration, Paper: "lubomski", Section: "4.2", Printed: printed,
			Words: fmt.Sprintf("%s, Table 4: %s against metal.remote", s.Case, s.Configuration),
			Run:   "multilevel-network", Case: cases[s.Case], Metric: "throughput", Configuration: s.Configuration, Baseline: "metal.remote",
		})
	}
	return all
}

// levels returns the claims of FitzGerald's Tables 5 to 14 on x86_64: each mean against that of the level below.
func levels() (all []Claim) {
	below := map[string]string{}
	for _, r := range papers.Sysbench() {
		if r.Architecture != "x86_64" {
			continue
		}
		lower := below[r.Level]
		below["L1"], below["L2"] = "L0", "L1"
		if lower == "" {
			continue
		}
		run, size := "levels", "all resources at every level"
		if !r.Overcommitted {
			run, size = "levels-reserved", "fewer processors and less memory at each level"
		}
		name := "sysbench-" + strings.Trim(strings.NewReplacer(" (", "-", ")", "").Replace(r.Test), "-")
		for _, m := range []struct {
			metric, words string
			mean          papers.Mean
		}{{"throughput", "throughput", r.Throughput}, {"latency_mean", "response time", r.Response}} {
			printed := strings.TrimLeft(string(m.mean.Change), "+-") + " % " + map[bool]string{true: "lower", false: "higher"}[m.mean.Change.Float() < 0]
			all = append(all, Claim{
				ID: fmt.Sprintf("fitzgerald-%d-%s-%s", r.Table, m.metric, strings.ToLower(r.Level)), Paper: "fitzgerald", Section: fmt.Sprintf("Table %d", r.Table), Printed: printed,
				Words: fmt.Sprintf("%s: %s, %s against %s, %s", r.Test, m.words, r.Level, lower, size),
				Run:   run, Case: name, Metric: m.metric, Configuration: r.Level, Baseline: lower,
			})
		}
	}
	return all
}
