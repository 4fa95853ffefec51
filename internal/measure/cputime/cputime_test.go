package cputime

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// realStat is the start of a /proc/stat of Linux 6.18 with two CPUs.
const realStat = `cpu  116639 198 104031 254159 2043 0 19151 504 0 0
cpu0 57664 87 51064 130149 318 0 8851 252 0 0
cpu1 58975 111 52967 124009 1724 0 10300 251 0 0
ctxt 34404754
`

const ms = time.Millisecond

func TestParse(t *testing.T) {
	tests := []struct {
		name, stat string
		want       Times
	}{
		{"linux 6.18", realStat, Times{User: 1166390 * ms, Nice: 1980 * ms, System: 1040310 * ms, Idle: 2541590 * ms,
			IOWait: 20430 * ms, SoftIRQ: 191510 * ms, Steal: 5040 * ms}},
		{"every counter", "cpu 1 2 3 4 5 6 7 8 9 10\n", Times{10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms, 60 * ms, 70 * ms, 80 * ms, 90 * ms, 100 * ms}},
		{"more counters", "cpu 1 2 3 4 5 6 7 8 9 10 11 x\n", Times{10 * ms, 20 * ms, 30 * ms, 40 * ms, 50 * ms, 60 * ms, 70 * ms, 80 * ms, 90 * ms, 100 * ms}},
		{"linux 2.4", "cpu  1 2 3 4", Times{User: 10 * ms, Nice: 20 * ms, System: 30 * ms, Idle: 40 * ms}},
		{"sum not first", "intr 5\ncpu0 9 9 9 9\ncpu  1 2 3 4\n", Times{User: 10 * ms, Nice: 20 * ms, System: 30 * ms, Idle: 40 * ms}},
		{"largest", "cpu 922337203685 0 0 0", Times{User: 922337203685 * 10 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, err := Parse([]byte(tt.stat)); err != nil || got != tt.want {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ stat, want string }{
		{"", "/proc/stat: no line that starts with cpu"},
		{"cpu0 1 2 3 4\n", "/proc/stat: no line that starts with cpu"},
		{"cpu 1 2 3\n", "/proc/stat: line cpu has 3 counters, want at least 4"},
		{"cpu 1 2 3\ncpu 1 2 3 4\n", "/proc/stat: line cpu has 3 counters, want at least 4"},
		{"cpu 1 2 -3 4", `/proc/stat: line cpu: system: read ticks: strconv.ParseUint: parsing "-3": invalid syntax`},
		{"cpu 1 2 3 NaN", `/proc/stat: line cpu: idle: read ticks: strconv.ParseUint: parsing "NaN": invalid syntax`},
		{"cpu 922337203686 0 0 0", "/proc/stat: line cpu: user: read ticks: 922337203686 are over 292 years"},
	}
	for _, tt := range tests {
		if got, err := Parse([]byte(tt.stat)); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %+v, %v\nwant %s", tt.stat, got, err, tt.want)
		}
	}
}

func TestSub(t *testing.T) {
	before := Times{User: 50 * ms, System: 10 * ms, Idle: 500 * ms, IOWait: 30 * ms, Steal: 20 * ms, Guest: 10 * ms}
	after := Times{User: 90 * ms, System: 10 * ms, Idle: 490 * ms, IOWait: 20 * ms, Steal: 10 * ms, Guest: 30 * ms}
	want := Times{User: 40 * ms, Guest: 20 * ms}
	if got, err := after.Sub(before); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	wantErr := "subtract CPU times: user decreased from 90ms to 50ms: read both from the same boot of the same machine"
	if got, err := before.Sub(after); err == nil || err.Error() != wantErr {
		t.Errorf("got %+v, %v, want %s", got, err, wantErr)
	}
}

// Only idle, iowait and steal may decrease.
func TestSubBackwards(t *testing.T) {
	for i, name := range counterNames {
		var before Times
		*before.counters()[i] = Tick
		got, err := Times{}.Sub(before)
		mayDecrease := name == "idle" || name == "iowait" || name == "steal"
		if (err == nil) != mayDecrease || got != (Times{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), ": "+name+" decreased") {
			t.Errorf("%s: error %v does not name it", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{realStat, "cpu 1 2 3 4\n", "cpu 1 2 3 4 5 6 7 8 9 10 11", "cpu0 1\ncpu 1", "cpu 18446744073709551615 1 1 1", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stat []byte) {
		got, err := Parse(stat)
		if err != nil {
			if got != (Times{}) || !strings.HasPrefix(err.Error(), "/proc/stat: ") {
				t.Fatalf("got %+v, %v", got, err)
			}
			return
		}
		// A printed reading is parsed to the same value.
		line := "cpu "
		for _, c := range got.counters() {
			line += fmt.Sprintf(" %d", *c/Tick)
		}
		if again, err := Parse([]byte(line)); err != nil || again != got {
			t.Fatalf("%s: got %+v, %v, want %+v", line, again, err, got)
		}
		if d, err := got.Sub(got); err != nil || d != (Times{}) {
			t.Fatalf("minus itself: %+v, %v", d, err)
		}
	})
}
