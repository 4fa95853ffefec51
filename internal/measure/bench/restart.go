package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/testbed/fleet"
)

// Restart boots the guests again that have died or no longer answer, with everything
// that the configurations have in them, see experiment.Restarter. It does not restart a
// host of the user: the process that locks its directory there may still live.
func (s *scripts) Restart(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(s.running)) {
		m := s.running[key]
		if m.died == nil || m.died() == nil {
			continue
		}
		if m.node == nil {
			return errors.New("it is not a guest of this run")
		}
		if err := s.remove(key, m); err != nil {
			return err
		}
		if err := s.restore(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a guest that has died from the lab.
func (b *Bench) remove(key string, m *machine) error {
	delete(b.running, key)
	b.nodes = slices.DeleteFunc(b.nodes, func(n *fleet.Node) bool { return n == m.node })
	return errors.Join(m.leave(), m.node.Kill(), b.lab.RemoveGuest(m.node.Name))
}

// restore starts what configurations had on a machine that was removed.
func (s *scripts) restore(ctx context.Context, removed *machine) error {
	for _, c := range s.spec.Configurations {
		if s.workspaces[c.Name].machine != removed {
			continue
		}
		_, err := s.bringUpMachines(ctx, c, s.needs())
		if err == nil {
			err = s.start(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}
