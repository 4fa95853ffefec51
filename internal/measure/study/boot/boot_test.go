package boot

import (
	"slices"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/testbed/guest"
)

func TestBootStudy(t *testing.T) {
	s := benchtest.Open(t, "boot-kernel")
	benchtest.CheckStudy(t, s)
	if plan := experiment.Schedule(s, 1); len(plan) != 2*10 {
		t.Errorf("%d executions, want 10 of each kernel", len(plan))
	}
	names := benchtest.MetricNames(t, s.Cases[0].Case)
	values := bootValues(guest.BootTimes{
		Firmware: time.Second, Kernel: 2 * time.Second, Userspace: 3 * time.Second, SSH: 4 * time.Second, Total: 10 * time.Second,
	})
	want := map[string]float64{"total": 10, "firmware": 1, "kernel": 2, "userspace": 3, "ssh": 4}
	for _, v := range values {
		if !slices.Contains(names, v.Metric) || want[v.Metric] != v.Value {
			t.Errorf("got %+v, want %v of the metrics %v", v, want[v.Metric], names)
		}
	}
	if len(values) != len(names) {
		t.Errorf("%d values for %d metrics", len(values), len(names))
	}
}
