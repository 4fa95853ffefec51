package advice

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
)

// network is a run of one case in configurations whose latencies are multiples of 100 µs, with
// noise of a block and of an execution.
func latencies(blocks int, scatter float64, of map[string]float64, configurations ...result.Configuration) (result.Run, []result.Sample) {
	r := rand.New(rand.NewPCG(1, 2))
	run := result.Run{
		ID: "r", Experiment: "quick", Interleaved: true, Repetitions: blocks, Configurations: configurations,
		Cases: []result.Case{{Suite: "network", Name: "udp_rr/64", Size: 64, Primary: "latency_mean",
			Metrics: []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}}}},
	}
	var samples []result.Sample
	for block := range blocks {
		common := math.Exp(0.1 * r.NormFloat64())
		for _, c := range configurations {
			samples = append(samples, result.Sample{Configuration: c.Name, Suite: "network", Case: "udp_rr/64", Metric: "latency_mean",
				Unit: "us", Order: result.LIB, Value: 100 * of[c.Name] * common * math.Exp(scatter*r.NormFloat64()), Block: block})
		}
	}
	return run, samples
}

var (
	noCont   = result.Configuration{Name: "NoCont", Stack: "vm", Options: map[string]string{"vcpus": "1"}}
	nat      = result.Configuration{Name: "NAT", Stack: "vm/containerd", Options: map[string]string{"vcpus": "1", "network": "nat"}}
	brfusion = result.Configuration{Name: "BrFusion", Stack: "vm/containerd", Options: map[string]string{"vcpus": "1", "network": "brfusion"}}
)

func TestChange(t *testing.T) {
	for _, tt := range []struct {
		name     string
		blocks   int
		scatter  float64
		brfusion float64
		want     stats.Verdict
	}{
		{"gain", 8, 0.02, 1.0, stats.Better},
		{"cost", 8, 0.02, 1.6, stats.Worse},
		{"no difference", 12, 0.01, 1.3, stats.Equal},
		{"noise", 8, 0.5, 1.25, stats.Unknown},
		{"few blocks", 5, 0.02, 1.0, stats.TooFew},
	} {
		a := Of(latencies(tt.blocks, tt.scatter, map[string]float64{"NoCont": 1, "NAT": 1.3, "BrFusion": tt.brfusion}, noCont, nat, brfusion))
		if len(a.Choices) != 1 {
			t.Fatalf("%s: %d choices, want NAT to BrFusion: %+v", tt.name, len(a.Choices), a.Choices)
		}
		c := a.Choices[0]
		if c.Verdict != tt.want || c.From != "NAT" || c.To != "BrFusion" || c.Subject != PodNetwork || c.Order != result.LIB {
			t.Errorf("%s: %s of %s from %s to %s, want %s", tt.name, c.Verdict, c.Subject, c.From, c.To, tt.want)
		}
		if c.Decided() != (c.Verdict != stats.Unknown && c.Verdict != stats.TooFew) || c.Decided() == (c.Needs > 0) {
			t.Errorf("%s: decided %v, needs %d", tt.name, c.Decided(), c.Needs)
		}
		again := slices.ContainsFunc(a.Measure, func(m Measurement) bool {
			return m.Subject == PodNetwork && m.Command == fmt.Sprintf("unnest bench quick --repetitions %d", tt.blocks+c.Needs)
		})
		if again == c.Decided() {
			t.Errorf("%s: decided %v, to measure %+v", tt.name, c.Decided(), a.Measure)
		}
		if nothing := (Measurement{Storage, "this run has nothing on it", "unnest bench multilevel --suite disk"}); !slices.Contains(a.Measure, nothing) {
			t.Errorf("%s: to measure %+v, want the storage too", tt.name, a.Measure)
		}
	}
}

// A change of the machine between configurations that were measured one after the other
// would look like a gain.
func TestNoAdviceWithoutInterleaving(t *testing.T) {
	run, samples := latencies(8, 0.02, map[string]float64{"NAT": 1.3, "BrFusion": 1}, nat, brfusion)
	run.Interleaved = false
	a := Of(run, samples)
	if len(a.Choices) > 0 || a.Measure[0].Command != "unnest bench quick --repetitions 12" || !strings.Contains(a.Measure[0].Why, "interleaved") {
		t.Errorf("%+v", a)
	}
}

