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

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
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

// Breakdown is busy CPU time in the disjoint categories of Bacou et al. 2019, §5.1.
//
// Guest is the time of vCPUs run by KVM or another hardware hypervisor of this machine.
// Without one, QEMU emulates (TCG): the work of its guest counts as Usr of the host, and
// Guest is 0.
type Breakdown struct {
	Usr   time.Duration // user mode, without running guests
	Sys   time.Duration // kernel mode, without interrupts
	Soft  time.Duration // software and hardware interrupts
	Guest time.Duration // running guests
}

// Breakdown sorts t, a result of Sub, into categories, without idle, iowait and stolen
// time. It subtracts guest time from user time, in which Linux includes it.
func (t Times) Breakdown() Breakdown {
	return Breakdown{
		Usr:   max(0, t.User-t.Guest) + max(0, t.Nice-t.GuestNice),
		Sys:   t.System,
		Soft:  t.SoftIRQ + t.IRQ,
		Guest: t.Guest + t.GuestNice,
	}
}

// Total is the busy time: the sum of the categories.
func (b Breakdown) Total() time.Duration { return b.Usr + b.Sys + b.Soft + b.Guest }

type part struct {
	metric string
	spent  time.Duration
}

// parts returns the CPU time of each metric.
func parts(host, guest Breakdown) []part {
	return []part{
		{"host_usr", host.Usr}, {"host_sys", host.Sys}, {"host_soft", host.Soft}, {"host_guest", host.Guest},
		{"guest_usr", guest.Usr}, {"guest_sys", guest.Sys}, {"guest_soft", guest.Soft},
	}
}

// processParts returns the CPU time of each metric of processes: of the VMs as the host sees
// them, and of a server. The kernel counts interrupts for no process.
func processParts(vm, server Breakdown) []part {
	return []part{
		{"vm_usr", vm.Usr}, {"vm_sys", vm.Sys}, {"vm_guest", vm.Guest},
		{"server_usr", server.Usr}, {"server_sys", server.Sys},
	}
}

// nodeParts returns the CPU time of each metric of the nodes of a cluster. Guests of a node count
// as user time.
func nodeParts(nodes Breakdown) []part {
	return []part{{"node_usr", nodes.Usr + nodes.Guest}, {"node_sys", nodes.Sys}, {"node_soft", nodes.Soft}}
}

// Metrics returns the metrics of Values, in µs of CPU time per operation. There is none for the time that a guest runs its
// own guests.
func Metrics() []result.Metric { return metrics(parts(Breakdown{}, Breakdown{})) }

// ProcessMetrics returns the metrics of ProcessValues.
func ProcessMetrics() []result.Metric { return metrics(processParts(Breakdown{}, Breakdown{})) }

func metrics(parts []part) (all []result.Metric) {
	for _, m := range parts {
		all = append(all, result.Metric{Name: m.metric, Unit: "us/op", Order: result.LIB})
	}
	return all
}

// NodeMetrics returns the metrics of NodeValues.
func NodeMetrics() []result.Metric { return metrics(nodeParts(Breakdown{})) }

// NodeValues is Values for all nodes of a cluster that take part, together.
func NodeValues(nodes Breakdown, operations float64) ([]workload.Value, error) {
	return values(nodeParts(nodes), operations)
}

// Values divides the CPU time of host and guest during an execution by its operations:
// round trips, messages or another unit of work. It fails unless operations is finite and
// over 0.
func Values(host, guest Breakdown, operations float64) ([]workload.Value, error) {
	return values(parts(host, guest), operations)
}

// ProcessValues is Values for the processes of VMs and of a server.
func ProcessValues(vm, server Breakdown, operations float64) ([]workload.Value, error) {
	return values(processParts(vm, server), operations)
}

func values(parts []part, operations float64) (all []workload.Value, _ error) {
	if !(operations > 0) || math.IsInf(operations, 0) {
		return nil, fmt.Errorf("divide CPU time: %v operations, want a finite number over 0", operations)
	}
	for _, m := range parts {
		all = append(all, workload.Value{Metric: m.metric, Value: m.spent.Seconds() * 1e6 / operations})
	}
	return all, nil
}
