package report_test

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/runs"
)

// nginxRun is a synthetic run of NGINX at a constant rate: BrFusion is as fast as NoCont, NAT
// takes twice the time and answers half of the requests.
func nginxRun() (result.Run, []result.Sample) {
	run := syntheticRun(6)
	metrics := []result.Metric{
		{Name: "latency_mean", Unit: "us", Order: result.LIB}, {Name: "latency_stddev", Unit: "us", Order: result.LIB},
		{Name: "reached", Unit: "%", Order: result.HIB}, {Name: "naive_latency_mean", Unit: "us", Order: result.LIB},
		{Name: "response_rate", Unit: "responses/s", Order: result.HIB},
	}
	for _, p := range naming.CPUTimes {
		metrics = append(metrics, result.Metric{Name: p.Metric, Unit: "us/op", Order: result.LIB})
	}
	run.Cases = []result.Case{{Suite: "applications", Name: "nginx", Group: "nginx", Title: "NGINX at a constant rate", Tool: "nginx", Primary: "latency_mean", Metrics: metrics}}
	run.Planned = 18
	var samples []result.Sample
	for block := range run.Repetitions {
		for _, conf := range run.Configurations {
			for i, m := range metrics {
				value := float64(100+i) * (1 + float64(block%3)/1000)
				switch {
				case m.Name == "reached" && conf.Name == "NAT" && block == 4:
					value = 62
				case m.Name == "reached":
					value = 99.5
				case conf.Name == "NAT":
					value *= 2
				}
				samples = append(samples, result.Sample{Run: run.ID, Configuration: conf.Name, Suite: "applications", Case: "nginx",
					Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: value, Block: block, Repetition: block, Boot: "boot", Duration: 5})
			}
		}
	}
	return run, samples
}

// A load that did not reach its rate is doubtful in its own row only. The paper's ratios stand
// next to ours.
func TestApplicationsReport(t *testing.T) {
	run, samples := nginxRun()
	doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
	for _, e := range dataOf(doc).Estimates {
		doubtful := strings.Contains(strings.Join(estimate.DoubtsOf(e), ";"), "62 % of its rate")
		if want := e.Configuration == "NAT" && e.Metric != "reached"; doubtful != want {
			t.Errorf("%s of %s: doubts %q, want those of a rate: %v", e.Metric, e.Configuration, estimate.DoubtsOf(e), want)
		}
		if doubtful && !strings.Contains(strings.Join(e.Warnings, ";"), "the load did not reach its rate in 1 of 6 blocks, in one only 62 % of it") {
			t.Errorf("warnings %q", e.Warnings)
		}
	}
	const warned = "NGINX at a constant rate: the load did not always reach its rate, so latencies grow with its duration. The lowest values are 62 % with NAT."
	if !slices.Contains(doc.Warnings, warned) {
		t.Errorf("warnings of the report %q", doc.Warnings)
	}
	tables := map[string]document.Table{}
	for _, table := range doc.Groups[0].Tables {
		tables[table.ID] = table
	}
	paper := rowsText(tables["g1-nginx-paper"])
	for _, want := range []string{
		"latency, BrFusion over NAT|NGINX at a constant rate|0.50", "0.70 (30.1 % lower)", "latency, BrFusion over NoCont|NGINX at a constant rate|1.00",
		"2.20 (120.3 % higher)", "latency stddev over latency, NoCont|NGINX at a constant rate|1.01|0.47 (47 % of the mean)",
	} {
		if !strings.Contains(paper, want) {
			t.Errorf("no %q in\n%s", want, paper)
		}
	}
	if notes := strings.Join(tables["g1-nginx-paper"].Notes, " "); !strings.Contains(notes, "wrk2 at 10,000 requests/s") || !strings.Contains(notes, "§5.2.2") {
		t.Errorf("notes: %s", notes)
	}
	processes := tables["g1-nginx-cpu-2"]
	if !strings.Contains(processes.Title, "CPU time of processes") {
		t.Errorf("title %q", processes.Title)
	}
	var columns []string
	for _, c := range processes.Columns {
		columns = append(columns, c.Name)
	}
	if got, want := strings.Join(columns, "|"), "case|configuration|vm usr|vm sys|vm guest|vm total|server usr|server sys|server total"; got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
	var charts []string
	for _, c := range doc.Groups[0].Charts {
		if c.Kind == document.Stack {
			charts = append(charts, c.Title)
		}
	}
	if got := strings.Join(charts, "|"); !strings.Contains(got, "CPU time of the VM's process on the host, mean") || !strings.Contains(got, "CPU time of the server's process, mean") ||
		!strings.Contains(got, "CPU time on the nodes, mean") || len(charts) != 5 {
		t.Errorf("stacked charts %s", got)
	}
}

