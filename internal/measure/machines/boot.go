package machines

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

// Boot boots the guests of all configurations at the same time, and then
// brings all machines up.
func (b *Set) Boot(ctx context.Context, n Needs) error {
	for _, c := range b.Spec.Configurations {
		keys, err := machineKeys(b.Spec, c)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if c.Level() == 0 || c.Stack.Xen() || b.booting[key] != nil {
				continue
			}
			if b.booting[key], err = b.launch(ctx, c, n); err != nil {
				return fmt.Errorf("configuration %s: %w", c.Name, err)
			}
		}
	}
	if n.Daemon && len(b.nodes) > 0 {
		if err := b.Fleet.StartDaemon(ctx, filepath.Join(b.Options.Binaries, "unnest")); err != nil {
			return err
		}
	}
	for _, c := range b.Spec.Configurations {
		if _, err := b.bringUpMachines(ctx, c, n); err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// machineKeys names the machines of a configuration. Configurations with the same key
// share the machine; one with a start, or whose vhost-net polls, shares none. A pod on two machines has its servers in
// one of its own.
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
	if c.Stack.Xen() {
		return xenKey + c.Host + " " + c.Name, nil
	}
	sizes, err := spec.Machines(c)
	if err != nil {
		return "", err
	}
	if c.Level() == 0 {
		return "host", nil
	}
	key := fmt.Sprintf("%s %v", c.Architecture(), sizes[1:])
	if c.Release != "" {
		key += ", of " + string(c.Release)
	}
	if engine, _ := c.Stack.Engine(); engine == stack.Docker || engine == stack.Podman {
		key += ", with " + string(engine) // and its packages
	}
	if c.Start != "" || c.VHostPoll != 0 || c.Queues != 0 {
		key += ", of " + c.Name
	}
	return key, nil
}

// Of returns the machines of a configuration, which are up.
func (b *Set) Of(c stack.Configuration) (all machine.List) {
	keys, _ := machineKeys(b.Spec, c) // checked when they were brought up
	for _, key := range keys {
		all = append(all, b.running[key])
	}
	return all
}

// Own returns the machines of the first configuration that this run boots, or that is this host. It
// returns nil if the user has named all machines.
func (b *Set) Own() machine.List {
	for _, c := range b.Spec.Configurations {
		if !c.Stack.Remote() {
			return b.Of(c)
		}
	}
	return nil
}

// bringUpMachines returns the machines of a configuration and brings up those that
// are not up yet.
func (b *Set) bringUpMachines(ctx context.Context, c stack.Configuration, n Needs) (all machine.List, err error) {
	keys, err := machineKeys(b.Spec, c)
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

func (b *Set) bringUpMachine(ctx context.Context, key string, c stack.Configuration, n Needs) (m *machine.Machine, err error) {
	name := "host"
	switch {
	case c.Stack.Remote():
		name = "ssh"
		m, err = b.remote(ctx, c)
	case c.Stack.Xen():
		name = machine.ContainerName(c)
		m, err = b.xenDomain(ctx, c)
	case c.Level() == 0:
		if err = b.EnterHost(ctx); err == nil {
			m = b.Host.Machine()
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
	if m.Facts, m.Boot, err = machine.Describe(ctx, m.Place, name); err != nil {
		return nil, m.Explain(err)
	}
	if m.Node != nil {
		m.Facts.Start = result.Booted
		if c.Level() == 1 {
			m.Facts.Start = startOf(m.Node)
		}
	}
	if (c.Level() > 0 || c.Stack.Remote()) && !slices.Contains(b.facts.Guests, m.Facts) { // this host is in the run anyway
		b.facts.Guests = append(b.facts.Guests, m.Facts)
	}
	return m, nil
}

// StartEngines starts the container engine in each machine that needs it, at the same time.
func (b *Set) StartEngines(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	begun := map[*machine.Machine]bool{}
	for _, c := range b.Spec.Configurations {
		if _, contained := c.Stack.Engine(); !contained {
			continue
		}
		for _, m := range b.Of(c) {
			if begun[m] {
				continue
			}
			begun[m] = true
			group.Go(func() error {
				if err := m.Start(ctx); err != nil {
					return fmt.Errorf("configuration %s: %w", c.Name, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}