// A change can gain by one metric and cost by another.
func TestGainThatCosts(t *testing.T) {
	run, samples := latencies(8, 0.02, map[string]float64{"NAT": 1.3, "BrFusion": 1}, nat, brfusion)
	run.Cases = append(run.Cases, result.Case{Suite: "network", Name: "tcp_stream", Primary: "throughput",
		Metrics: []result.Metric{{Name: "throughput", Unit: "Mbit/s", Order: result.HIB}}})
	for _, s := range slices.Clone(samples) {
		s.Case, s.Metric, s.Order = "tcp_stream", "throughput", result.HIB
		samples = append(samples, s)
	}
	a := Of(run, samples)
	if len(a.Choices) != 2 || a.Choices[0].Metric != "latency_mean" || !slices.Equal(a.Choices[0].Against, []string{"throughput"}) ||
		a.Choices[1].Verdict != stats.Worse || !slices.Equal(a.Choices[1].Against, []string{"latency_mean"}) {
		t.Errorf("%+v, want a gain of latency that costs throughput", a.Choices)
	}
}

// Where a change helps one case and harms another, the choice names both, and comes after one that
// helps all.
func TestExtremes(t *testing.T) {
	run, samples := latencies(8, 0.02, map[string]float64{"NAT": 1.6, "BrFusion": 1}, nat, brfusion)
	harmed := "udp_rr/1024"
	run.Cases = append(run.Cases, run.Cases[0])
	run.Cases[1].Name, run.Cases[1].Size = harmed, 1024
	for _, s := range slices.Clone(samples) {
		s.Case = harmed
		samples = append(samples, s)
	}
	if c := Of(run, samples).Choices[0]; c.Extremes != nil || c.Cases != 2 {
		t.Errorf("cases that agree: %+v", c)
	}
	for i, s := range samples {
		if s.Case == harmed && s.Configuration == "BrFusion" {
			samples[i].Value *= 2
		}
	}
	c := Of(run, samples).Choices[0]
	if len(c.Extremes) != 2 || c.Extremes[0].Case.Name == harmed || c.Extremes[1].Case.Name != harmed ||
		math.Abs(c.Extremes[0].Ratio*1.6-1) > 0.05 || math.Abs(c.Extremes[1].Ratio*0.8-1) > 0.05 || c.doubts() != 1 {
		t.Errorf("%+v, want %s to be harmed", c.Extremes, harmed)
	}
	// The mean is not known, because what is gained in one case is lost in the other: more blocks decide nothing.
	for i, s := range samples {
		if s.Case == harmed && s.Configuration == "BrFusion" {
			samples[i].Value *= []float64{1, 1.5}[s.Block%2]
		}
	}
	a := Of(run, samples)
	c = a.Choices[0]
	if c.Verdict != stats.Unknown || len(c.Extremes) != 2 || slices.ContainsFunc(a.Measure, func(m Measurement) bool { return strings.Contains(m.Why, "not decided") }) {
		t.Errorf("%+v, measure %+v", c, a.Measure)
	}
}

func TestBetween(t *testing.T) {
	c := func(stack string, options ...string) result.Configuration {
		o := map[string]string{}
		for i := 0; i < len(options); i += 2 {
			o[options[i]] = options[i+1]
		}
		return result.Configuration{Name: stack, Stack: stack, Options: o}
	}
	for _, tt := range []struct {
		name string
		a, b result.Configuration
		want Subject
	}{
		{"network", nat, brfusion, PodNetwork},
		{"the other way round", brfusion, nat, ""},
		{"container and network", nat, noCont, ""},
		{"network of a pod", c("vm/containerd", "drive", "pod", "network", "overlay"), c("vm/containerd", "drive", "pod", "network", "hostlo"), LocalNetwork},
		{"one VM for a pod", c("vm/containerd", "drive", "pod", "network", "hostlo"), c("vm/containerd", "drive", "pod", "network", "localhost"), LocalNetwork},
		{"storage", c("vm/containerd", "storage", "overlay"), c("vm/containerd", "storage", "volume"), Storage},
		{"storage and level", c("vm/containerd", "storage", "overlay"), c("metal/containerd", "storage", "volume"), ""},
		{"level", c("vm/vm"), c("vm"), Levels},
		{"level of a container", c("vm/containerd", "storage", "overlay"), c("metal/containerd", "storage", "overlay"), Levels},
		{"level that keeps a vCPU", c("vm", "vcpus", "3"), c("metal", "vcpus", "4"), Levels},
		{"two levels", c("vm/vm"), c("metal"), ""},
		{"fewer vCPUs", c("vm", "vcpus", "4", "memory", "4GiB"), c("vm", "vcpus", "3", "memory", "3GiB"), Overcommitment},
		{"more vCPUs", c("vm", "vcpus", "3"), c("vm", "vcpus", "4"), ""},
		{"equal", nat, nat, ""},
	} {
		r, ok := between(tt.a, tt.b)
		if r.subject != tt.want && ok || ok != (tt.want != "") {
			t.Errorf("%s: %q (%v), want %q", tt.name, r.subject, ok, tt.want)
		}
	}
}