// kafkaRun is nginxRun with Kafka: its tool prints no deviation, and counts messages.
func kafkaRun() (result.Run, []result.Sample) {
	run, samples := nginxRun()
	c := &run.Cases[0]
	c.Name, c.Group, c.Title, c.Tool = "kafka", "kafka", "Kafka", "kafka"
	c.Metrics = slices.DeleteFunc(slices.Clone(c.Metrics), func(m result.Metric) bool { return m.Name == "latency_stddev" || m.Name == "naive_latency_mean" })
	c.Metrics[2] = result.Metric{Name: "message_rate", Unit: "messages/s", Order: result.HIB}
	var kept []result.Sample
	for _, s := range samples {
		s.Case = "kafka"
		if s.Metric == "response_rate" {
			s.Metric, s.Unit = "message_rate", "messages/s"
		}
		if slices.ContainsFunc(c.Metrics, func(m result.Metric) bool { return m.Name == s.Metric }) {
			kept = append(kept, s)
		}
	}
	return run, kept
}

// The report of an application pictures what a packet crosses. The paper's CPU usage stands
// directly above the stacked bars: it is the last table that is not folded away.
func TestKafkaReport(t *testing.T) {
	run, samples := kafkaRun()
	doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
	if len(dataOf(doc).Paths) != len(run.Configurations) || len(dataOf(doc).Paths[0].Hops) == 0 || len(dataOf(doc).Paths[0].Spent) == 0 {
		t.Errorf("paths %+v", dataOf(doc).Paths)
	}
	var open []document.Table
	for _, table := range doc.Groups[0].Tables {
		if !table.Minor {
			open = append(open, table)
		}
	}
	if len(open) != 3 || open[2].ID != "g1-kafka-paper-cpu" {
		t.Fatalf("%d tables", len(open))
	}
	for table, wants := range map[int][]string{
		1: {"latency, BrFusion over NAT|Kafka|0.50", "0.88 (11.8 % lower)", "latency stddev over latency, NoCont|Kafka|", "(5.9 % of the mean)"},
		2: {"usage: VM CPU, NAT over NoCont|Kafka|4.00|1.10 (about 9.6 % higher)", "usage: guest soft, BrFusion over NAT|Kafka|0.25|0.33 (67.0 % lower)", "usage: guest total, BrFusion over NAT|Kafka|0.25|0.95 (4.7 % lower)"},
	} {
		for _, want := range wants {
			if got := rowsText(open[table]); !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if notes := strings.Join(open[table].Notes, " "); !strings.Contains(notes, "kafka-producer-perf-test.sh at 120,000 messages/s") {
			t.Errorf("notes: %s", notes)
		}
	}
}

// The paper's figures of a container in one VM (§5.2) do not stand next to those of a pod whose
// network has the same name.
func TestPaperOfAnotherSetting(t *testing.T) {
	run, samples := kafkaRun()
	for i := range run.Configurations {
		run.Configurations[i].Options = map[string]string{"drive": "pod"}
	}
	for _, table := range runs.Build(run, samples, runs.Options{Papers: papers.All()}).Groups[0].Tables {
		if strings.Contains(table.ID, "-paper") {
			t.Errorf("table %s:\n%s", table.ID, rowsText(table))
		}
	}
}

// rowsText joins the cells of a table.
func rowsText(t document.Table) string {
	var rows []string
	for _, row := range t.Rows {
		var cells []string
		for _, c := range row {
			cells = append(cells, c.Text)
		}
		rows = append(rows, strings.Join(cells, "|"))
	}
	return strings.Join(rows, "\n")
}
