package bench

import (
	"context"
	"fmt"
	"os"
	"strings"

	"unnest/internal/cputime"
	"unnest/internal/experiment"
	"unnest/internal/result"
	"unnest/internal/workload"
)

// Execute runs the client of a case once against a configuration, see
// experiment.Bench.
func (b *Bench) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	s := b.targets[e.Configuration.Name].system
	ctx, done := whileAlive(ctx, s)
	defer done()
	var before, after cpuTimes
	c, err := b.turn(ctx, e, func() (err error) {
		// The guest is read by a command in it, which must not run while the client
		// loads.
		if before.guest, err = s.guestTimes(ctx); err == nil {
			before.host, err = hostTimes()
		}
		return err
	})
	if err != nil {
		return experiment.Outcome{}, s.explain(err)
	}
	defer c.kill()
	out, err := load(ctx, c)
	if err != nil {
		return experiment.Outcome{}, s.explain(err)
	}
	if after.host, err = hostTimes(); err != nil {
		return experiment.Outcome{}, err
	}
	if after.guest, err = s.guestTimes(ctx); err != nil {
		return experiment.Outcome{}, s.explain(err)
	}
	spent, err := perOperation(before, after, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: s.boot}, err
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

// cpuTimes are the CPU times that host and guest have spent since they booted. On
// the host itself there is no guest.
type cpuTimes struct {
	host  cputime.Times
	guest *cputime.Times
}

const statFile = "/proc/stat"

func hostTimes() (cputime.Times, error) {
	content, err := os.ReadFile(statFile)
	if err != nil {
		return cputime.Times{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	return cputime.Parse(content)
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

// Metrics lists what is measured beside the workloads: the CPU time of host and
// guest.
func Metrics() []result.Metric { return cputime.Metrics() }

// perOperation divides the CPU time between two readings by the operations done.
func perOperation(before, after cpuTimes, operations float64) ([]workload.Value, error) {
	host, err := after.host.Sub(before.host)
	if err != nil {
		return nil, fmt.Errorf("host's CPU time: %w", err)
	}
	var inside cputime.Times
	if before.guest != nil && after.guest != nil {
		if inside, err = after.guest.Sub(*before.guest); err != nil {
			return nil, fmt.Errorf("guest's CPU time: %w", err)
		}
	}
	spent, err := cputime.Values(host.Breakdown(), inside.Breakdown(), operations)
	if err != nil {
		return nil, err
	}
	var values []workload.Value
	for _, v := range spent {
		if after.guest != nil || !strings.HasPrefix(v.Metric, "guest_") {
			values = append(values, workload.Value(v))
		}
	}
	return values, nil
}
