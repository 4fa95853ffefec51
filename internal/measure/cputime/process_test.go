package cputime

import (
	"strings"
	"testing"
)

// processStat is a line of Linux 6.1, of a QEMU with KVM.
const processStat = "2345 (qemu system (x)) S 1 2345 2345 0 -1 138412416 52 0 0 0 1500 700 0 0 20 0 5 0 900 2000000 3000 18446744073709551615 1 1 0 0 0 0 268444224 4096 17634 0 0 0 17 1 0 0 0 1100 0 0 0 0 0 0 0 0 0\n"

func TestParseProcess(t *testing.T) {
	got, err := ParseProcess([]byte(processStat))
	if want := (Times{User: 15000 * ms, System: 7000 * ms, Guest: 11000 * ms}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got, want := got.Breakdown(), (Breakdown{Usr: 4000 * ms, Sys: 7000 * ms, Guest: 11000 * ms}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if sum := got.Add(Times{User: ms, Steal: 2 * ms}); sum.User != 15001*ms || sum.System != 7000*ms || sum.Steal != 2*ms {
		t.Errorf("sum: got %+v", sum)
	}
	for stat, want := range map[string]string{
		"": "/proc/PID/stat: 0 fields", "\n": "/proc/PID/stat: 0 fields", "1 (sh) S 1": "2 fields behind the program's name",
		strings.Replace(processStat, " 1500 ", " x ", 1): "field 11 behind the program's name: read ticks",
	} {
		if got, err := ParseProcess([]byte(stat)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %+v, %v; want %s", stat, got, err, want)
		}
	}
}

func TestProcessValues(t *testing.T) {
	got, err := ProcessValues(Breakdown{Usr: 4000 * ms, Sys: 2000 * ms, Guest: 1000 * ms}, Breakdown{Usr: 500 * ms, Sys: 250 * ms}, 1e6)
	if err != nil || len(got) != len(ProcessMetrics()) {
		t.Fatalf("got %v, %v", got, err)
	}
	for i, want := range []float64{4, 2, 1, 0.5, 0.25} {
		if got[i].Metric != ProcessMetrics()[i].Name || got[i].Value != want {
			t.Errorf("got %v, want %v", got[i], want)
		}
	}
	if _, err := ProcessValues(Breakdown{}, Breakdown{}, 0); err == nil {
		t.Error("no operations: want an error")
	}
}