// Every choice of every published run has the verdict that its interval has, gains come
// first, and what is not decided is to be measured.
func TestPublishedRuns(t *testing.T) {
	dirs, err := filepath.Glob("../../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	found := map[Subject]int{}
	for _, dir := range dirs {
		run, samples, err := rundir.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		a := Of(run, samples)
		for i, c := range a.Choices {
			found[c.Subject]++
			excludes := c.Interval.Defined() && !c.Interval.Contains(1)
			if gain := excludes && (c.Effect.Log > 0) == (c.Order == result.HIB); gain != (c.Verdict == stats.Better) || excludes != (c.Sure() > 0) {
				t.Errorf("%s: %s from %s to %s: %s, interval %+v", run.ID, c.Metric, c.From, c.To, c.Verdict, c.Interval)
			}
			if i > 0 && ranks[c.Verdict] < ranks[a.Choices[i-1].Verdict] {
				t.Errorf("%s: choice %d is %s after %s", run.ID, i, c.Verdict, a.Choices[i-1].Verdict)
			}
			open := slices.ContainsFunc(a.Measure, func(m Measurement) bool { return m.Subject == c.Subject })
			if !c.Decided() && !open {
				t.Errorf("%s: %s is not decided, and not to be measured", run.ID, c.Subject)
			}
		}
	}
	for _, s := range []Subject{PodNetwork, LocalNetwork, Storage, Levels} {
		if found[s] == 0 {
			t.Errorf("no published run has a choice of %s", s)
		}
	}
}

// hosts is a run of domains with their throughputs alone and the shares that they keep.
type hosts struct {
	rates  map[load]float64
	shares map[string][2]float64 // of the domains of each pair, in the order of the name
}

// pairName is how a pair of loads is found in shares.
func pairName(a, b load) string { return a.String() + " + " + b.String() }

// run draws blocks of a run with scatter of executions. Each load is alone, each pair is on
// a host, and one domain is next to two idle ones, which take a tenth.
func (h hosts) run(r *rand.Rand, blocks int, loads []load, scatter float64) (result.Run, []result.Sample) {
	run := result.Run{ID: "r", Experiment: "collocation", Interleaved: true, Repetitions: blocks}
	for _, size := range []int{1 << 10, 100 << 10} {
		run.Cases = append(run.Cases, result.Case{Suite: "collocation", Name: fmt.Sprintf("http/%d", size), Size: size, Primary: collocation.Server,
			Metrics: []result.Metric{{Name: collocation.Server, Unit: "requests/s", Order: result.HIB}}})
	}
	var samples []result.Sample
	add := func(configuration string, size, block int, domain string, active bool, metrics map[string]float64) {
		for metric, v := range metrics {
			samples = append(samples, result.Sample{Configuration: configuration, Suite: "collocation", Case: fmt.Sprintf("http/%d", size),
				Metric: metric, Order: result.HIB, Value: v, Block: block, Tags: map[string]string{collocation.DomainTag: domain, collocation.ActiveTag: fmt.Sprint(active)}})
		}
	}
	declare := func(notation string) string {
		if !slices.ContainsFunc(run.Configurations, func(c result.Configuration) bool { return c.Name == notation }) {
			run.Configurations = append(run.Configurations, result.Configuration{Name: notation, Stack: "vm", Options: map[string]string{"domains": notation}})
		}
		return notation
	}
	for block := range blocks {
		common := math.Exp(0.1 * r.NormFloat64())
		metrics := func(l load, share float64) map[string]float64 {
			rate := h.rates[l] * share * common * math.Exp(scatter*r.NormFloat64())
			return map[string]float64{collocation.Server: rate, collocation.Network: rate * float64(l.size), collocation.Utilisation: 50 + 40*float64(1<<10)/float64(l.size), collocation.Waiting: 100 * (1 - share)}
		}
		for i, a := range loads {
			add(declare(a.kind+"1"), a.size, block, a.kind+"1", true, metrics(a, 1))
			for _, b := range loads[i:] {
				second := b.kind + "1"
				if a.kind == b.kind {
					second = b.kind + "2"
				}
				name := declare(fmt.Sprintf("%s1(%s)+%s(%s)", a.kind, sizeText(a), second, sizeText(b)))
				shares := h.shares[pairName(a, b)]
				add(name, 1<<10, block, a.kind+"1", true, metrics(a, shares[0]))
				add(name, 1<<10, block, second, true, metrics(b, shares[1]))
			}
		}
		a := loads[0]
		add(declare(a.kind+"1+"+a.kind+"2(idle)+"+a.kind+"3(idle)"), a.size, block, a.kind+"1", true, metrics(a, 0.9))
	}
	return run, samples
}

func sizeText(l load) string { return strings.Trim(strings.TrimPrefix(l.String(), l.kind), "()") }

func TestNeighbours(t *testing.T) {
	small, large, other := load{"hvm", 1 << 10}, load{"pvm", 100 << 10}, load{"pvm", 1 << 10}
	loads := []load{small, large, other}
	h := hosts{
		rates: map[load]float64{small: 9000, large: 900, other: 10000},
		shares: map[string][2]float64{
			pairName(small, small): {0.5, 0.5}, pairName(large, large): {0.4, 0.4}, pairName(other, other): {0.5, 0.5},
			pairName(small, large): {0.9, 0.8}, pairName(small, other): {0.3, 0.3}, pairName(large, other): {0.5, 0.5},
		},
	}
	run, samples := h.run(rand.New(rand.NewPCG(3, 4)), 8, loads, 0.01)
	a := Of(run, samples)
	find := func(action string) Choice {
		t.Helper()
		i := slices.IndexFunc(a.Choices, func(c Choice) bool { return c.Action == action })
		if i < 0 {
			t.Fatalf("no choice %q in %+v", action, a.Choices)
		}
		return a.Choices[i]
	}
	for action, want := range map[string]struct {
		verdict stats.Verdict
		ratio   float64
		why     string
	}{
		"put hvm(1KiB) + pvm(100KiB) on one host":                        {stats.Better, 1.7, "hvm(1KiB) needs the processors more, pvm(100KiB) the network"},
		"put hvm(1KiB) + pvm(1KiB) on one host":                          {stats.Worse, 0.6, "both need the processors more than the network"},
		"put 2 hvm(1KiB) on one host":                                    {stats.Equal, 1.0, "the same I/O path: both are hvm"},
		"put 2 pvm(100KiB) on one host":                                  {stats.Worse, 0.8, "keeps 40 % of its throughput alone, and its threads wait for processors 60 % of the time"},
		"leave 2 idle next to hvm(1KiB)":                                 {stats.Worse, 0.9, "hvm(1KiB) keeps 9"},
		"of 2 hvm(1KiB) and 2 pvm(100KiB), put one of each on each host": {stats.Better, 2 * 1.7 / 1.8, "different I/O paths: hvm and pvm"},
		"of 2 hvm(1KiB) and 2 pvm(1KiB), put one of each on each host":   {stats.Worse, 0.6, ""},
	} {
		c := find(action)
		if c.Verdict != want.verdict || math.Abs(c.Effect.Ratio()/want.ratio-1) > 0.03 {
			t.Errorf("%s: %s, %v, want %s, %v", action, c.Verdict, c.Effect.Ratio(), want.verdict, want.ratio)
		}
		if why := strings.Join(c.Why, "; "); !strings.Contains(why, want.why) {
			t.Errorf("%s, because %s; want %s", action, why, want.why)
		}
	}
	if first := a.Choices[0]; first.Verdict != stats.Better {
		t.Errorf("first: %+v", first)
	}
}

// A choice says that the load generator was at its limit, also if that was so with a load alone.
func TestLimited(t *testing.T) {
	loads := []load{{"con", 1 << 10}, {"hvm", 1 << 10}}
	h := hosts{rates: map[load]float64{loads[0]: 9000, loads[1]: 900}, shares: map[string][2]float64{}}
	for _, pair := range [][2]load{{loads[0], loads[0]}, {loads[0], loads[1]}, {loads[1], loads[1]}} {
		h.shares[pairName(pair[0], pair[1])] = [2]float64{0.9, 0.9}
	}
	run, samples := h.run(rand.New(rand.NewPCG(3, 4)), 8, loads, 0.01)
	samples = append(samples, result.Sample{Configuration: "con1", Suite: "collocation", Case: "http/1024", Metric: "generator_cpu", Value: 99, Block: 5,
		Tags: map[string]string{collocation.LimitTag: "no processor left"}})
	for _, c := range Of(run, samples).Choices {
		if want := strings.Contains(c.To, "con"); c.Limited != want {
			t.Errorf("%s: limited %t, want %t", c.Action, c.Limited, want)
		}
	}
}

// Under half of their full load two domains fit on a host if they keep all that they answer alone. Then
// there is no gain, and what they lose is a cost.
func TestPartLoad(t *testing.T) {
	a, b := load{"hvm", 1 << 10}, load{"pvm", 1 << 10}
	h := hosts{rates: map[load]float64{a: 90, b: 100}, shares: map[string][2]float64{
		pairName(a, a): {1, 1}, pairName(b, b): {0.9, 0.5}, pairName(a, b): {1, 0.8},
	}}
	run, samples := h.run(rand.New(rand.NewPCG(3, 4)), 8, []load{a, b}, 0.01)
	for i := range run.Cases {
		run.Cases[i].Intensity = 20 + 30*i
	}
	choices := Of(run, samples).Choices
	for to, want := range map[string]struct {
		verdict stats.Verdict
		ratio   float64
	}{"2 hvm(1KiB)": {stats.Equal, 1}, "2 pvm(1KiB)": {stats.Worse, 0.7}, "hvm(1KiB) + pvm(1KiB)": {stats.Worse, 0.9}} {
		i := slices.IndexFunc(choices, func(c Choice) bool { return c.To == to && c.Metric == meanOfShares })
		if i < 0 {
			t.Errorf("no choice about %s in %+v", to, choices)
			continue
		}
		c := choices[i]
		expected := fmt.Sprintf(c.Expected, "R")
		if c.Verdict != want.verdict || math.Abs(c.Effect.Ratio()/want.ratio-1) > 0.03 || c.From != "hosts of their own" ||
			expected != "at 50 % of their full load, their throughput on one host is R of that on hosts of their own" {
			t.Errorf("%s: %s, %v, %s, %s; want %s, %v", to, c.Verdict, c.Effect.Ratio(), c.From, expected, want.verdict, want.ratio)
		}
	}
}

// A gain that starves a domain names it and comes after one that does not, though it is larger.
func TestStarved(t *testing.T) {
	a, b := load{"con", 1 << 10}, load{"hvm", 1 << 10}
	h := hosts{rates: map[load]float64{a: 9000, b: 900}, shares: map[string][2]float64{
		pairName(a, a): {0.6, 0.6}, pairName(b, b): {0.5, 0.2}, pairName(a, b): {1.3, 0.2},
	}}
	run, samples := h.run(rand.New(rand.NewPCG(3, 4)), 8, []load{a, b}, 0.01)
	choices := Of(run, samples).Choices
	for i, want := range []struct {
		to, starved string
	}{{"2 con(1KiB)", ""}, {"con(1KiB) + hvm(1KiB)", "hvm(1KiB)"}} {
		if c := choices[i]; c.Verdict != stats.Better || c.To != want.to || c.Starved != want.starved || c.Starved != "" && math.Abs(c.Share-0.2) > 0.01 {
			t.Errorf("choice %d is %q, which starves %q to %v; want %q, %q", i, c.To, c.Starved, c.Share, want.to, want.starved)
		}
	}
}

// Of several intensities in a block the peak counts. A block without the single runs says
// nothing.
func TestPeakAndMissingSingles(t *testing.T) {
	sample := func(configuration, name, domain string, block int, v float64) result.Sample {
		return result.Sample{Configuration: configuration, Suite: "s", Case: name, Metric: collocation.Server, Order: result.HIB, Value: v, Block: block,
			Tags: map[string]string{collocation.DomainTag: domain, collocation.ActiveTag: "true"}}
	}
	run := result.Run{ID: "r", Interleaved: true, Cases: []result.Case{{Suite: "s", Name: "50"}, {Suite: "s", Name: "100"}}}
	var samples []result.Sample
	for block := range 9 {
		x := 1 + float64(block)/1000
		if block < 7 {
			samples = append(samples, sample("con1", "50", "con1", block, 50*x), sample("con1", "100", "con1", block, 100))
		}
		samples = append(samples, sample("con1+con2", "50", "con1", block, 40*x), sample("con1+con2", "50", "con2", block, 40),
			sample("con1+con2", "100", "con1", block, 30), sample("con1+con2", "100", "con2", block, 30))
	}
	a := Of(run, samples)
	if len(a.Choices) != 1 || math.Abs(a.Choices[0].Effect.Ratio()-0.8) > 0.01 || a.Choices[0].Effect.N != 7 {
		t.Errorf("%+v, want a sum of shares of 0.8 in 7 blocks", a.Choices)
	}
}
