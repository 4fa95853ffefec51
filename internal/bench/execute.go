package bench

import (
	"context"
	"fmt"
	"os"

	"unnest/internal/cputime"
	"unnest/internal/experiment"
	"unnest/internal/result"
	"unnest/internal/workload"
)

// Execute runs the client of a case once against a configuration, see
// experiment.Bench.
func (b *Bench) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	ctx, done := b.whileAlive(ctx)
	defer done()
	var before, after cpuTimes
	c, err := b.turn(ctx, e, func() (err error) {
		// The guest is read by a command in it, which must not run while the
		// client loads.
		if before.guest, err = b.guestTimes(ctx); err == nil {
			before.host, err = hostTimes()
		}
		return err
	})
	if err != nil {
		return experiment.Outcome{}, err
	}
	defer c.kill()
	out, err := load(ctx, c)
	if err != nil {
		return experiment.Outcome{}, b.explain(err)
	}
	if after.host, err = hostTimes(); err != nil {
		return experiment.Outcome{}, err
	}
	if after.guest, err = b.guestTimes(ctx); err != nil {
		return experiment.Outcome{}, err
	}
	spent, err := perOperation(before, after, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: b.bootID}, err
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

// cpuTimes are the CPU times that host and guest have spent since they booted.
type cpuTimes struct{ host, guest cputime.Times }

const statFile = "/proc/stat"

func hostTimes() (cputime.Times, error) {
	content, err := os.ReadFile(statFile)
	if err != nil {
		return cputime.Times{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	return cputime.Parse(content)
}

func (b *Bench) guestTimes(ctx context.Context) (cputime.Times, error) {
	if b.meter == nil {
		m, err := startMeter(context.WithoutCancel(ctx), b.ssh)
		if err != nil {
			return cputime.Times{}, b.explain(err)
		}
		b.meter = m
	}
	t, err := b.meter.times(ctx)
	if err != nil {
		b.meter.stop()
		b.meter = nil
		return cputime.Times{}, b.explain(fmt.Errorf("guest: %w", err))
	}
	return t, nil
}

// Metrics lists what is measured beside the workloads: the CPU time of host and
// guest.
func Metrics() []result.Metric { return cputime.Metrics() }

// perOperation divides the CPU time between two readings by the operations done.
func perOperation(before, after cpuTimes, operations float64) ([]workload.Value, error) {
	host, err := after.host.Sub(before.host)
	if err != nil {
		return nil, fmt.Errorf("host's CPU time: %w", err)
	}
	guest, err := after.guest.Sub(before.guest)
	if err != nil {
		return nil, fmt.Errorf("guest's CPU time: %w", err)
	}
	spent, err := cputime.Values(host.Breakdown(), guest.Breakdown(), operations)
	if err != nil {
		return nil, err
	}
	values := make([]workload.Value, len(spent))
	for i, v := range spent {
		values[i] = workload.Value(v)
	}
	return values, nil
}
