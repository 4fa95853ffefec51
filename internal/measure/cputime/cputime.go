// Package cputime reads how Linux machines spend their CPU time, and divides it by the
// operations of a benchmark.
//
// It is pure: it parses the text of /proc/stat and /proc/PID/stat. Reading the files at the right moments
// does not belong here, nor do other counters of the kernel.
//
// The kernel counts in ticks of 10 ms, so each counter of an interval is off by up to one
// tick per CPU: over a run with 50,000 operations on two CPUs, 0.4 µs per operation. The
// counters include everything that ran on the machine, also the benchmark's client.
package cputime

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Tick is the unit of the kernel's counters: USER_HZ is 100 per second on every
// architecture that unnest supports.
const Tick = 10 * time.Millisecond

// Times are the counters of /proc/stat since boot, summed over all CPUs, or the difference
// of two readings (see proc_stat(5)). Counters that an old kernel lacks are 0.
type Times struct {
	User      time.Duration // user mode, Guest included
	Nice      time.Duration // user mode with low priority, GuestNice included
	System    time.Duration // kernel mode, without interrupts
	Idle      time.Duration
	IOWait    time.Duration // idle with disk I/O under way
	IRQ       time.Duration // hardware interrupts
	SoftIRQ   time.Duration // software interrupts
	Steal     time.Duration // the hypervisor ran something else
	Guest     time.Duration // running a vCPU
	GuestNice time.Duration // running a vCPU of a VMM with low priority
}

// counters lists the fields of t in the order of /proc/stat.
func (t *Times) counters() []*time.Duration {
	return []*time.Duration{&t.User, &t.Nice, &t.System, &t.Idle, &t.IOWait,
		&t.IRQ, &t.SoftIRQ, &t.Steal, &t.Guest, &t.GuestNice}
}

// counterNames names the counters for errors, in the order of counters.
var counterNames = []string{"user", "nice", "system", "idle", "iowait",
	"irq", "softirq", "steal", "guest", "guest_nice"}

// minCounters is the number of counters of the oldest kernels, up to idle.
const minCounters = 4

// Parse parses the line "cpu" of /proc/stat, the sum over all CPUs. It ignores further
// counters.
func Parse(stat []byte) (Times, error) {
	for line := range bytes.Lines(stat) {
		if fields := bytes.Fields(line); len(fields) > 0 && string(fields[0]) == "cpu" {
			return parseCounters(fields[1:])
		}
	}
	return Times{}, errors.New("/proc/stat: no line that starts with cpu")
}

// The fields of /proc/PID/stat behind the name of the program, see proc_pid_stat(5).
const (
	statUser   = 11
	statSystem = 12
	statGuest  = 40
)

// ParseProcess parses the line of /proc/PID/stat: the CPU time of a process with all its
// threads. The kernel does not say how much of it was spent in interrupts.
func ParseProcess(stat []byte) (Times, error) {
	const where = "/proc/PID/stat"
	end := bytes.LastIndexByte(stat, ')') // the program's name may have spaces and parentheses
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) <= statGuest {
		return Times{}, fmt.Errorf("%s: %d fields behind the program's name, want more than %d", where, len(fields), statGuest)
	}
	var t Times
	for i, counter := range map[int]*time.Duration{statUser: &t.User, statSystem: &t.System, statGuest: &t.Guest} {
		d, err := parseTicks(fields[i])
		if err != nil {
			return Times{}, fmt.Errorf("%s: field %d behind the program's name: %w", where, i, err)
		}
		*counter = d
	}
	return t, nil
}

func parseCounters(fields [][]byte) (Times, error) {
	if len(fields) < minCounters {
		return Times{}, fmt.Errorf("/proc/stat: line cpu has %d counters, want at least %d", len(fields), minCounters)
	}
	var t Times
	for i, counter := range t.counters() {
		if i == len(fields) {
			break
		}
		d, err := parseTicks(fields[i])
		if err != nil {
			return Times{}, fmt.Errorf("/proc/stat: line cpu: %s: %w", counterNames[i], err)
		}
		*counter = d
	}
	return t, nil
}

func parseTicks(field []byte) (time.Duration, error) {
	n, err := strconv.ParseUint(string(field), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read ticks: %w", err)
	}
	if n > uint64(math.MaxInt64/Tick) {
		return 0, fmt.Errorf("read ticks: %d are over 292 years", n)
	}
	return time.Duration(n) * Tick, nil
}

// Add returns the sum of t and other.
func (t Times) Add(other Times) Times {
	mine, others := t.counters(), other.counters()
	for i := range mine {
		*mine[i] += *others[i]
	}
	return t
}

// Sub returns the CPU time between earlier and t. Idle, iowait and stolen time are
// estimates that can decrease; a decrease counts as 0. A decrease of any other counter is
// an error, because the readings are not of the same boot of the same machine.
func (t Times) Sub(earlier Times) (Times, error) {
	var d Times
	now, before, spent := t.counters(), earlier.counters(), d.counters()
	for i := range spent {
		*spent[i] = *now[i] - *before[i]
		if *spent[i] >= 0 {
			continue
		}
		if spent[i] != &d.Idle && spent[i] != &d.IOWait && spent[i] != &d.Steal {
			return Times{}, fmt.Errorf("subtract CPU times: %s decreased from %v to %v: read both from the same boot of the same machine",
				counterNames[i], *before[i], *now[i])
		}
		*spent[i] = 0
	}
	return d, nil
}
