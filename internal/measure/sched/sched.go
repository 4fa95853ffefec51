// Package sched counts what the scheduler of this host gives to each domain, a VM or a
// container: CPU time, executions, waiting time, context switches and software interrupts.
// That is what xentop and xenmon show of the domains of Xen; here an eBPF program counts at
// the tracepoints of the scheduler.
//
// It needs root and Linux 5.18 with BTF. What the counters mean for a study does not belong
// here.
package sched

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/cputime"
)

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

// identify returns the ID of the control group of each domain, 0 if it has none, and
// whether they are of version 1. IDs of different hierarchies may be equal, so all groups
// are of one.
func identify(domains []Domain) (ids []uint64, v1 bool, err error) {
	ids = make([]uint64, len(domains))
	first := ""
	for i, d := range domains {
		if d.Group == "" {
			if len(d.Processes) == 0 {
				return nil, false, fmt.Errorf("domain %s: no control group and no process: name one", d.Name)
			}
			continue
		}
		id, old, err := groupID(d.Group)
		if err != nil {
			return nil, false, fmt.Errorf("domain %s: %w", d.Name, err)
		}
		if first != "" && old != v1 {
			return nil, false, fmt.Errorf("control groups %s and %s have different versions: use one", first, d.Group)
		}
		ids[i], v1, first = id, old, d.Group
	}
	return ids, v1, nil
}

// groupID returns the ID of a control group, which is the inode of its directory, and
// whether it is of version 1.
func groupID(dir string) (id uint64, v1 bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false, fmt.Errorf("find control group %s: %w", dir, err)
	}
	if fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, false, fmt.Errorf("%s is not a control group: name a directory below /sys/fs/cgroup", dir)
	}
	v1 = fs.Type == unix.CGROUP_SUPER_MAGIC
	var weight unix.Stat_t
	if v1 && unix.Stat(dir+"/cpu.shares", &weight) != nil {
		return 0, false, fmt.Errorf("control group %s lacks controller cpu: name one below /sys/fs/cgroup/cpu", dir)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, false, fmt.Errorf("find control group %s: %w", dir, err)
	}
	return st.Ino, v1, nil
}

//go:generate go tool bpf2go -target bpfel -type counters -type task sched bpf/sched.c -- -O2 -mcpu=v3 -Wall -Wextra -Wno-unused-parameter -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// maxDomains is the number of domains besides the rest.
const maxDomains = 64

// Counting is a count that was started.
type Counting struct {
	domains []Domain
	objects schedObjects
	links   []link.Link
	started uint64 // of the monotonic clock, in ns
	before  cputime.Times
}

// Start begins to count. Threads that join a domain later are counted from then on. The
// programs end with the count or with this process.
func Start(domains []Domain) (_ *Counting, err error) {
	if len(domains) > maxDomains {
		return nil, fmt.Errorf("count %d domains: want at most %d", len(domains), maxDomains)
	}
	c := &Counting{domains: domains}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.load(); err != nil {
		return nil, err
	}
	if err := c.attach(); err != nil {
		return nil, err
	}
	if c.before, err = hostTimes(); err != nil {
		return nil, err
	}
	if c.started, err = monotonic(); err != nil {
		return nil, err
	}
	if err := c.objects.Started.Set(c.started); err != nil {
		return nil, fmt.Errorf("start counting: %w", err)
	}
	return c, c.seed()
}

// load loads the programs and tells them the domains.
func (c *Counting) load() error {
	ids, v1, err := identify(c.domains)
	if err != nil {
		return err
	}
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return fmt.Errorf("remove memory lock limit: %w", err)
	}
	spec, err := loadSched()
	if err != nil {
		return fmt.Errorf("read scheduler's programs: %w", err)
	}
	if err := spec.Variables["v1"].Set(v1); err != nil {
		return fmt.Errorf("set hierarchy of control groups: %w", err)
	}
	if err := spec.LoadAndAssign(&c.objects, nil); err != nil {
		return fmt.Errorf("load scheduler's programs: %w; they need root and Linux 5.18 with BTF (/sys/kernel/btf/vmlinux)", err)
	}
	for i, d := range c.domains {
		number := uint32(i + 1)
		if ids[i] != 0 {
			err = errors.Join(err, c.objects.Groups.Put(ids[i], number))
		}
		for _, pid := range d.Processes {
			err = errors.Join(err, c.objects.Processes.Put(uint32(pid), number))
		}
	}
	if err != nil {
		return fmt.Errorf("tell domains to the scheduler's programs: %w", err)
	}
	return nil
}

