package cputime

import (
	"fmt"
	"math"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

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

// Metrics returns the metrics of Values, in µs of CPU time per operation. There is none for the time that a guest runs its
// own guests.
func Metrics() (metrics []result.Metric) {
	for _, m := range parts(Breakdown{}, Breakdown{}) {
		metrics = append(metrics, result.Metric{Name: m.metric, Unit: "us/op", Order: result.LIB})
	}
	return metrics
}

// Values divides the CPU time of host and guest during an execution by its operations:
// round trips, messages or another unit of work. It fails unless operations is finite and
// over 0.
func Values(host, guest Breakdown, operations float64) ([]workload.Value, error) {
	if !(operations > 0) || math.IsInf(operations, 0) {
		return nil, fmt.Errorf("divide CPU time: %v operations, want a finite number over 0", operations)
	}
	var values []workload.Value
	for _, m := range parts(host, guest) {
		values = append(values, workload.Value{Metric: m.metric, Value: m.spent.Seconds() * 1e6 / operations})
	}
	return values, nil
}
