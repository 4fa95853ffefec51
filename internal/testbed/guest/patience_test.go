package guest

import (
	"os"
	"slices"
	"testing"
	"time"
)

// A wait is reported after 1, 2, 4 … minutes. It ends when the guest hangs, with the processor or
// without, and not while other programs take the processor, or output comes.
func TestBootWait(t *testing.T) {
	l := limits{notice: time.Minute, silent: 4 * time.Minute, all: 20 * time.Minute}
	start := time.Unix(0, 0)
	tests := []struct {
		name   string
		share  float64 // of a processor; negative: not known
		output func(minute int) int64
		due    []int // minutes
		hung   int   // minute
		words  string
	}{
		{"hangs in a loop", 1, func(int) int64 { return 9 }, []int{1, 2, 4}, 4, "no output for 4m0s"},
		{"hangs in a loop later", 1, func(m int) int64 { return int64(min(m, 3)) }, []int{1, 2, 4}, 7, "no output for 4m0s"},
		{"waits for nothing", 0, func(int) int64 { return 0 }, []int{1, 2, 4}, 4, "no output for 4m0s"},
		{"in another guest", -1, func(int) int64 { return 0 }, []int{1, 2, 4}, 4, "no output for 4m0s"},
		{"starved", 0.1, func(int) int64 { return 0 }, []int{1, 2, 4, 8, 16}, 20, "not ready after 20m0s"},
		{"prints for ever", 1, func(m int) int64 { return int64(m) }, []int{1, 2, 4, 8, 16}, 20, "not ready after 20m0s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := func(minute int) sight {
				cpu := time.Duration(tt.share * float64(minute) * float64(time.Minute))
				if tt.share < 0 {
					cpu = -1
				}
				return sight{at: start.Add(time.Duration(minute) * time.Minute), output: tt.output(minute), cpu: cpu}
			}
			w := newBootWait(l, at(0))
			var due []int
			for minute := 1; ; minute++ {
				report, hung := w.see(at(minute))
				if report {
					due = append(due, minute)
				}
				if hung == "" {
					continue
				}
				if hung != tt.words || minute != tt.hung || !slices.Equal(due, tt.due) {
					t.Errorf("%q in minute %d, reported in %v; want %q in %d, %v", hung, minute, due, tt.words, tt.hung, tt.due)
				}
				return
			}
		})
	}
}

func TestProcessorTime(t *testing.T) {
	if got, err := processorTime(0); err == nil {
		t.Errorf("without a process: %v, want an error", got)
	}
	for begin := time.Now(); ; {
		got, err := processorTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if got >= 20*time.Millisecond {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("this test has taken %v in a minute", got)
		}
	}
}
