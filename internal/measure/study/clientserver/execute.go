package clientserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
)

// Execute runs the client of a case once against a configuration, see
// experiment.Bench.
func (s *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	one := s.Instances[e.Configuration.Name]
	m := one.Machines
	ctx, done := machine.WhileAlive(ctx, m...)
	defer done()
	defer one.Served(ctx, e.Case)
	if err := one.Serving(ctx, e.Case); err != nil {
		return experiment.Outcome{}, err
	}
	var before, after cpuTimes
	read := func() (err error) {
		before, err = timesBefore(ctx, one, e.Case)
		return err
	}
	if len(e.Case.Workload().Programs()) > 0 {
		// The first reading starts shells, which takes seconds in an emulated guest. Kafka's client
		// loads the broker before it is told to begin, and could have ended by then.
		if err := read(); err != nil {
			return experiment.Outcome{}, m.Explain(err)
		}
	}
	c, err := s.turn(ctx, e, read)
	if err != nil {
		return experiment.Outcome{}, m.Explain(err)
	}
	defer c.Kill()
	out, err := c.Output(ctx)
	if err != nil {
		return experiment.Outcome{}, one.Explain(e.Case, err)
	}
	if after.host, err = machine.HostTimes(); err != nil {
		return experiment.Outcome{}, err
	}
	if after.guests, err = m.GuestTimes(ctx); err != nil {
		return experiment.Outcome{}, m.Explain(err)
	}
	if after.processes, err = one.ProcessTimes(ctx, e.Case); err != nil {
		return experiment.Outcome{}, m.Explain(err)
	}
	spent, err := perOperation(before, after, out.Operations)
	return experiment.Outcome{Values: append(out.Values, spent...), Boot: m.Servers().Boot}, err
}

// timesBefore reads the CPU times before a load. Commands in the guest read its times. They must not
// run while the client loads.
func timesBefore(ctx context.Context, s *server.Service, c experiment.Case) (t cpuTimes, err error) {
	if t.processes, err = s.ProcessTimes(ctx, c); err != nil {
		return t, err
	}
	if t.guests, err = s.Machines.GuestTimes(ctx); err == nil {
		t.host, err = machine.HostTimes()
	}
	return t, err
}

// cpuTimes are the CPU times of the host and of the guests of a configuration since
// their boot. A configuration on the host itself has no guest.
type cpuTimes struct {
	host      cputime.Times
	guests    []cputime.Times
	processes *server.ProcessTimes // of an application; nil: none
}

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
	values := slices.DeleteFunc(spent, func(v workload.Value) bool { return len(after.guests) == 0 && strings.HasPrefix(v.Metric, "guest_") })
	if before.processes == nil || after.processes == nil {
		return values, nil
	}
	processes, err := after.processes.PerOperation(*before.processes, operations)
	return append(values, processes...), err
}

func sum(a, b cputime.Breakdown) cputime.Breakdown {
	return cputime.Breakdown{Usr: a.Usr + b.Usr, Sys: a.Sys + b.Sys, Soft: a.Soft + b.Soft, Guest: a.Guest + b.Guest}
}
