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
