package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// system is a machine that configurations run on, brought up: this host, a guest, a
// guest in a guest, or a host that the user has named.
type system struct {
	facts   result.Machine
	boot    string
	place   place.Place
	address string          // where the lab's clients find it; empty: nowhere
	listen  string          // address that servers on its network answer from; empty: any does
	work    string          // directory on its own disk for what the cases write
	gone    <-chan struct{} // closed when it has ended; nil: it does not end
	died    func() error    // why it has ended; returns nil while it lives
	close   func() error    // undoes what was done on it; nil: nothing to undo
	engine  bool            // its container engine has been started
	meter   *meter          // of its CPU time, when it is a guest; nil: to be started
	node    *fleet.Node     // the guest on this host that it is, or is in; nil: none

	// container starts a container with these options of the engine's run.
	container   func(ctx context.Context, name string, options ...string) (place.Place, error)
	startEngine func(ctx context.Context) error
}

// whileAlive returns a context that ends with ctx, or with one of the machines,
// whose end is then its cause.
func whileAlive(ctx context.Context, systems ...*system) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, s := range systems {
		if s.gone == nil {
			continue
		}
		go func() {
			select {
			case <-s.gone:
				cancel(s.died())
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// explain adds that the machine is gone to an error that follows from it.
func (s *system) explain(err error) error {
	if s.died == nil || err == nil {
		return err
	}
	if died := s.died(); died != nil {
		return fmt.Errorf("%w: %w", experiment.ErrFatal, died)
	}
	return err
}

// machines are those that a configuration stands on, mostly one: first that of the
// clients, if they run beside the servers, last that of the servers.
type machines []*system

// servers is the machine that the servers run in.
func (m machines) servers() *system { return m[len(m)-1] }

// explain adds that one of the machines is gone to an error that follows from it.
func (m machines) explain(err error) error {
	for _, s := range m {
		err = s.explain(err)
	}
	return err
}

// describe notes the machine as it is.
func (s *system) describe(ctx context.Context, name string) (err error) {
	s.facts, s.boot, err = machine(ctx, s.place, name)
	return s.explain(err)
}

// contain starts the container of a configuration, with network options of the
// engine's run. What it keeps on a volume is in dir.
func (s *system) contain(ctx context.Context, c stack.Configuration, dir string, options []string) (place.Place, error) {
	if c.Storage == stack.Volume {
		if err := place.Run(ctx, s.place, "mkdir", "-p", dir); err != nil {
			return nil, s.explain(err)
		}
		options = append(slices.Clone(options), "--volume", dir+":"+dir)
	}
	p, err := s.container(ctx, containerName(c), options...)
	return p, s.explain(err)
}

// notInNames is what container engines refuse in a name, or twice in a row.
var notInNames = regexp.MustCompile("[^a-z0-9]+")

// containerName is what the engine calls the container of a configuration. It is
// also the name of a directory.
func containerName(c stack.Configuration) string {
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(c.Name), "-"), "-")
}

// start starts the container engine, unless it runs.
func (s *system) start(ctx context.Context) error {
	if s.engine {
		return nil
	}
	if err := s.startEngine(ctx); err != nil {
		return s.explain(fmt.Errorf("start the container engine: %w", err))
	}
	s.engine = true
	return nil
}

// leave undoes what was done on the machine.
func (s *system) leave() error {
	if s.meter != nil {
		s.meter.stop()
	}
	if s.close == nil {
		return nil
	}
	return s.close()
}

// machineKeys names the machines of a configuration: configurations with the same
// share them. A pod on two machines has its servers in one that other configurations
// of that size have no part of.
func machineKeys(spec *experiment.Spec, c stack.Configuration) ([]string, error) {
	key, err := systemKey(spec, c)
	if err != nil {
		return nil, err
	}
	if c.Split() {
		return []string{key, key + ", the pod's second"}, nil
	}
	return []string{key}, nil
}

// systemKey names what configurations share a system.
func systemKey(spec *experiment.Spec, c stack.Configuration) (string, error) {
	if engine, _ := c.Stack.Engine(); c.Stack.Remote() && engine == stack.Docker {
		return c.Host + ", by Docker", nil // a system has one engine
	}
	if c.Stack.Remote() {
		return c.Host, nil
	}
	sizes, err := spec.Machines(c)
	if err != nil {
		return "", err
	}
	if c.Level() == 0 {
		return "metal", nil
	}
	return fmt.Sprintf("%s %v", c.Architecture(), sizes[1:]), nil
}

// system returns the machine of a configuration, brought up when it is the first
// on it.
func (b *Suites) system(ctx context.Context, c stack.Configuration) (*system, error) {
	key, err := systemKey(b.spec, c)
	if err != nil {
		return nil, err
	}
	if s := b.systems[key]; s != nil {
		return s, nil
	}
	var s *system
	switch {
	case c.Stack.Remote():
		s, err = b.remote(ctx, c)
	case c.Level() == 0:
		if b.metal, err = newMetal(ctx, b.lab, b.builder, b.recipe); err == nil {
			s = b.metal.system()
		}
	default:
		s, err = b.guest(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	b.systems[key] = s
	if err := s.describe(ctx, c.Stack[:max(1, c.Level())].String()); err != nil {
		return nil, err
	}
	if (c.Level() > 0 || c.Stack.Remote()) && !slices.Contains(b.facts.Guests, s.facts) { // this host is described anyway
		b.facts.Guests = append(b.facts.Guests, s.facts)
	}
	return s, nil
}

// remote logs in to the host of a configuration. Its containers have the user space
// of our guests.
func (b *Suites) remote(ctx context.Context, c stack.Configuration) (*system, error) {
	run := b.lab.Name
	layer, _ := c.Stack.Engine()
	if layer == stack.Docker {
		run += ".docker" // the host may have another system of this run
	}
	r, s, err := newRemote(ctx, c, run)
	if err != nil {
		return nil, err
	}
	r.say, s.container = b.builder.Progress, r.container
	s.startEngine = func(ctx context.Context) error {
		note, err := r.startEngine(ctx, enginesOf(layer), s.facts.Arch, b.archive)
		if err == nil && !slices.Contains(b.facts.Notes, note) { // two layers may have found the same engine
			b.facts.Notes = append(b.facts.Notes, note)
		}
		return err
	}
	return s, nil
}

// guest boots the guests that a configuration's cases run in the innermost of.
func (b *Suites) guest(ctx context.Context, c stack.Configuration) (*system, error) {
	sizes, err := b.spec.Machines(c)
	if err != nil {
		return nil, err
	}
	b.booted++
	o := fleet.Options{
		Name: nodeName(b.booted), Image: b.image, Accel: b.accel,
		VCPUs: sizes[1].VCPUs, Memory: sizes[1].Memory, Nesting: b.nests,
	}
	if image, ok := b.foreign[c.Architecture()]; ok {
		choice, err := image.Arch.ChooseAccel(guest.AccelAuto)
		if err != nil {
			return nil, err
		}
		o.Image, o.Accel, o.Nesting = image, choice.Accel, false
		b.facts.Notes = append(b.facts.Notes, fmt.Sprintf(
			"The guest of %s is of another architecture, %s, and emulated (%s): what it takes is QEMU's time, not such a machine's.", c.Name, c.Architecture(), choice.Accel))
	}
	if c.Level() == 1 {
		n, err := b.fleet.Launch(ctx, o)
		if err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, n)
		return newGuest(ctx, b.fleet, n, n.Err, n)
	}
	if c.Level() > 2 {
		return nil, fmt.Errorf("stack %s: guests nest two levels deep here, not %d", c.Stack, c.Level())
	}
	o.Image, o.Nested = b.outer, &b.image
	outer, err := b.fleet.Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	b.nodes = append(b.nodes, outer)
	if err := b.readyOuter(ctx, outer); err != nil {
		return nil, err
	}
	inner, err := b.fleet.LaunchNested(ctx, outer, fleet.Options{Name: o.Name + "-l2", VCPUs: sizes[2].VCPUs, Memory: sizes[2].Memory})
	if err != nil {
		return nil, err
	}
	b.facts.Notes = append(b.facts.Notes, fmt.Sprintf("The guest of %s runs on %s in its own hypervisor: %s.", c.Name, inner.Choice.Accel, inner.Choice.Reason))
	return newGuest(ctx, b.fleet, inner.Node, inner.Err, outer)
}

// readyOuter waits until a guest can run another, which may be promised as much
// memory as it has itself: a kernel refuses that unless it is told to overcommit.
func (b *Suites) readyOuter(ctx context.Context, outer *fleet.Node) error {
	in, _, err := b.fleet.Login(ctx, outer)
	if err != nil {
		return err
	}
	return errors.Join(place.Run(ctx, in, "sysctl", "-qw", "vm.overcommit_memory=1"), in.Close())
}

// newGuest logs in to a guest, as soon as it is ready. died says why it is gone, and
// outer is the one on this host: n itself, or that which n is in.
func newGuest(ctx context.Context, f *fleet.Fleet, n *fleet.Node, died func() error, outer *fleet.Node) (*system, error) {
	in, _, err := f.Login(ctx, n)
	if err != nil {
		return nil, err
	}
	inside := place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()}
	return &system{
		place: inside, address: n.TenantIP, work: "/var/lib/unnest/work", gone: n.Done(), node: outer,
		died: func() error {
			if err := died(); err != nil {
				return err
			}
			if in.Lost() {
				return fmt.Errorf("guest %s no longer answers", n.Name)
			}
			return nil
		},
		close:       func() error { _ = in.Close(); return nil }, // it is killed anyway
		startEngine: func(ctx context.Context) error { return place.Run(ctx, in, "/etc/unnest/engine") },
		container: func(ctx context.Context, name string, options ...string) (place.Place, error) {
			args := append([]string{engine, "run", "--detach", "--name", name}, options...)
			if err := place.Run(ctx, in, append(args, guest.ContainerImage)...); err != nil {
				return nil, err
			}
			return place.Container{Place: inside, Engine: engine, Name: name}, nil
		},
	}, nil
}
