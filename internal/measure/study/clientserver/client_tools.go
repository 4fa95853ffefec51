package clientserver

import (
	"context"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/testbed/place"
)

// findClientTools records the versions of the clients' tools, where the clients run:
// on this host, unless all run in pods.
func (s *Study) findClientTools(ctx context.Context) error {
	var p place.Place = place.Local{}
	if !slices.ContainsFunc(s.Spec.Configurations, func(c stack.Configuration) bool { return c.Drive != stack.Pod }) {
		p = s.Of(s.Spec.Configurations[0])[0].Place
	}
	for _, c := range s.Spec.Cases {
		w := c.Workload()
		if client.IsGenerator(w) {
			continue
		}
		if err := s.FindVersion(ctx, p, w); err != nil {
			return fmt.Errorf("%w: install it by `apt-get install %s`", err, w.Name())
		}
	}
	return nil
}

// findServers records the versions of the applications' servers and of their packages in p.
func (s *Study) findServers(ctx context.Context, p place.Place) error {
	for _, c := range s.Spec.Cases {
		w := c.Workload()
		if len(w.Programs()) == 0 {
			continue
		}
		if err := s.FindVersion(ctx, p, w); err != nil {
			return err
		}
	}
	return s.FindPackages(ctx, p)
}
