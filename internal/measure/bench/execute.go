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
func (s *services) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	one := s.instances[e.Configuration.Name]
	m := one.machines
	ctx, done := whileAlive(ctx, m...)
	defer done()
	defer one.served(ctx, e.Case)
	if err := one.serving(ctx, e.Case); err != nil {
		return experiment.Outcome{}, err
	}
	var before, after cpuTimes
	read := func() (err error) {
		before, err = one.timesBefore(ctx, e.Case)
		return err
	}
	if len(lookup(e.Case).Programs()) > 0 {
		// The first reading starts shells, which takes seconds in an emulated guest. Kafka's client
		// loads the broker before it is told to begin, and could have ended by then.
		if err := read(); err != nil {
			return experiment.Outcome{}, m.explain(err)
		}
	}
	c, err := s.turn(ctx, e, read)
	if err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	defer c.kill()
	out, err := load(ctx, c)
	if err != nil {
		return experiment.Outcome{}, one.explain(e.Case, err)
	}
	if after.host, err = hostTimes(); err != nil {
		return experiment.Outcome{}, err
	}
	if after.guests, err = m.guestTimes(ctx); err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	if after.processes, err = one.processTimes(ctx, e.Case); err != nil {
		return experiment.Outcome{}, m.explain(err)
	}
	spent, err := perOperation(before, after, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: m.servers().boot}, err
}

// timesBefore reads the CPU times before a load. Commands in the guest read its times. They must not
// run while the client loads.
func (s *service) timesBefore(ctx context.Context, c experiment.Case) (t cpuTimes, err error) {
	if t.processes, err = s.processTimes(ctx, c); err != nil {
		return t, err
	}
	if t.guests, err = s.machines.guestTimes(ctx); err == nil {
		t.host, err = hostTimes()
	}
	return t, err
}

// load waits for the client. It parses the output also of a client that failed, because
// that names the cause best.
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

// cpuTimes are the CPU times of the host and of the guests of a configuration since
// their boot. A configuration on the host itself has no guest.
type cpuTimes struct {
	host      cputime.Times
	guests    []cputime.Times
	processes *processTimes // of an application; nil: none
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
	for _, one := range m {
		t, err := one.guestTimes(ctx)
		if err != nil {
			return nil, err
		}
		if t != nil {
			all = append(all, *t)
		}
	}
	return all, nil
}

// guestTimes reads the CPU time of a guest. For this host it returns nil.
func (m *machine) guestTimes(ctx context.Context) (_ *cputime.Times, err error) {
	if m.gone == nil {
		return nil, nil
	}
	if m.meter == nil {
		if m.meter, err = startMeter(context.WithoutCancel(ctx), m.place, machineMeter); err != nil {
			return nil, err
		}
	}
	line, err := m.meter.read(ctx, "")
	if err != nil {
		m.meter.stop()
		m.meter = nil
		return nil, fmt.Errorf("guest: %w", err)
	}
	t, err := cputime.Parse(line)
	return &t, err
}

// cpuMetrics are the CPU times that are measured along with the workloads: of the host,
// and of the guest or, where a pod is split, of both its guests together (Bacou et al.
// 2019, Figures 14 and 15).
func cpuMetrics() []result.Metric { return cputime.Metrics() }

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
			values = append(values, v)
		}
	}
	if before.processes == nil || after.processes == nil {
		return values, nil
	}
	processes, err := after.processes.perOperation(*before.processes, operations)
	return append(values, processes...), err
}

func sum(a, b cputime.Breakdown) cputime.Breakdown {
	return cputime.Breakdown{Usr: a.Usr + b.Usr, Sys: a.Sys + b.Sys, Soft: a.Soft + b.Soft, Guest: a.Guest + b.Guest}
}
