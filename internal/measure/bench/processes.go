package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"unnest/internal/measure/cputime"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/workload"
)

// processTimes are the CPU times of an application's processes since their start: of the VMs
// as this host sees them, and of the server inside (Bacou et al. 2019, Figures 6 and 7).
type processTimes struct {
	vms    *cputime.Times // nil: none
	server cputime.Times
}

// processTimes reads the CPU times for a case. It returns nil if its workload is no
// application.
func (s *service) processTimes(ctx context.Context, c experiment.Case) (*processTimes, error) {
	one := s.serverOf(c)
	if one == nil || len(lookup(c).Programs()) == 0 {
		return nil, nil
	}
	var t processTimes
	var err error
	if t.server, err = s.serverTimes(ctx, one); err != nil {
		return nil, fmt.Errorf("server %s: %w", one.command, err)
	}
	t.vms, err = s.machines.vmTimes()
	return &t, err
}

// serverTimes reads the CPU time of a server, in its place.
func (s *service) serverTimes(ctx context.Context, one *server) (_ cputime.Times, err error) {
	if s.meter == nil {
		if s.meter, err = startMeter(context.WithoutCancel(ctx), s.place, processMeter); err != nil {
			return cputime.Times{}, err
		}
	}
	line, err := s.meter.read(ctx, one.process)
	if err != nil {
		s.meter.stop()
		s.meter = nil
		return cputime.Times{}, err
	}
	return cputime.ParseProcess(line)
}

// vmTimes reads the CPU time of the VMs of a configuration on this host. It returns nil if
// there is none.
func (m machines) vmTimes() (*cputime.Times, error) {
	var all *cputime.Times
	for _, one := range m {
		if one.node == nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(one.node.PID), "stat"))
		if err != nil {
			return nil, fmt.Errorf("read the CPU time of guest %s: %w", one.node.Name, err)
		}
		t, err := cputime.ParseProcess(line)
		if err != nil {
			return nil, fmt.Errorf("guest %s: %w", one.node.Name, err)
		}
		if all != nil {
			t = t.Add(*all)
		}
		all = &t
	}
	return all, nil
}

// perOperation divides the CPU time since before by the operations done.
func (t processTimes) perOperation(before processTimes, operations float64) ([]workload.Value, error) {
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
