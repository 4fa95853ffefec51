package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/testbed/fleet"
)

// Restart boots the guests anew that have died or no longer answer, with all that the
// configurations have in them, see experiment.Restarter. A host of the user's own is not
// brought back: what holds its directory there may still do.
func (b *Suites) Restart(ctx context.Context) error {
	for _, key := range slices.Sorted(maps.Keys(b.systems)) {
		s := b.systems[key]
		if s.died == nil || s.died() == nil {
			continue
		}
		if s.node == nil {
			return errors.New("it is no guest of this run")
		}
		delete(b.systems, key)
		err := b.bury(s)
		if err == nil {
			err = b.startAgain(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bury takes a guest away that has died. Its place in the lab is free then.
func (b *Suites) bury(s *system) error {
	b.nodes = slices.DeleteFunc(b.nodes, func(n *fleet.Node) bool { return n == s.node })
	return errors.Join(s.leave(), s.node.Kill(), b.fleet.Remove(s.node.Name))
}

// startAgain brings up elsewhere what configurations had in a system.
func (b *Suites) startAgain(ctx context.Context, had *system) error {
	for _, c := range b.spec.Configurations {
		if b.sites[c.Name].system != had {
			continue
		}
		err := b.startSite(ctx, c)
		if err == nil {
			err = b.prepare(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}
