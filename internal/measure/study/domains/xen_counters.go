package domains

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/sched"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// xenCounters count for the domains of a Xen host.
type xenCounters struct {
	*machines.XenHost
	inner []counter // that count while xentop does
}

// chooseXenCounters returns the counters that a Xen host allows. If the scheduler cannot be traced, the
// run lacks those metrics and says so.
func (s *Study) chooseXenCounters(ctx context.Context, h *machines.XenHost) []counter {
	of := xenCounters{XenHost: h}
	tracing, err := h.Trace(ctx)
	if err == nil {
		_, err = tracing.Stop()
	}
	if err != nil {
		s.Note(fmt.Sprintf("Executions and waiting of the domains were not counted: %v.", err))
	} else {
		of.inner = []counter{of.countExecutions}
	}
	return []counter{of.countProcessors}
}

// countExecutions counts what Xen's scheduler gives the domains and, as the host, all others.
func (h xenCounters) countExecutions(map[string]*cgroup.Group) (stopCounting, error) {
	tracing, err := h.Trace(context.Background()) // its own Stop ends it
	if err != nil {
		return nil, h.Machine.Explain(err)
	}
	return func() (map[string][]workload.Value, error) {
		trace, err := tracing.Stop()
		if err != nil {
			return nil, h.Machine.Explain(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), dom0Patience)
		defer cancel()
		own, err := h.List(ctx)
		if err != nil {
			return nil, h.Machine.Explain(err)
		}
		return executionValues(h.reading(trace, own)), nil
	}, nil
}

// reading groups a trace by the domains of the run. All others, dom0 first, are the rest.
func (h xenCounters) reading(trace xen.Trace, own []xen.Entry) sched.Reading {
	r, others := sched.Reading{Window: trace.Window, Domains: map[string]sched.Counters{}}, maps.Clone(trace.Domains)
	for _, e := range own {
		name, _ := h.Own(e.Name)
		r.Domains[name] = countersOf(trace.Domains[e.ID]) // zero: it neither ran nor waited
		delete(others, e.ID)
	}
	var rest xen.Scheduled
	for _, d := range others {
		rest.Add(d)
	}
	r.Rest = countersOf(rest)
	return r
}

func countersOf(d xen.Scheduled) sched.Counters {
	return sched.Counters{CPU: d.CPU, Waiting: d.Waiting, Executions: d.Executions, Voluntary: d.Waited, Involuntary: d.Preempted}
}

// countProcessors counts what the domains, and dom0, have of the processors by Xen's own account, and what
// the inner counters count. It begins when xentop has printed its first table, which has no interval yet, and the inner counters have started.
func (h xenCounters) countProcessors(groups map[string]*cgroup.Group) (stopCounting, error) {
	printed := &lockedBuffer{}
	ctx, kill := context.WithCancel(context.Background())
	process, err := h.Dom0.Start(ctx, place.Command{Args: xen.TopArgs(), Stdout: printed})
	if err != nil {
		kill()
		return nil, err
	}
	stop := func() {
		kill()
		_ = process.Wait() // it was killed
	}
	if !waitFor(func() bool { return xen.Tables(printed.String()) > 0 }) {
		stop()
		return nil, h.Machine.Explain(fmt.Errorf("xentop prints nothing for %v", dom0Patience))
	}
	inner, err := startCounting(h.inner, groups)
	if err != nil {
		stop()
		return nil, err
	}
	begun := xen.Tables(printed.String())
	return func() (map[string][]workload.Value, error) {
		waitFor(func() bool {
			_, err := xen.ParseTop(printed.String())
			return err == nil && xen.Tables(printed.String()) > begun
		})
		samples, errTop := xen.ParseTop(printed.String())
		all, err := inner()
		stop()
		if err = errors.Join(err, h.Machine.Explain(errTop)); err != nil {
			return nil, err
		}
		// Intervals that began before the load are left out, unless there is no other.
		for name, values := range h.processorValues(samples[min(begun, len(samples)-1):]) {
			all[name] = append(all[name], values...)
		}
		return all, nil
	}, nil
}

// dom0Patience is how long a program in dom0 may take to answer. xentop prints each second, but an emulated dom0 is slow.
const dom0Patience = time.Minute

// waitFor waits until true is returned, for dom0Patience.
func waitFor(done func() bool) bool {
	for end := time.Now().Add(dom0Patience); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// processorValues averages the samples of each domain of the run. All others, dom0 first, are the host.
func (h xenCounters) processorValues(samples []xen.Sample) map[string][]workload.Value {
	all, sums, host := map[string][]workload.Value{}, map[string]float64{}, 0.0
	for _, s := range samples {
		for name, percent := range s.Percent {
			if domain, own := h.Own(name); own {
				sums[domain] += percent
			} else {
				host += percent
			}
		}
	}
	n := float64(len(samples))
	for name, sum := range sums {
		all[name] = []workload.Value{{Metric: collocation.Utilisation, Value: sum / n}}
	}
	all[ofHost] = []workload.Value{{Metric: collocation.HostCPU, Value: host / n}}
	return all
}
