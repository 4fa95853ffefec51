package domains

import (
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// A study serves the documents of its cases and of its domains.
func TestSizes(t *testing.T) {
	s := benchtest.Parse(t, benchtest.Mixes)
	if got := New(machines.New(s, machines.Options{})).sizes(); !slices.Equal(got, []int{1024, 7168}) {
		t.Errorf("sizes %v", got)
	}
}

// The values of a load are those of each domain, and their sum. What went wrong has a tag.
func TestLoadStep(t *testing.T) {
	s := benchtest.Parse(t, benchtest.Mixes)
	e := experiment.Execution{Configuration: s.Configurations[1], Case: s.Cases[0]}
	hvm, pvm, idle := &guestDomain{name: "hvm1"}, &guestDomain{name: "pvm1"}, &guestDomain{name: "pvm2"}
	report := func(count, planned float64, failures map[string]float64) workload.LoadReport {
		return workload.LoadReport{Seconds: 2, Planned: planned, Served: count - 2, Bytes: 4000, Failures: failures,
			Latencies: map[string]workload.Latency{workload.AllRequests: {Count: count, Mean: 100, P99: 300}}}
	}
	step := loadStep{boot: "id", here: []*guestDomain{hvm, pvm, idle}, dropped: 3, limit: "it is late", busy: 0.5,
		loads: []domainLoad{
			{hvm, 7168, 20, 40, report(30, 50, map[string]float64{workload.Refused: 10})},
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
		find(first.Values, collocation.Failed) != 20 || find(first.Values, collocation.Unsent) != 20 || find(first.Values, collocation.Intensity) != 50 || find(first.Values, collocation.Network) != 2000 {
		t.Errorf("%+v", first)
	}
	if find(o.Parts[1].Values, collocation.Intensity) != -1 {
		t.Errorf("an unknown full load has an intensity: %+v", o.Parts[1])
	}
	if last := o.Parts[2]; last.Tags[collocation.ActiveTag] != "false" || last.Tags[collocation.SizeTag] != "" || find(last.Values, collocation.Utilisation) != 4 {
		t.Errorf("%+v", last)
	}
	metrics := collocation.Metrics()
	for _, p := range append(o.Parts, experiment.Part{Values: o.Values}) {
		for _, v := range p.Values {
			if !slices.ContainsFunc(metrics, func(m result.Metric) bool { return m.Name == v.Metric }) {
				t.Errorf("%s is not a metric", v.Metric)
			}
		}
	}
}
