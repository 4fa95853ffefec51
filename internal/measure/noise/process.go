package noise

import (
	"bytes"
	"fmt"
	"strconv"
	"time"
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
