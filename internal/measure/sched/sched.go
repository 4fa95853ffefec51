// Package sched counts what the scheduler of this host gives to each domain, a VM or a
// container: CPU time, executions, waiting time, context switches and software interrupts.
// That is what xentop and xenmon show of the domains of Xen; here an eBPF program counts at
// the tracepoints of the scheduler.
//
// It needs root and Linux 5.18 with BTF. What the counters mean for a study does not belong
// here.
package sched

import "time"

// Domain is what is counted together: a control group with all below it, or processes with
// their threads. Give both, and the domain has all of them.
type Domain struct {
	Name      string
	Group     string // directory of the control group: of version 2, or of controller cpu of version 1
	Processes []int  // process IDs, where there is no control group
}

// Counters are what a domain had while it was counted.
type Counters struct {
	CPU         time.Duration // on all processors, with the interrupts that came meanwhile
	Waiting     time.Duration // of all threads: runnable, but not running
	Softirq     time.Duration // software interrupts that interrupted the domain; part of CPU
	Executions  uint64        // how often a thread was given a processor
	Voluntary   uint64        // switches because a thread had to wait for something
	Involuntary uint64        // switches because something else was given the processor
}

// PerExecution returns the mean CPU time of an execution, 0 without executions.
func (c Counters) PerExecution() time.Duration {
	if c.Executions == 0 {
		return 0
	}
	return c.CPU / time.Duration(c.Executions)
}

// Reading is what was counted from Start to Stop.
type Reading struct {
	Window  time.Duration
	Domains map[string]Counters // by name
	Rest    Counters            // everything that belongs to no domain, without idling
	Steal   time.Duration       // that another VM had of this host's processors, over all of them
	Lost    uint64              // threads that were too many to count: with any, counters are too low
}

func (c *Counters) add(k schedCounters) {
	c.CPU += time.Duration(k.Cpu)
	c.Waiting += time.Duration(k.Waiting)
	c.Softirq += time.Duration(k.Softirq)
	c.Executions += k.Executions
	c.Voluntary += k.Voluntary
	c.Involuntary += k.Involuntary
}
