package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// bootMachines boots the guests of all configurations at the same time, and then
// brings all machines up.
func (b *Bench) bootMachines(ctx context.Context, n needs) error {
	for _, c := range b.spec.Configurations {
		keys, err := machineKeys(b.spec, c)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if c.Level() == 0 || b.booting[key] != nil {
				continue
			}
			if b.booting[key], err = b.launch(ctx, c, n); err != nil {
				return fmt.Errorf("configuration %s: %w", c.Name, err)
			}
		}
	}
	if n.daemon && len(b.nodes) > 0 {
		if err := b.fleet.StartDaemon(ctx, filepath.Join(b.options.Binaries, "unnest")); err != nil {
			return err
		}
	}
	for _, c := range b.spec.Configurations {
		if _, err := b.bringUpMachines(ctx, c, n); err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// machineKeys names the machines of a configuration. Configurations with the same key
// share the machine. A pod on two machines has its servers in one of its own.
func machineKeys(spec *experiment.Spec, c stack.Configuration) ([]string, error) {
	key, err := machineKey(spec, c)
	if err != nil {
		return nil, err
	}
	if c.Split() {
		return []string{key, key + ", the pod's second"}, nil
	}
	return []string{key}, nil
}

func machineKey(spec *experiment.Spec, c stack.Configuration) (string, error) {
	if engine, _ := c.Stack.Engine(); c.Stack.Remote() && engine == stack.Docker {
		return c.Host + ", by Docker", nil // a machine has one engine
	}
	if c.Stack.Remote() {
		return c.Host, nil
	}
	sizes, err := spec.Machines(c)
	if err != nil {
		return "", err
	}
	if c.Level() == 0 {
		return "host", nil
	}
	return fmt.Sprintf("%s %v", c.Architecture(), sizes[1:]), nil
}

// machines returns the machines of a configuration, which are up.
func (b *Bench) machines(c stack.Configuration) (all machines) {
	keys, _ := machineKeys(b.spec, c) // checked when they were brought up
	for _, key := range keys {
		all = append(all, b.running[key])
	}
	return all
}

// bringUpMachines returns the machines of a configuration and brings up those that
// are not up yet.
func (b *Bench) bringUpMachines(ctx context.Context, c stack.Configuration, n needs) (all machines, err error) {
	keys, err := machineKeys(b.spec, c)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		m := b.running[key]
		if m == nil {
			if m, err = b.bringUpMachine(ctx, key, c, n); err != nil {
				return nil, err
			}
		}
		all = append(all, m)
	}
	return all, nil
}

func (b *Bench) bringUpMachine(ctx context.Context, key string, c stack.Configuration, n needs) (m *machine, err error) {
	name := "host"
	switch {
	case c.Stack.Remote():
		name = "ssh"
		m, err = b.remote(ctx, c)
	case c.Level() == 0:
		if b.host, err = newHost(ctx, b.lab, b.images.builder, b.images.recipe); err == nil {
			m = b.host.machine()
		}
	default:
		node := b.booting[key]
		if node == nil {
			if node, err = b.launch(ctx, c, n); err != nil {
				return nil, err
			}
		}
		delete(b.booting, key)
		name = node.Name
		m, err = b.guest(ctx, c, node)
	}
	if err != nil {
		return nil, err
	}
	b.running[key] = m
	if m.facts, m.boot, err = describeMachine(ctx, m.place, name); err != nil {
		return nil, m.explain(err)
	}
	if (c.Level() > 0 || c.Stack.Remote()) && !slices.Contains(b.facts.Guests, m.facts) { // this host is in the run anyway
		b.facts.Guests = append(b.facts.Guests, m.facts)
	}
	return m, nil
}

