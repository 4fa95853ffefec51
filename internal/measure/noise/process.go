package noise

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/cputime"
)

// Process is what /proc/PID/stat says of a process.
type Process struct {
	PID, Parent int
	Started     uint64 // ticks after the boot; tells processes with the same PID apart
	Ended       bool   // and its parent has not reaped it yet
	Name        string
	Spent       time.Duration // user and kernel time of all its threads
	Reaped      time.Duration // the same of its children that have ended, and of theirs
}

// Processes with a meaning for the kernel.
const (
	initProcess = 1 // parent of processes whose parents have ended
	kthreadd    = 2 // parent of the kernel's threads
)

// left reports whether the process has ended and init has to reap it, so that nobody knows whose it was.
func (p Process) left() bool { return p.Ended && p.Parent == initProcess }

func (p Process) kernel() bool { return p.PID == kthreadd || p.Parent == kthreadd }

type identity struct {
	pid     int
	started uint64
}

func (p Process) id() identity { return identity{p.PID, p.Started} }

// ParseProcess parses /proc/PID/stat (proc_pid_stat(5)).
func ParseProcess(stat string) (Process, error) {
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')') // a name may hold both
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("parse stat of a process: %q has no name in parentheses", stat)
	}
	const first, state, parent, utime, stime, cutime, cstime, started = 3, 3, 4, 14, 15, 16, 17, 22
	fields := strings.Fields(stat[end+1:]) // from the third on
	if len(fields) <= started-first {
		return Process{}, fmt.Errorf("parse stat of a process: %d fields, want at least %d", len(fields)+first-1, started)
	}
	numbers := map[int]uint64{}
	for _, i := range []int{parent, utime, stime, cutime, cstime, started} {
		n, err := strconv.ParseUint(fields[i-first], 10, 63)
		if err != nil {
			return Process{}, fmt.Errorf("parse stat of a process: field %d: %w", i, err)
		}
		numbers[i] = n
	}
	pid, err := strconv.Atoi(strings.TrimSpace(stat[:open]))
	if err != nil {
		return Process{}, fmt.Errorf("parse stat of a process: PID: %w", err)
	}
	ticks := func(a, b int) time.Duration { return time.Duration(numbers[a]+numbers[b]) * cputime.Tick }
	return Process{
		PID: pid, Parent: int(numbers[parent]), Started: numbers[started], Ended: fields[state-first] == "Z", Name: stat[open+1 : end],
		Spent: ticks(utime, stime), Reaped: ticks(cutime, cstime),
	}, nil
}

// descendants returns the processes that are root or descend from it.
func descendants(all []Process, root int) map[identity]bool {
	parents := parentsOf(all)
	of := map[identity]bool{}
	for _, p := range all {
		pid := p.PID
		for steps := 0; pid != 0 && pid != root && steps < len(all); steps++ {
			pid = parents[pid]
		}
		if pid == root {
			of[p.id()] = true
		}
	}
	return of
}

func parentsOf(all []Process) map[int]int {
	parents := map[int]int{}
	for _, p := range all {
		parents[p.PID] = p.Parent
	}
	return parents
}

// spent returns the processor time that each process of now has spent since earlier, with
// its children that have ended. What those had spent before does not count. Nothing that
// init reaps counts, because nobody knows whose it was.
func spent(now, earlier []Process) []spending {
	before, alive := map[identity]Process{}, map[int]bool{}
	for _, p := range earlier {
		before[p.id()] = p
	}
	for _, p := range now {
		if _, known := before[p.id()]; known {
			alive[p.PID] = true
		}
	}
	ended := endedOf(earlier, alive)
	var all []spending
	for _, p := range now {
		b := before[p.id()]
		s := spending{p, max(0, p.Spent-b.Spent)}
		if p.PID != initProcess {
			s.spent += max(0, p.Reaped-b.Reaped-ended[p.PID])
		}
		all = append(all, s)
	}
	return all
}

// endedOf sums up what the processes that are not alive any more had spent, for each
// process that lives on and has reaped them, or their parents.
func endedOf(earlier []Process, alive map[int]bool) map[int]time.Duration {
	parents := parentsOf(earlier)
	ended := map[int]time.Duration{}
	for _, p := range earlier {
		if alive[p.PID] {
			continue
		}
		reaper := p.Parent
		for steps := 0; !alive[reaper] && reaper != 0 && steps < len(earlier); steps++ {
			reaper = parents[reaper]
		}
		ended[reaper] += p.Spent + p.Reaped
	}
	return ended
}

// ParseSwitches returns the context switches of /proc/stat.
func ParseSwitches(stat []byte) (uint64, error) {
	for line := range bytes.Lines(stat) {
		if rest, found := bytes.CutPrefix(line, []byte("ctxt ")); found {
			return strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 64)
		}
	}
	return 0, fmt.Errorf("/proc/stat: no line that starts with ctxt")
}

// ParseStalled returns the total of the line some of /proc/pressure/cpu.
func ParseStalled(pressure []byte) (time.Duration, error) {
	for line := range bytes.Lines(pressure) {
		fields := strings.Fields(string(line))
		if len(fields) == 0 || fields[0] != "some" {
			continue
		}
		for _, f := range fields {
			if total, found := strings.CutPrefix(f, "total="); found {
				us, err := strconv.ParseInt(total, 10, 64)
				return time.Duration(us) * time.Microsecond, err
			}
		}
	}
	return 0, fmt.Errorf("/proc/pressure/cpu: no total of the line some")
}
