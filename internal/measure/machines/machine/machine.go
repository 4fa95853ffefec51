// Package machine is an operating system under test that is up: how commands run in it, how containers start
// in it, how it is described, and how its CPU time is read. How it comes up does not belong here.
package machine

import (
	"context"
	"fmt"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// Machine is an operating system under test that is up: this host, a guest, a guest
// in a guest, or a host that the user has named.
type Machine struct {
	Facts   result.Machine
	Boot    string // ID of its kernel's boot
	Place   place.Place
	Address string          // where the lab's clients reach it; empty: nowhere
	Listen  string          // address that servers on its network bind to; empty: all
	Work    string          // directory on its own disk for files of the cases
	Gone    <-chan struct{} // closed when it has ended; nil: it does not end
	Died    func() error    // why it has ended, nil while it lives; may be nil
	Close   func() error    // undoes what was done on it; nil: nothing to undo
	engine  bool            // its container engine has been started
	Runs    stack.Layer     // its container engine; empty: containerd
	meter   *Meter          // of a guest's CPU time; nil: not started yet
	Node    *fleet.Node     // the guest on this host that it is, or is in; nil: none
	Domain  *xen.Domain     // the domain of Xen that it is; nil: none

	// StartContainer starts a container with these options of the engine's run command.
	StartContainer func(ctx context.Context, name string, options ...string) (place.Place, error)
	StartEngine    func(ctx context.Context) error
}

// WhileAlive returns a context that ends with ctx, or with one of the machines. The
// end of the machine is then its cause.
func WhileAlive(ctx context.Context, all ...*Machine) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, m := range all {
		if m.Gone == nil {
			continue
		}
		go func() {
			select {
			case <-m.Gone:
				cancel(m.Died())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// Explain adds to err that the machine is gone, if it is.
func (m *Machine) Explain(err error) error {
	if m.Died == nil || err == nil {
		return err
	}
	if died := m.Died(); died != nil {
		return fmt.Errorf("%w: %w", experiment.ErrFatal, died)
	}
	return err
}

// List are those of one configuration, usually one: first that of the clients, if
// they run in a machine, last that of the servers.
type List []*Machine

// Servers is the machine that the servers run in.
func (m List) Servers() *Machine { return m[len(m)-1] }

// Explain adds to err that one of the machines is gone, if it is.
func (m List) Explain(err error) error {
	for _, one := range m {
		err = one.Explain(err)
	}
	return err
}

// Start starts the container engine, unless it runs.
func (m *Machine) Start(ctx context.Context) error {
	if m.engine {
		return nil
	}
	if err := m.StartEngine(ctx); err != nil {
		return m.Explain(fmt.Errorf("start the container engine: %w", err))
	}
	m.engine = true
	return nil
}

// Leave undoes what was done on the machine.
func (m *Machine) Leave() error {
	if m.meter != nil {
		m.meter.Stop()
	}
	if m.Close == nil {
		return nil
	}
	return m.Close()
}

// Loopback is the address at which containers reach each other on a shared loopback.
const Loopback = "127.0.0.1"
