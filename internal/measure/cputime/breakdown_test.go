package cputime

import (
	"math"
	"slices"
	"testing"
	"time"
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
	if got, want := (Breakdown{1, 2, 3, 4}).Total(), time.Duration(10); got != want {
		t.Errorf("total: got %v, want %v", got, want)
	}
}

func TestPerUnit(t *testing.T) {
	got, err := Breakdown{Usr: time.Second, Sys: 500 * ms, Soft: 250 * ms, Guest: 0}.PerUnit(50000)
	if want := (PerOperation{Usr: 20, Sys: 10, Soft: 5}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, operations := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if got, err := (Breakdown{Usr: time.Second}).PerUnit(operations); err == nil || got != (PerOperation{}) {
			t.Errorf("%v operations: got %+v, %v, want an error", operations, got, err)
		}
	}
}

func TestValues(t *testing.T) {
	host := Breakdown{Usr: time.Second, Sys: 2 * time.Second, Soft: 3 * time.Second, Guest: 4 * time.Second}
	guest := Breakdown{Usr: 5 * time.Second, Sys: 6 * time.Second, Soft: 7 * time.Second, Guest: 8 * time.Second}
	got, err := Values(host, guest, 1e6)
	want := []Value{{"host_usr", 1}, {"host_sys", 2}, {"host_soft", 3}, {"host_guest", 4},
		{"guest_usr", 5}, {"guest_sys", 6}, {"guest_soft", 7}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v\nwant %v", got, err, want)
	}
	if got, err := Values(host, guest, 0); err == nil || got != nil {
		t.Errorf("no operations: got %v, %v, want an error", got, err)
	}
}

func TestMetrics(t *testing.T) {
	for _, m := range Metrics() {
		if err := m.Order.Validate(); err != nil || m.Order != "LIB" || m.Unit != "us/op" {
			t.Errorf("metric %+v: want us/op, LIB (%v)", m, err)
		}
	}
}
