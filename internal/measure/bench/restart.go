package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
)

// Restart boots the guests again that have died or no longer answer, and creates domains of Xen
// again, with everything that the configurations have in them, see experiment.Restarter. It does not
// restart a host of the user: the process that locks its directory there may still live. Keys sort
// the guest with Xen before its domains, so it is up again, or gone, when they are created.
func (s *scripts) Restart(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(s.running)) {
		m := s.running[key]
		if m.died == nil || m.died() == nil {
			continue
		}
		remove := s.remove
		switch {
		case m.domain != nil:
			remove = s.destroy
		case m.node == nil:
			return errors.New("it is not a guest of this run")
		}
		if err := remove(ctx, key, m); err != nil {
			return err
		}
		if err := s.restore(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// destroy ends a domain of Xen that no longer answers. If its host was removed, so was the domain.
func (b *Bench) destroy(ctx context.Context, key string, m *machine) error {
	delete(b.running, key)
	for _, h := range b.xens {
		if h.has(m.domain) {
			return errors.Join(m.leave(), m.domain.Destroy(ctx))
		}
	}
	return m.leave()
}

// remove removes a guest that has died from the lab.
func (b *Bench) remove(_ context.Context, key string, m *machine) error {
	delete(b.running, key)
	delete(b.xens, key) // if it was a Xen host
	b.nodes = slices.DeleteFunc(b.nodes, func(n *fleet.Node) bool { return n == m.node })
	return errors.Join(m.leave(), m.node.Kill(), b.lab.RemoveGuest(m.node.Name))
}

// restore brings up a machine again that was removed, and starts the configurations that ran on it.
// It does not start those that have not been started yet: bringUp will.
func (s *scripts) restore(ctx context.Context, key string) error {
	for _, c := range s.spec.Configurations {
		keys, err := machineKeys(s.spec, c)
		if err == nil && !slices.Contains(keys, key) {
			continue
		}
		if err == nil {
			_, err = s.bringUpMachines(ctx, c, s.needs())
		}
		if err == nil && s.workspaces[c.Name] != nil {
			err = s.start(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// startLiving starts a configuration, and stops as soon as a machine is gone. If that machine is a domain
// of Xen and the study is a Restarter, it creates the domain again and tries once more, up to creations times.
func (b *Bench) startLiving(ctx context.Context, s study, c stack.Configuration) error {
	for n := 1; ; n++ {
		alive, done := whileAlive(ctx, slices.Collect(maps.Values(b.running))...)
		err := s.start(alive, c)
		done()
		r, ok := s.(experiment.Restarter)
		if err == nil || !ok || !b.lostDomain() || n == creations {
			return err
		}
		b.options.Progress.Phase(err.Error())
		if err := r.Restart(ctx); err != nil {
			return err
		}
	}
}

// lostDomain reports whether a domain of Xen is gone or no longer answers.
func (b *Bench) lostDomain() bool {
	for _, m := range b.running {
		if m.domain != nil && m.died() != nil {
			return true
		}
	}
	return false
}
