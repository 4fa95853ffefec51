package bench

import (
	"context"
	"fmt"
	"os"
	"strings"

	"unnest/internal/measure/cputime"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// Execute runs the client of a case once against a configuration, see
// experiment.Bench.
func (b *Bench) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	m := b.targets[e.Configuration.Name].machines
	ctx, done := whileAlive(ctx, m...)
	defer done()
	var before, after cpuTimes
	c, err := b.turn(ctx, e, func() (err error) {
		// A guest is read by a command in it, which must not run while the client
		// loads.
		if before.guests, err = m.guestTimes(ctx); err == nil {
			before.host, err = hostTimes()
		}
		return err
	})
	if err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	defer c.kill()
	out, err := load(ctx, c)
	if err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	if after.host, err = hostTimes(); err != nil {
		return experiment.Outcome{}, err
	}
	if after.guests, err = m.guestTimes(ctx); err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	spent, err := perOperation(before, after, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: m.servers().boot}, err
}

// load waits for the client. What it prints is parsed also when it fails,
// because its own words say best why.
func load(ctx context.Context, c *client) (workload.Output, error) {
	<-c.done
	if ctx.Err() != nil {
		return workload.Output{}, fmt.Errorf("%s: %w", c.workload.Name(), context.Cause(ctx))
	}
	out, err := c.workload.Parse(c.execution.Case.Params, c.printed)
	if c.err != nil && (err == nil || len(c.printed) == 0) {
		err = c.err
	}
	return out, err
}

// cpuTimes are the CPU times that the host and the guests of a configuration have
// spent since they booted. On the host itself there is no guest.
type cpuTimes struct {
	host   cputime.Times
	guests []cputime.Times
}

const statFile = "/proc/stat"

func hostTimes() (cputime.Times, error) {
	content, err := os.ReadFile(statFile)
	if err != nil {
		return cputime.Times{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	return cputime.Parse(content)
}

// guestTimes reads the CPU time of each machine that is a guest.
func (m machines) guestTimes(ctx context.Context) ([]cputime.Times, error) {
	var all []cputime.Times
	for _, s := range m {
		t, err := s.guestTimes(ctx)
		if err != nil {
			return nil, err
		}
		if t != nil {
			all = append(all, *t)
		}
	}
	return all, nil
}

// guestTimes reads the CPU time of a guest; of this host's it returns nil.
func (s *system) guestTimes(ctx context.Context) (*cputime.Times, error) {
	if s.gone == nil {
		return nil, nil
	}
	if s.meter == nil {
		m, err := startMeter(context.WithoutCancel(ctx), s.place)
		if err != nil {
			return nil, err
		}
		s.meter = m
	}
	t, err := s.meter.times(ctx)
	if err != nil {
		s.meter.stop()
		s.meter = nil
		return nil, fmt.Errorf("guest: %w", err)
	}
	return &t, nil
}

// Metrics lists what is measured beside the workloads: the CPU time of the host, and
// of the guest or, where a pod is split, of both of its guests together (Bacou et al.
// 2019, Figures 14 and 15).
func Metrics() []result.Metric { return cputime.Metrics() }

// perOperation divides the CPU time between two readings by the operations done.
func perOperation(before, after cpuTimes, operations float64) ([]workload.Value, error) {
	host, err := after.host.Sub(before.host)
	if err != nil {
		return nil, fmt.Errorf("host's CPU time: %w", err)
	}
	var inside cputime.Breakdown
	for i, now := range after.guests {
		one, err := now.Sub(before.guests[i])
		if err != nil {
			return nil, fmt.Errorf("guest's CPU time: %w", err)
		}
		inside = sum(inside, one.Breakdown())
	}
	spent, err := cputime.Values(host.Breakdown(), inside, operations)
	if err != nil {
		return nil, err
	}
	var values []workload.Value
	for _, v := range spent {
		if len(after.guests) > 0 || !strings.HasPrefix(v.Metric, "guest_") {
			values = append(values, workload.Value(v))
		}
	}
	return values, nil
}

func sum(a, b cputime.Breakdown) cputime.Breakdown {
	return cputime.Breakdown{Usr: a.Usr + b.Usr, Sys: a.Sys + b.Sys, Soft: a.Soft + b.Soft, Guest: a.Guest + b.Guest}
}
