package report_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// pods is a synthetic run of a pod's two containers at two sizes: Hostlo takes twice
// the time of SameNode, at 1024 B thrice, and its stream is a fifth as fast.
func pods() (result.Run, []result.Sample) {
	run := syntheticRun(6)
	run.ID, run.Baselines, run.Configurations, run.Cases = "20260314-hostlo", []string{"SameNode"}, nil, nil
	for _, name := range []string{"SameNode", "Hostlo"} {
		run.Configurations = append(run.Configurations, result.Configuration{Name: name, Stack: "vm/containerd", Options: map[string]string{"drive": "pod"}})
	}
	latency := []result.Metric{{Name: "latency_mean", Unit: "us", Order: result.LIB}, {Name: "latency_stddev", Unit: "us", Order: result.LIB}}
	stream := []result.Metric{{Name: "throughput", Unit: "Mbit/s", Order: result.HIB}}
	run.Cases = []result.Case{
		{Suite: "network", Name: "udp_rr/64", Group: "udp_rr", Size: 64, Title: "UDP ping-pong, 64 B", Tool: "sockperf", Primary: "latency_mean", Metrics: latency},
		{Suite: "network", Name: "udp_rr/1024", Group: "udp_rr", Size: 1024, Title: "UDP ping-pong, 1024 B", Tool: "sockperf", Primary: "latency_mean", Metrics: latency},
		{Suite: "network", Name: "tcp_stream/64", Group: "tcp_stream", Size: 64, Title: "TCP stream, 64 B", Tool: "iperf3", Primary: "throughput", Metrics: stream},
		{Suite: "network", Name: "tcp_stream/1024", Group: "tcp_stream", Size: 1024, Title: "TCP stream, 1024 B", Tool: "iperf3", Primary: "throughput", Metrics: stream},
	}
	factor := map[string]float64{"udp_rr/64latency_mean": 2, "udp_rr/1024latency_mean": 3, "udp_rr/64latency_stddev": 4, "udp_rr/1024latency_stddev": 4.5,
		"tcp_stream/64throughput": 0.25, "tcp_stream/1024throughput": 0.2}
	rng := rand.New(rand.NewPCG(3, 5))
	var samples []result.Sample
	for block := range run.Repetitions {
		for _, c := range run.Cases {
			for _, m := range c.Metrics {
				for _, conf := range run.Configurations {
					value := 100 * (1 + 1e-4*rng.NormFloat64())
					if m.Name == "latency_stddev" {
						value /= 4
					}
					if conf.Name == "Hostlo" {
						value *= factor[c.Name+m.Name]
					}
					samples = append(samples, result.Sample{Run: run.ID, Configuration: conf.Name, Suite: c.Suite, Case: c.Name,
						Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: value, Block: block, Repetition: block, Boot: "boot", Duration: 10})
				}
			}
		}
	}
	return run, samples
}

