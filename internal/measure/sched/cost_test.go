package sched

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/stats"
)

var cost = flag.String("cost", "", "measure what counting costs, and write the page `FILE`")

// pingPong has two threads on one processor wake each other, and returns the CPU time of a
// switch between them, with the wake-up and the calls that lead to it. What else runs on
// the processor does not count.
func pingPong(t *testing.T, rounds int) time.Duration {
	t.Helper()
	var there, back [2]int
	for _, p := range [][]int{there[:], back[:]} {
		if err := unix.Pipe2(p, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(p[0])
		defer unix.Close(p[1])
	}
	one := firstProcessor(t)
	done := make(chan error, 2)
	side := func(in, out int, first bool) {
		runtime.LockOSThread() // and never unlocked: the thread ends with its affinity
		b := []byte{0}
		err := unix.SchedSetaffinity(0, &one)
		for i := 0; i < rounds && err == nil; i++ {
			if first {
				_, err = unix.Write(out, b)
			}
			if err == nil {
				_, err = unix.Read(in, b)
			}
			if !first && err == nil {
				_, err = unix.Write(out, b)
			}
		}
		done <- err
	}
	begin := spent(t)
	go side(there[0], back[1], false)
	go side(back[0], there[1], true)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return (spent(t) - begin) / time.Duration(2*rounds)
}

// spent returns the CPU time of this process.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// Every switch between two threads of this process is counted. With -cost it measures how
// much longer one takes, in blocks of both in random order.
func TestCost(t *testing.T) {
	privileged(t)
	blocks, rounds := 1, 2000
	if *cost != "" {
		blocks, rounds = 30, 100_000
	}
	r := rand.New(rand.NewPCG(1, 1))
	var plain, counted []stats.Observation
	for block := range blocks {
		measure := func(counting bool) {
			var c *Counting
			if counting {
				var err error
				if c, err = Start([]Domain{{Name: "this", Processes: []int{os.Getpid()}}}); err != nil {
					t.Fatal(err)
				}
			}
			took := stats.Observation{Block: block, Value: float64(pingPong(t, rounds).Nanoseconds())}
			if !counting {
				plain = append(plain, took)
				return
			}
			counted = append(counted, took)
			reading, err := c.Stop()
			if err != nil {
				t.Fatal(err)
			}
			if got := reading.Domains["this"].Executions; got < uint64(2*rounds) {
				t.Errorf("%d executions in %d switches", got, 2*rounds)
			}
		}
		first := r.IntN(2) == 0
		measure(first)
		measure(!first)
	}
	if *cost != "" {
		page(t, plain, counted)
	}
}

// page writes what counting costs.
func page(t *testing.T, plain, counted []stats.Observation) {
	t.Helper()
	e, err := stats.Compare(counted, plain, true)
	if err != nil {
		t.Fatal(err)
	}
	center := func(obs []stats.Observation) float64 {
		s, err := stats.Summarize(stats.Values(obs))
		if err != nil {
			t.Fatal(err)
		}
		return s.Center
	}
	i, before, after := e.Interval(stats.DefaultConfidence), center(plain), center(counted)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# What counting the scheduler costs\n\n**Result.** With the eBPF program, a switch between processes takes %.3f [%.3f, %.3f] times the processor time.\n\n<!-- begin chart column 2 Processor time of a switch with the program, over that without, with 95 %% interval -->\n\n\n<!-- end chart -->\n\nFor people who measure domains that share a host, and want to know what the eBPF program that counts their\nexecutions takes from them. `make e2e TEST=TestCost ARGS='-cost ../../../docs/results/sched-cost.md'` measures it again and writes this page.\n\n", e.Ratio(), i.Low, i.High)
	fmt.Fprintf(&text, "Two threads on one processor wake each other through pipes, so each round has two wake-ups and two switches. That\nis the worst case: nothing else is done between two switches. %d blocks of 200,000 switches, with and\nwithout the program in random order:\n\n", e.N)
	fmt.Fprintf(&text, "| | CPU time of a switch, with its wake-up |\n|---|---:|\n| program not attached | %.0f ns |\n| program attached | %.0f ns |\n| ratio, 95 %% interval | %.3f [%.3f, %.3f] |\n| added to a switch | %.0f ns |\n", before, after, e.Ratio(), i.Low, i.High, after-before)
	fmt.Fprintf(&text, "| share of a processor at 10,000 switches/s | %.2f %% |\n\n", (after-before)*1e4/1e9*100)
	fmt.Fprintf(&text, "%s, Linux %s, %s.\n", time.Now().UTC().Format("2 January 2006"), unix.ByteSliceToString(u.Release[:]), processor(t))
	if err := os.WriteFile(*cost, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func processor(t *testing.T) string {
	t.Helper()
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(info), "model name")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimLeft(line, "\t: ")
}
