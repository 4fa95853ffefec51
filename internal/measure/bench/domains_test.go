package bench

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// startBusy starts a process that uses a processor until the end of the test.
func startBusy(t *testing.T) (pid int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

const mixesFile = `name: mixes
suite: collocation
configurations:
  - {name: CON, domains: [{type: con}]}
  - {name: HVM-PVM, domains: [{type: hvm, size: 7KiB}, {type: pvm}, {type: pvm, active: false}]}
cases:
  - {name: web, workload: apache, sizes: [1KiB], intensities: [50%], duration: 1s}
`

func mixes(t *testing.T, file string) *experiment.Spec {
	t.Helper()
	s, err := experiment.Parse("x.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// An experiment with domains is one study. Its image has Apache, and drivers of emulated hardware only
// where a domain has that.
func TestDomainStudy(t *testing.T) {
	s := mixes(t, mixesFile)
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	study, err := newStudy(s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, ok := study.(*domainStudy)
	if !ok || !slices.Equal(d.sizes(), []int{1024, 7168}) {
		t.Fatalf("%T with sizes %v", study, d.sizes())
	}
	r := d.images.recipe
	if !slices.Contains(r.Packages, "apache2-bin") || !slices.Contains(r.Modules, "e1000") {
		t.Errorf("recipe %+v", r)
	}
	plain, err := newStudy(mixes(t, strings.Replace(mixesFile, "type: hvm", "type: pvmcon", 1)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r := plain.bench().images.recipe; slices.Contains(r.Modules, "e1000") || !slices.Contains(r.Image, "/usr/sbin/apache2") {
		t.Errorf("recipe without an HVM, with a container in a VM: %+v", r)
	}
	for _, m := range Metrics(s) {
		if m.Name == collocation.Utilisation {
			t.Error("a metric is twice in a case")
		}
	}
}

// The values of a load are those of each domain, and their sum. What went wrong has a tag.
func TestLoadStep(t *testing.T) {
	s := mixes(t, mixesFile)
	e := experiment.Execution{Configuration: s.Configurations[1], Case: s.Cases[0]}
	hvm, pvm, idle := &domain{name: "hvm1"}, &domain{name: "pvm1"}, &domain{name: "pvm2"}
	report := func(count, planned float64, failures map[string]float64) workload.LoadReport {
		return workload.LoadReport{Seconds: 2, Planned: planned, Served: count - 2, Bytes: 4000, Failures: failures,
			Latencies: map[string]workload.Latency{workload.AllRequests: {Count: count, Mean: 100, P99: 300}}}
	}
	step := loadStep{boot: "id", here: []*domain{hvm, pvm, idle}, dropped: 3, limit: "it is late", busy: 0.5,
		loads: []domainLoad{
			{hvm, 7168, 20, 40, report(30, 40, map[string]float64{workload.Refused: 10})},
			{pvm, 1024, 50, 0, report(100, 100, nil)},
		},
		values: map[string][]workload.Value{"pvm2": {{Metric: collocation.Utilisation, Value: 4}}},
	}
	o := step.outcome(e)
	if o.Boot != "id" || o.Tags[collocation.FailuresTag] != "hvm1: 10 refused" || o.Tags[collocation.LimitTag] != "it is late" || len(o.Parts) != 3 {
		t.Fatalf("%+v", o)
	}
	find := func(values []workload.Value, metric string) float64 {
		for _, v := range values {
			if v.Metric == metric {
				return v.Value
			}
		}
		return -1
	}
	if sum := find(o.Values, collocation.Aggregate); sum != 63 {
		t.Errorf("sum %v, want 14 + 49: answers that came later do not count", sum)
	}
	first := o.Parts[0]
	if first.Tags[collocation.SizeTag] != "7168" || first.Tags[collocation.ActiveTag] != "true" || find(first.Values, collocation.Server) != 14 ||
		find(first.Values, collocation.Failed) != 25 || find(first.Values, collocation.Intensity) != 50 || find(first.Values, collocation.Network) != 2000 {
		t.Errorf("%+v", first)
	}
	if find(o.Parts[1].Values, collocation.Intensity) != -1 {
		t.Errorf("an unknown full load has an intensity: %+v", o.Parts[1])
	}
	if last := o.Parts[2]; last.Tags[collocation.ActiveTag] != "false" || last.Tags[collocation.SizeTag] != "" || find(last.Values, collocation.Utilisation) != 4 {
		t.Errorf("%+v", last)
	}
	metrics := slices.Concat(collocation.Metrics(), Metrics(s))
	for _, p := range append(o.Parts, experiment.Part{Values: o.Values}) {
		for _, v := range p.Values {
			if !slices.ContainsFunc(metrics, func(m result.Metric) bool { return m.Name == v.Metric }) {
				t.Errorf("%s is not a metric", v.Metric)
			}
		}
	}
}
