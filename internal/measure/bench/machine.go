package bench

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/place"
	"unnest/internal/testbed/xen"
)

// machine is an operating system under test that is up: this host, a guest, a guest
// in a guest, or a host that the user has named.
type machine struct {
	facts   result.Machine
	boot    string // ID of its kernel's boot
	place   place.Place
	address string          // where the lab's clients reach it; empty: nowhere
	listen  string          // address that servers on its network bind to; empty: all
	work    string          // directory on its own disk for files of the cases
	gone    <-chan struct{} // closed when it has ended; nil: it does not end
	died    func() error    // why it has ended, nil while it lives; may be nil
	close   func() error    // undoes what was done on it; nil: nothing to undo
	engine  bool            // its container engine has been started
	meter   *meter          // of a guest's CPU time; nil: not started yet
	node    *fleet.Node     // the guest on this host that it is, or is in; nil: none
	domain  *xen.Domain     // the domain of Xen that it is; nil: none

	// container starts a container with these options of the engine's run command.
	container   func(ctx context.Context, name string, options ...string) (place.Place, error)
	startEngine func(ctx context.Context) error
}

// whileAlive returns a context that ends with ctx, or with one of the machines. The
// end of the machine is then its cause.
func whileAlive(ctx context.Context, all ...*machine) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, m := range all {
		if m.gone == nil {
			continue
		}
		go func() {
			select {
			case <-m.gone:
				cancel(m.died())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// explain adds to err that the machine is gone, if it is.
func (m *machine) explain(err error) error {
	if m.died == nil || err == nil {
		return err
	}
	if died := m.died(); died != nil {
		return fmt.Errorf("%w: %w", experiment.ErrFatal, died)
	}
	return err
}

// machines are those of one configuration, usually one: first that of the clients, if
// they run in a machine, last that of the servers.
type machines []*machine

// servers is the machine that the servers run in.
func (m machines) servers() *machine { return m[len(m)-1] }

// explain adds to err that one of the machines is gone, if it is.
func (m machines) explain(err error) error {
	for _, one := range m {
		err = one.explain(err)
	}
	return err
}

// contain starts the container of a configuration with network options of the
// engine's run command. dir holds the files that the container keeps on a volume.
func (m *machine) contain(ctx context.Context, c stack.Configuration, dir string, options []string) (place.Place, error) {
	if c.Storage == stack.Volume {
		if err := place.Run(ctx, m.place, "mkdir", "-p", dir); err != nil {
			return nil, m.explain(err)
		}
		options = append(slices.Clone(options), "--volume", dir+":"+dir)
	}
	p, err := m.container(ctx, containerName(c), options...)
	return p, m.explain(err)
}

// notInNames matches what container engines refuse in a name.
var notInNames = regexp.MustCompile("[^a-z0-9]+")

// containerName is the name of a configuration's container, and of a directory.
func containerName(c stack.Configuration) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(c.Name), "-"), "-")
}

// start starts the container engine, unless it runs.
func (m *machine) start(ctx context.Context) error {
	if m.engine {
		return nil
	}
	if err := m.startEngine(ctx); err != nil {
		return m.explain(fmt.Errorf("start the container engine: %w", err))
	}
	m.engine = true
	return nil
}

// leave undoes what was done on the machine.
func (m *machine) leave() error {
	if m.meter != nil {
		m.meter.stop()
	}
	if m.close == nil {
		return nil
	}
	return m.close()
}
