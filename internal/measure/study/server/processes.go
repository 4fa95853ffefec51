package server

import (
	"context"
	"fmt"
	"strings"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/workload"
)

// ProcessTimes are the CPU times of an application's processes since their start: of the VMs
// as this host sees them, and of the server inside (Bacou et al. 2019, Figures 6 and 7).
type ProcessTimes struct {
	vms    *cputime.Times // nil: none
	server cputime.Times
}

// ProcessTimes reads the CPU times for a case. It returns nil if its workload is no
// application.
func (s *Service) ProcessTimes(ctx context.Context, c experiment.Case) (*ProcessTimes, error) {
	one := s.serverOf(c)
	if one == nil || len(c.Workload().Programs()) == 0 {
		return nil, nil
	}
	var t ProcessTimes
	var err error
	if t.server, err = s.serverTimes(ctx, one); err != nil {
		return nil, fmt.Errorf("server %s: %w", one.Command, err)
	}
	t.vms, err = s.Machines.VMTimes()
	return &t, err
}

// serverTimes reads the CPU time of a server, in its place.
func (s *Service) serverTimes(ctx context.Context, one *Server) (_ cputime.Times, err error) {
	if s.meter == nil {
		if s.meter, err = machine.StartMeter(context.WithoutCancel(ctx), s.Place, machine.ProcessMeter); err != nil {
			return cputime.Times{}, err
		}
	}
	line, err := s.meter.Read(ctx, one.process)
	if err != nil {
		s.meter.Stop()
		s.meter = nil
		return cputime.Times{}, err
	}
	return cputime.ParseProcess(line)
}

// PerOperation divides the CPU time since before by the operations done.
func (t ProcessTimes) PerOperation(before ProcessTimes, operations float64) ([]workload.Value, error) {
	server, err := t.server.Sub(before.server)
	if err != nil {
		return nil, fmt.Errorf("server's CPU time: %w", err)
	}
	var vms cputime.Times
	if t.vms != nil && before.vms != nil {
		if vms, err = t.vms.Sub(*before.vms); err != nil {
			return nil, fmt.Errorf("VM's CPU time: %w", err)
		}
	}
	spent, err := cputime.ProcessValues(vms.Breakdown(), server.Breakdown(), operations)
	var values []workload.Value
	for _, v := range spent {
		if t.vms != nil || !strings.HasPrefix(v.Metric, "vm_") {
			values = append(values, v)
		}
	}
	return values, err
}
