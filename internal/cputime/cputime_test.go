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
	wantErr := "subtract CPU times: user went from 90ms back to 50ms, read both from the same boot of the same machine"
	if got, err := before.Sub(after); err == nil || err.Error() != wantErr {
		t.Errorf("got %+v, %v, want %s", got, err, wantErr)
	}
}

// Only idle, iowait and steal may go backwards.
func TestSubBackwards(t *testing.T) {
	for i, name := range counterNames {
		var before Times
		*before.counters()[i] = Tick
		got, err := Times{}.Sub(before)
		mayGoBack := name == "idle" || name == "iowait" || name == "steal"
		if (err == nil) != mayGoBack || got != (Times{}) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), ": "+name+" went") {
			t.Errorf("%s: error %v does not name it", name, err)
		}
	}
}

func TestParseProcess(t *testing.T) {
	// A real line of Linux 6.18, with another name, utime, stime and guest_time.
	line := func(name, guest string) string {
		return "21372 (" + name + ") R 21355 21355 7086 0 -1 4194304 101 0 0 0 7 3 1 2 20 0 1 0 252302 3133440 408" +
			" 18446744073709551615 94683242500096 94683242519977 140722569191136 0 0 0 0 0 0 0 0 0 17 1 0 0 0 " + guest +
			" 0 94683242535984 94683242537600 94684192542720 140722569198275 140722569198295 140722569198295 140722569199595 0\n"
	}
	want := Times{User: 70 * ms, System: 30 * ms, Guest: 50 * ms}
	for _, name := range []string{"cat", "tmux: server", "a) R 1 (b", "", "\n"} {
		if got, err := ParseProcess([]byte(line(name, "5"))); err != nil || got != want {
			t.Errorf("%q: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	short := "1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 7 3"
	if got, err := ParseProcess([]byte(short)); err != nil || got != (Times{User: 70 * ms, System: 30 * ms}) {
		t.Errorf("old kernel: got %+v, %v", got, err)
	}
	errors := []struct{ stat, want string }{
		{"", "/proc/PID/stat: no program name in parentheses"},
		{"1 (init) S 0 1", "/proc/PID/stat: 3 fields after the program name, want at least 13"},
		{"1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 x 3", `/proc/PID/stat: utime: read ticks: strconv.ParseUint: parsing "x": invalid syntax`},
		{"1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 7 -3", `/proc/PID/stat: stime: read ticks: strconv.ParseUint: parsing "-3": invalid syntax`},
		{line("cat", "x"), `/proc/PID/stat: guest_time: read ticks: strconv.ParseUint: parsing "x": invalid syntax`},
	}
	for _, tt := range errors {
		if got, err := ParseProcess([]byte(tt.stat)); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %+v, %v\nwant %s", tt.stat, got, err, tt.want)
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
		// What was read and is printed again reads the same.
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

func FuzzParseProcess(f *testing.F) {
	for _, seed := range []string{"1 (a b) S 0 1 1 0 -1 4194560 1 2 3 4 7 3", "1 (a)) S 0 1", "(", ")", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, stat []byte) {
		got, err := ParseProcess(stat)
		if err != nil && (got != (Times{}) || !strings.HasPrefix(err.Error(), "/proc/PID/stat: ")) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if got.User < 0 || got.System < 0 || got.Guest < 0 {
			t.Fatalf("negative: %+v", got)
		}
	})
}
