package runs

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/papers"
)

func TestTallies(t *testing.T) {
	for _, tc := range []struct {
		of      tally
		want    string
		decided bool
	}{
		{tally{worse: 5, faster: true}, "slower in all", true},
		{tally{worse: 1, open: 17, faster: true}, "not known in 17, slower in 1", false},
		{tally{worse: 2, better: 3, equal: 2, open: 1}, "better in 3, worse in 2, equal in 2, not known in 1", true},
	} {
		if got := tc.of.String(); got != tc.want || tc.of.decided() != tc.decided {
			t.Errorf("%+v: %q, decided %v", tc.of, got, tc.of.decided())
		}
	}
}

// Each ratio that Bacou et al. print of Netperf is of a metric that the study hostlo
// has, in a configuration that one of the studies has. We do not measure the others,
// which are of whole applications, apart from NGINX's latencies.
func TestRatios(t *testing.T) {
	netperf := 0
	for _, p := range papers.All().Ratios {
		if p.Benchmark != "UDP_RR" && p.Benchmark != "TCP_STREAM" {
			continue
		}
		netperf++
		metric := paperMetrics[p.Metric]
		if metric[0] == "" || (metric[1] == "") != (p.Baseline != "") {
			t.Errorf("no metric of ours: %+v", p)
		}
		if !slices.Contains([]string{"", "about", "worst", "best"}, p.Extent) || !(p.Factor() > 0) || p.Section == "" {
			t.Errorf("got %+v", p)
		}
		if !slices.Contains([]string{"BrFusion", "Hostlo", "SameNode"}, p.Configuration) {
			t.Errorf("no configuration of ours: %+v", p)
		}
	}
	for _, p := range papers.All().Ratios {
		if p.Benchmark == "NGINX" && p.Section < "5.3.4" && paperMetrics[p.Metric][0] == "" {
			t.Errorf("no metric of ours: %+v", p)
		}
	}
	if netperf != 14+8 {
		t.Errorf("%d ratios, want the 14 of UDP_RR and TCP_STREAM, and the 8 of NAT and Overlay by Docker's names", netperf)
	}
}

// The CPU usage of the paper is a sum of parts, and in cores: ours is the CPU time per answer
// times the answers per second.
func TestUsageRatios(t *testing.T) {
	of := func(metric, configuration string, mean document.Number) estimate.Estimate {
		return estimate.Estimate{Case: "memcached", Label: "memcached", Metric: metric, Configuration: configuration, Mean: mean}
	}
	families := map[string][]estimate.Estimate{"response_rate": {of("response_rate", "SameNode", 1000), of("response_rate", "Hostlo", 500)}}
	for _, metric := range []string{"guest_usr", "guest_sys", "guest_soft"} {
		families[metric] = []estimate.Estimate{of(metric, "SameNode", 10), of(metric, "Hostlo", 40)}
	}
	p := papers.Ratio{Section: "5.3.4", Benchmark: "Memcached", Metric: "client and server CPU", Configuration: "Hostlo", Baseline: "SameNode", Value: "53.2", Form: "% higher"}
	if got := usageRatios(p, families); len(got) != 1 || got[0].ratio != 2 || got[0].label != "memcached" {
		t.Errorf("got %+v, want four times the time for half of the answers", got)
	}
	row := ratioRow(p, usageRatios(p, families)[0], false)
	var cells []string
	for _, c := range row {
		cells = append(cells, c.Text)
	}
	if got := strings.Join(cells, "|"); got != "usage: client and server CPU, Hostlo over SameNode|memcached|2.00|1.53 (53.2 % higher)" {
		t.Errorf("got %s", got)
	}
	p.Metric = "guest CPU" // not measured here
	if got := usageRatios(p, families); got != nil {
		t.Errorf("got %+v", got)
	}
	p.Metric = "latency"
	if got := usageRatios(p, families); got != nil {
		t.Errorf("got %+v", got)
	}
}
