package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/fleet"
)

// RestartDead boots the guests again that have died or no longer answer, and creates domains of Xen again. It
// then calls start for each configuration that ran on them. It does not restart a host of the user: the
// process that locks its directory there may still live. Keys sort the guest with Xen before its domains,
// so it is up again, or gone, when they are created.
func (b *Set) RestartDead(ctx context.Context, n Needs, start func(context.Context, stack.Configuration) error) error {
	for _, key := range slices.Sorted(maps.Keys(b.running)) {
		m := b.running[key]
		if m.Died == nil || m.Died() == nil {
			continue
		}
		if err := b.end(ctx, key, m); err != nil {
			return err
		}
		if err := b.restore(ctx, key, n, start); err != nil {
			return err
		}
	}
	return nil
}

// end removes a machine that is gone or no longer answers.
func (b *Set) end(ctx context.Context, key string, m *machine.Machine) error {
	switch {
	case m.Domain != nil:
		return b.Destroy(ctx, key, m)
	case m.Node == nil:
		return errors.New("it is not a guest of this run")
	}
	return b.Remove(key, m)
}

// Destroy ends a domain of Xen that no longer answers. If its host was removed, so was the domain.
func (b *Set) Destroy(ctx context.Context, key string, m *machine.Machine) error {
	delete(b.running, key)
	for _, h := range b.xens {
		if slices.Contains(h.domains, m.Domain) {
			return errors.Join(m.Leave(), m.Domain.Destroy(ctx))
		}
	}
	return m.Leave()
}

// Remove removes a guest that has died from the lab.
func (b *Set) Remove(key string, m *machine.Machine) error {
	delete(b.running, key)
	delete(b.xens, key) // if it was a Xen host
	b.nodes = slices.DeleteFunc(b.nodes, func(n *fleet.Node) bool { return n == m.Node })
	return errors.Join(m.Leave(), m.Node.Kill(), b.Lab.RemoveGuest(m.Node.Name))
}

// restore brings up a machine again that was removed, and calls start for the configurations that ran on it.
func (b *Set) restore(ctx context.Context, key string, n Needs, start func(context.Context, stack.Configuration) error) error {
	for _, c := range b.Spec.Configurations {
		keys, err := machineKeys(b.Spec, c)
		if err == nil && !slices.Contains(keys, key) {
			continue
		}
		if err == nil {
			_, err = b.bringUpMachines(ctx, c, n)
		}
		if err == nil {
			err = start(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// LostDomain reports whether a domain of Xen is gone or no longer answers.
func (b *Set) LostDomain() bool {
	for _, m := range b.running {
		if m.Domain != nil && m.Died() != nil {
			return true
		}
	}
	return false
}
