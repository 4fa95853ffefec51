package cputime

import (
	"fmt"
	"math"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
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