// launch starts a guest for a configuration. If its level is 2, it is the outer guest.
func (b *Bench) launch(ctx context.Context, c stack.Configuration, n needs) (*fleet.Node, error) {
	sizes, err := b.spec.Machines(c)
	if err != nil {
		return nil, err
	}
	b.booted++
	o := fleet.Options{
		Name: nodeName(b.booted), Image: b.images.inner, Accel: b.options.Accel,
		VCPUs: sizes[1].VCPUs, Memory: sizes[1].Memory, Slots: n.slots, Pool: n.pool, Nesting: b.nests,
	}
	if image, ok := b.images.foreign[c.Architecture()]; ok {
		choice, err := image.Arch.ChooseAccel(guest.AccelAuto)
		if err != nil {
			return nil, err
		}
		o.Image, o.Accel, o.Nesting = image, choice.Accel, false
		b.facts.Notes = append(b.facts.Notes, fmt.Sprintf(
			"The guest of %s has another architecture, %s, and is emulated (%s): its figures show the speed of QEMU, not of such a machine.", c.Name, c.Architecture(), choice.Accel))
	}
	if c.Level() > 1 {
		o.Image, o.Nested = b.images.outer, &b.images.inner
	}
	node, err := b.fleet.Launch(ctx, o)
	if err == nil {
		b.nodes = append(b.nodes, node)
	}
	return node, err
}

// nodeName is the name of guest n, from 1.
func nodeName(n int) string { return "node" + strconv.Itoa(n) }

// guest logs in to the guest of a configuration, as soon as it is ready. Of a
// configuration of level 2, it boots the inner guest first.
func (b *Bench) guest(ctx context.Context, c stack.Configuration, node *fleet.Node) (*machine, error) {
	if c.Level() == 1 {
		return newGuest(ctx, b.fleet, node, node.Err, node)
	}
	if err := b.prepareOuter(ctx, node); err != nil {
		return nil, err
	}
	size, err := b.spec.Resources(c)
	if err != nil {
		return nil, err
	}
	inner, err := b.fleet.LaunchNested(ctx, node, fleet.Options{Name: node.Name + "-l2", VCPUs: size.VCPUs, Memory: size.Memory})
	if err != nil {
		return nil, err
	}
	b.facts.Notes = append(b.facts.Notes, fmt.Sprintf("The guest of %s runs on %s in its own hypervisor: %s.", c.Name, inner.Choice.Accel, inner.Choice.Reason))
	b.facts.Notes = append(b.facts.Notes, fmt.Sprintf("The guest of %s runs on %s in its own hypervisor: %s.", c.Name, inner.Choice.Accel, inner.Choice.Reason))
	return newGuest(ctx, b.fleet, inner.Node, inner.Err, node)
}

// prepareOuter lets a guest promise another guest as much memory as it has itself.
// Its kernel refuses that unless overcommit is on.
func (b *Bench) prepareOuter(ctx context.Context, outer *fleet.Node) error {
	in, _, err := b.fleet.Login(ctx, outer)
	if err != nil {
		return err
	}
	return errors.Join(place.Run(ctx, in, "sysctl", "-qw", "vm.overcommit_memory=1"), in.Close())
}

// newGuest logs in to a guest, as soon as it is ready. died says why it is gone, and
// outer is the guest on this host: n itself, or the one that n is in.
func newGuest(ctx context.Context, f *fleet.Fleet, n *fleet.Node, died func() error, outer *fleet.Node) (*machine, error) {
	in, _, err := f.Login(ctx, n)
	if err != nil {
		return nil, err
	}
	inside := place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()}
	return &machine{
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
		close:       func() error { _ = in.Close(); return nil }, // the guest is killed anyway
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

// remote logs in to the host of a configuration. Its containers have the user space
// of our guests.
func (b *Bench) remote(ctx context.Context, c stack.Configuration) (*machine, error) {
	run := b.lab.Name
	layer, _ := c.Stack.Engine()
	if layer == stack.Docker {
		run += ".docker" // the run may use the host with another engine, too
	}
	r, m, err := newRemote(ctx, c, run)
	if err != nil {
		return nil, err
	}
	r.step, m.container = b.images.builder.Progress, r.container
	m.startEngine = func(ctx context.Context) error {
		note, err := r.startEngine(ctx, enginesOf(layer), m.facts.Arch, b.images.archive)
		if err == nil && !slices.Contains(b.facts.Notes, note) { // two layers can lead to the same engine
			b.facts.Notes = append(b.facts.Notes, note)
		}
		return err
	}
	return m, nil
}

// startEngines starts the container engine in each machine that needs it.
func (b *Bench) startEngines(ctx context.Context) error {
	for _, c := range b.spec.Configurations {
		if _, contained := c.Stack.Engine(); !contained {
			continue
		}
		for _, m := range b.machines(c) {
			if err := m.start(ctx); err != nil {
				return fmt.Errorf("configuration %s: %w", c.Name, err)
			}
		}
	}
	return nil
}
