package cputime

import (
	"math"
	"slices"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/workload"
)

func TestBreakdown(t *testing.T) {
	tests := []struct {
		name  string
		times Times
		want  Breakdown
	}{
		{"no guest", Times{User: 40 * ms, Nice: 20 * ms, System: 30 * ms, Idle: time.Hour, IOWait: time.Hour, IRQ: 10 * ms, SoftIRQ: 50 * ms, Steal: time.Hour},
			Breakdown{Usr: 60 * ms, Sys: 30 * ms, Soft: 60 * ms}},
		{"guest is in user", Times{User: 100 * ms, Guest: 70 * ms}, Breakdown{Usr: 30 * ms, Guest: 70 * ms}},
		{"guest_nice is in nice", Times{User: 10 * ms, Nice: 100 * ms, GuestNice: 70 * ms}, Breakdown{Usr: 40 * ms, Guest: 70 * ms}},
		{"guest read after user", Times{User: 60 * ms, Nice: 20 * ms, Guest: 70 * ms}, Breakdown{Usr: 20 * ms, Guest: 70 * ms}},
	}
	for _, tt := range tests {
		if got := tt.times.Breakdown(); got != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestTotal(t *testing.T) {
	if got, want := (Breakdown{1, 2, 3, 4}).Total(), time.Duration(10); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestValues(t *testing.T) {
	host := Breakdown{Usr: time.Second, Sys: 2 * time.Second, Soft: 3 * time.Second, Guest: 4 * time.Second}
	guest := Breakdown{Usr: 5 * time.Second, Sys: 6 * time.Second, Soft: 7 * time.Second, Guest: 8 * time.Second}
	got, err := Values(host, guest, 1e6)
	var want []workload.Value
	for i, metric := range []string{"host_usr", "host_sys", "host_soft", "host_guest", "guest_usr", "guest_sys", "guest_soft"} {
		want = append(want, workload.Value{Metric: metric, Value: float64(i + 1)})
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
	if got, err := Values(host, guest, 50000); err != nil || got[0].Value != 20 || got[5].Value != 120 {
		t.Errorf("50000 operations: got %v, %v", got, err)
	}
	for _, operations := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if got, err := Values(host, guest, operations); err == nil || got != nil {
			t.Errorf("%v operations: got %v, %v, want an error", operations, got, err)
		}
	}
}

func TestMetrics(t *testing.T) {
	for _, m := range Metrics() {
		if err := m.Order.Validate(); err != nil || m.Order != "LIB" || m.Unit != "us/op" {
			t.Errorf("metric %+v: want us/op, LIB (%v)", m, err)
		}
	}
}
