package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"unnest.io/unnest/internal/measure/cputime"
)

const statFile = "/proc/stat"

// GuestTimes reads the CPU time of each machine that is a guest.
func (m List) GuestTimes(ctx context.Context) ([]cputime.Times, error) {
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
func (m *Machine) guestTimes(ctx context.Context) (_ *cputime.Times, err error) {
	if m.Gone == nil {
		return nil, nil
	}
	if m.meter == nil {
		if m.meter, err = StartMeter(context.WithoutCancel(ctx), m.Place, machineMeter); err != nil {
			return nil, err
		}
	}
	line, err := m.meter.Read(ctx, "")
	if err != nil {
		m.meter.Stop()
		m.meter = nil
		return nil, fmt.Errorf("guest: %w", err)
	}
	t, err := cputime.Parse(line)
	return &t, err
}

// VMTimes reads the CPU time of the VMs of a configuration on this host. It returns nil if
// there is none.
func (m List) VMTimes() (*cputime.Times, error) {
	var all *cputime.Times
	for _, one := range m {
		if one.Node == nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(one.Node.PID), "stat"))
		if err != nil {
			return nil, fmt.Errorf("read the CPU time of guest %s: %w", one.Node.Name, err)
		}
		t, err := cputime.ParseProcess(line)
		if err != nil {
			return nil, fmt.Errorf("guest %s: %w", one.Node.Name, err)
		}
		if all != nil {
			t = t.Add(*all)
		}
		all = &t
	}
	return all, nil
}

// HostTimes reads the CPU time of this host.
func HostTimes() (cputime.Times, error) {
	content, err := os.ReadFile(statFile)
	if err != nil {
		return cputime.Times{}, fmt.Errorf("read the host's CPU time: %w", err)
	}
	return cputime.Parse(content)
}
