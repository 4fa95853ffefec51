package cputime

import (
	"fmt"
	"math"
	"time"

	"unnest/internal/measure/result"
)

// Breakdown is busy CPU time in the categories of Bacou et al. 2019, §5.1,
// which do not overlap.
//
// Guest is time in which KVM or another hardware hypervisor of this machine ran
// a vCPU. QEMU without one (TCG) is a program that emulates: what its guest
// does is Usr of the host, and Guest stays 0.
type Breakdown struct {
	Usr   time.Duration // user mode, without running guests
	Sys   time.Duration // kernel mode, without interrupts
	Soft  time.Duration // serving interrupts: software interrupts, and the few hardware ones
	Guest time.Duration // running guests
}

// Breakdown sorts t, as returned by Sub. Idle, iowait and stolen time are in no
// category. Linux counts guest time in user time too, where it is taken out.
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

// PerOperation is CPU time in µs per operation.
type PerOperation struct {
	Usr, Sys, Soft, Guest float64
}

// PerUnit divides b by operations: round trips, messages or whatever unit of
// work the benchmark counted in the same interval. It returns an error unless
// operations is finite and over 0.
func (b Breakdown) PerUnit(operations float64) (PerOperation, error) {
	if !(operations > 0) || math.IsInf(operations, 0) {
		return PerOperation{}, fmt.Errorf("divide CPU time: %v operations, want a finite number over 0", operations)
	}
	per := func(d time.Duration) float64 { return d.Seconds() * 1e6 / operations }
	return PerOperation{Usr: per(b.Usr), Sys: per(b.Sys), Soft: per(b.Soft), Guest: per(b.Guest)}, nil
}

// Value is one value of a metric.
type Value struct {
	Metric string
	Value  float64
}

// Metrics lists the metrics that Values yields, in µs of CPU time per
// operation. Time that a guest spends on guests of its own has no metric.
func Metrics() []result.Metric {
	names := []string{"host_usr", "host_sys", "host_soft", "host_guest", "guest_usr", "guest_sys", "guest_soft"}
	metrics := make([]result.Metric, len(names))
	for i, name := range names {
		metrics[i] = result.Metric{Name: name, Unit: "us/op", Order: result.LIB}
	}
	return metrics
}

// Values divides what the host and the guest spent over one execution by the
// operations that it did, in the order of Metrics.
func Values(host, guest Breakdown, operations float64) ([]Value, error) {
	h, err := host.PerUnit(operations)
	if err != nil {
		return nil, err
	}
	g, err := guest.PerUnit(operations)
	if err != nil {
		return nil, err
	}
	metrics := Metrics()
	values := make([]Value, len(metrics))
	for i, v := range []float64{h.Usr, h.Sys, h.Soft, h.Guest, g.Usr, g.Sys, g.Soft} {
		values[i] = Value{Metric: metrics[i].Name, Value: v}
	}
	return values, nil
}
