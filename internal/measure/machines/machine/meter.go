package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/testbed/place"
)

// Meter reads CPU times through a shell that keeps running. A reading starts no process in its
// place, so it takes very little time and CPU.
type Meter struct {
	stdin io.Writer   // of the shell
	lines chan string // of its output; closed when the shell has ended
	Stop  func()
}

// The scripts of meters. The first line of /proc/stat is the sum over all processors. A process
// is named by its ID.
const (
	machineMeter = `while read -r _; do read -r line <` + statFile + `; echo "$line"; done`
	ProcessMeter = `while read -r id; do line=; read -r line <"/proc/$id/stat"; echo "$line"; done`
)

var errMeterEnded = errors.New("read CPU time: the shell that reads it has ended")

// StartMeter starts a shell with a script in p. It runs until stop, or the end of ctx.
func StartMeter(ctx context.Context, p place.Place, script string) (*Meter, error) {
	ctx, stop := place.UntilDone(ctx)
	in, stdin := io.Pipe()
	answers, out := io.Pipe()
	process, err := p.Start(ctx, place.Command{Args: []string{"sh", "-c", script}, Stdin: in, Stdout: out})
	if err != nil {
		stop()
		return nil, fmt.Errorf("start reading CPU time: %w", err)
	}
	closePipes := func() { _, _ = in.Close(), out.Close() }
	context.AfterFunc(ctx, closePipes)
	go func() {
		_ = process.Wait()
		closePipes()
	}()
	m := &Meter{stdin: stdin, lines: make(chan string), Stop: stop}
	go func() {
		defer close(m.lines)
		for lines := bufio.NewScanner(answers); lines.Scan(); {
			select {
			case m.lines <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	return m, nil
}

// Read returns a line with CPU times, of the process if the script wants one. Do not use a
// meter again that has failed: a late answer would be taken for that of the next reading.
func (m *Meter) Read(ctx context.Context, process string) ([]byte, error) {
	go func() { _, _ = io.WriteString(m.stdin, process+"\n") }() // after a failure there is no answer
	select {
	case line, ok := <-m.lines:
		if !ok {
			return nil, errMeterEnded
		}
		return []byte(line + "\n"), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("read CPU time: %w", context.Cause(ctx))
	}
}

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