func (c *Counting) attach() error {
	o := c.objects
	for _, p := range []*ebpf.Program{o.OnWakeup, o.OnWakeupNew, o.OnExec, o.OnSoftirqEntry, o.OnSoftirqExit, o.OnSwitch} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attach %s: %w", p, err)
		}
		c.links = append(c.links, l)
	}
	return nil
}

// seed finds the threads that run or wait already.
func (c *Counting) seed() error {
	l, err := link.AttachIter(link.IterOptions{Program: c.objects.Seed})
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	r, err := l.Open()
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		err = errors.Join(err, r.Close())
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	return nil
}

// Stop ends the count and returns what was counted.
func (c *Counting) Stop() (_ Reading, err error) {
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.objects.Stopped.Set(uint64(1)); err != nil {
		return Reading{}, fmt.Errorf("stop counting: %w", err)
	}
	now, err := monotonic() // no event counts after it, however long this process had to wait
	if err != nil {
		return Reading{}, err
	}
	after, err := hostTimes()
	if err != nil {
		return Reading{}, err
	}
	spent, err := after.Sub(c.before)
	if err != nil {
		return Reading{}, err
	}
	return c.read(now, spent.Steal)
}

// read sums the counters up.
func (c *Counting) read(now uint64, steal time.Duration) (Reading, error) {
	r := Reading{Window: time.Duration(now - c.started), Domains: map[string]Counters{}, Steal: steal}
	if err := c.objects.Lost.Get(&r.Lost); err != nil {
		return Reading{}, fmt.Errorf("read lost threads: %w", err)
	}
	open, err := c.open(now)
	if err != nil {
		return Reading{}, err
	}
	for i := range len(c.domains) + 1 {
		sum := open[uint32(i)]
		var perCPU []schedCounters
		if err := c.objects.Counts.Lookup(uint32(i), &perCPU); err != nil {
			return Reading{}, fmt.Errorf("read counters: %w", err)
		}
		for _, one := range perCPU {
			sum.add(one)
		}
		if i == 0 {
			r.Rest = sum
		} else {
			r.Domains[c.domains[i-1].Name] = sum
		}
	}
	return r, nil
}

// The states of a thread, see bpf/sched.c.
const (
	waiting = 1
	running = 2
)

// open returns what the threads of each domain have run and waited since their last event.
func (c *Counting) open(now uint64) (map[uint32]Counters, error) {
	all := map[uint32]Counters{}
	var tid uint32
	var t schedTask
	tasks := c.objects.Tasks.Iterate()
	for tasks.Next(&tid, &t) {
		sum := all[t.Domain]
		switch since := time.Duration(now - min(t.Since, now)); t.State {
		case running:
			sum.CPU += since
		case waiting:
			sum.Waiting += since
		}
		all[t.Domain] = sum
	}
	if err := tasks.Err(); err != nil {
		return nil, fmt.Errorf("read threads: %w", err)
	}
	return all, nil
}

func (c *Counting) close() (err error) {
	for _, l := range c.links {
		err = errors.Join(err, l.Close())
	}
	return errors.Join(err, c.objects.Close())
}

// monotonic returns the clock of the programs, in ns.
func monotonic() (uint64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read monotonic clock: %w", err)
	}
	return uint64(t.Nano()), nil
}

func hostTimes() (cputime.Times, error) {
	content, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cputime.Times{}, fmt.Errorf("read stolen time: %w", err)
	}
	return cputime.Parse(content)
}
