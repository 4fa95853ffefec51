package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/fleet"
)

// Revive boots the guests anew that have died or no longer answer, with all that the
// configurations have in them, see experiment.Reviver. A host of the user's own is not
// brought back: what holds its directory there may still do.
func (b *Suites) Revive(ctx context.Context) error {
	for _, c := range b.spec.Configurations {
		s := b.sites[c.Name].system
		if s.died == nil || s.died() == nil {
			continue
		}
		err := b.bury(s)
		if err == nil {
			err = b.startSite(ctx, c)
		}
		if err == nil {
			err = b.prepare(ctx, c)
		}
		if err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// bury takes a guest away that has died, unless that was done. Its place in the lab is
// free then.
func (b *Suites) bury(s *system) error {
	if len(s.nodes) == 0 {
		return errors.New("it is no guest of this run")
	}
	known := len(b.systems)
	maps.DeleteFunc(b.systems, func(_ string, other *system) bool { return other == s })
	if len(b.systems) == known {
		return nil
	}
	err := s.leave()
	for _, n := range s.nodes {
		b.nodes = slices.DeleteFunc(b.nodes, func(other *fleet.Node) bool { return other == n })
		err = errors.Join(err, n.Kill(), b.fleet.Remove(n.Name))
	}
	return err
}