// Each published ratio is listed with our ratios of its sizes, unless we have none.
func TestPublishedRatios(t *testing.T) {
	run, samples := pods()
	doc := runs.Build(run, samples, runs.Options{Papers: papers.Figures{Ratios: []papers.Ratio{
		{Section: "1", Benchmark: "UDP_RR", Metric: "latency", Configuration: "Hostlo", Baseline: "SameNode", Extent: "worst", Value: "2.1", Form: "times"},
		{Section: "1", Benchmark: "UDP_RR", Metric: "latency", Configuration: "Hostlo", Baseline: "SameNode", Extent: "best", Value: "1", Form: "times"},
		{Section: "5.3.2", Benchmark: "UDP_RR", Metric: "latency", Configuration: "Hostlo", Baseline: "SameNode", Extent: "about", Value: "2", Form: "times"},
		{Section: "5.3.2", Benchmark: "UDP_RR", Metric: "latency", Configuration: "Hostlo", Baseline: "NAT", Size: 1024, Value: "1", Form: "times"},
		{Section: "5.3.2", Benchmark: "UDP_RR", Metric: "deviation", Configuration: "Hostlo", Size: 64, Value: "27.9", Form: "% of the mean"},
		{Section: "1", Benchmark: "TCP_STREAM", Metric: "throughput", Configuration: "Hostlo", Baseline: "SameNode", Extent: "worst", Value: "6.1", Form: "times lower"},
		{Section: "5.3.2", Benchmark: "TCP_STREAM", Metric: "throughput", Configuration: "Hostlo", Baseline: "SameNode", Size: 1024, Value: "5.3", Form: "times lower"},
		{Section: "5.2.1", Benchmark: "TCP_STREAM", Metric: "throughput", Configuration: "BrFusion", Baseline: "NAT", Size: 1280, Value: "2.1", Form: "times"},
	}}})
	want := map[string][]string{
		"UDP ping-pong": {
			"latency, Hostlo over SameNode|1024 B (worst)|3.00 [3.00, 3.00]|2.10 (2.1 times at worst)",
			"latency, Hostlo over SameNode|64 B (best)|2.00 [2.00, 2.00]|1.00 (1 times at best)",
			"latency, Hostlo over SameNode|64 B|2.00 [2.00, 2.00]|2.00 (about 2 times)",
			"latency, Hostlo over SameNode|1024 B|3.00 [3.00, 3.00]|2.00 (about 2 times)",
			"latency stddev over latency, Hostlo|64 B|0.50|0.28 (27.9 % of the mean)",
		},
		"TCP stream": {
			"throughput, Hostlo over SameNode|1024 B (worst)|0.20 [0.20, 0.20]|0.16 (6.1 times lower at worst)",
			"throughput, Hostlo over SameNode|1024 B|0.20 [0.20, 0.20]|0.19 (5.3 times lower)",
		},
	}
	for title, rows := range want {
		table := groupTitled(t, doc, title).Tables[1]
		var got []string
		for _, row := range table.Rows {
			var cells []string
			for _, c := range row {
				cells = append(cells, c.Text)
			}
			got = append(got, strings.Join(cells, "|"))
		}
		if strings.Join(got, "\n") != strings.Join(rows, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", title, strings.Join(got, "\n"), strings.Join(rows, "\n"))
		}
		if !strings.Contains(table.Notes[0], "§1 and §5.3.2") {
			t.Errorf("%s: sections in %q", title, table.Notes[0])
		}
	}
	if !groupTitled(t, doc, "UDP ping-pong").Tables[1].Rows[3][0].Repeat {
		t.Error("the second size of a ratio repeats what it is of")
	}
	if !strings.HasPrefix(doc.Headlines[0], "UDP ping-pong, 1024 B:") {
		t.Errorf("with Hostlo, headlines are about the paper's 1024 B: %q", doc.Headlines)
	}
	for _, g := range runs.Build(run, samples, runs.Options{}).Groups {
		for _, table := range g.Tables {
			if strings.Contains(table.Title, "paper") {
				t.Errorf("%s with nothing published", table.Title)
			}
		}
	}
}

// The report of a run against Docker's own networks shows what the paper says of NAT and Overlay, which were Docker's there.
func TestPublishedRatiosOfDocker(t *testing.T) {
	for docker, want := range map[string][2]string{
		"DockerNAT":     {"latency, Hostlo over DockerNAT|1024 B|0.13 (87.3 % lower)", "throughput, Hostlo over DockerNAT|1024 B|1.18 (17.9 % higher)"},
		"DockerOverlay": {"latency, Hostlo over DockerOverlay|1024 B|0.10 (89.8 % lower)", "throughput, Hostlo over DockerOverlay|1024 B|0.73 (27 % lower)"},
	} {
		run, samples := pods()
		run.Baselines, run.Configurations[0].Name = []string{docker}, docker
		for i := range samples {
			if samples[i].Configuration == "SameNode" {
				samples[i].Configuration = docker
			}
		}
		doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
		for i, title := range []string{"UDP ping-pong", "TCP stream"} {
			var got []string
			for _, table := range groupTitled(t, doc, title).Tables {
				for _, row := range table.Rows {
					got = append(got, row[0].Text+"|"+row[1].Text+"|"+row[len(row)-1].Text)
				}
			}
			if !slices.Contains(got, want[i]) {
				t.Errorf("%s: rows\n%s\nwant %s", docker, strings.Join(got, "\n"), want[i])
			}
		}
	}
}
