package costing

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/frontier"
	"unnest.io/unnest/internal/plan/study"
	"unnest.io/unnest/internal/plan/summary"
)

// Choices returns the choices of each user between the cost of VMs and the communication between
// them, by name. Every two containers of a pod have a link of weight pairs. See All for ctx and
// done.
func (s Setting) Choices(ctx context.Context, users iter.Seq[cluster.User], pairs float64, done func(int)) ([]summary.Choices, error) {
	all, err := All(ctx, users, func(u cluster.User) (summary.Choices, error) { return s.choices(u, pairs) }, done)
	if err != nil {
		return nil, err
	}
	if err := summary.AddableChoices(all); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b summary.Choices) int { return cmp.Compare(a.User, b.User) })
	return all, nil
}

func (s Setting) choices(u cluster.User, pairs float64) (summary.Choices, error) {
	models, err := s.models(u)
	if err != nil {
		return summary.Choices{}, err
	}
	plans, _, err := study.Of(u, models, s.Packing, s.start(u)...) // not bundled: links are between containers
	if err != nil {
		return summary.Choices{}, err
	}
	fit := plans.User
	c := summary.Choices{User: u.Name, Pods: len(fit.Pods), Containers: plans.Containers, LeftOut: len(plans.Left), Choices: []summary.Choice{}}
	if len(fit.Pods) == 0 {
		return c, nil
	}
	found, err := frontier.Find(fit, models, pairs, s.Packing, plans.Whole, plans.Best)
	if err != nil {
		return summary.Choices{}, fmt.Errorf("user %s: %w", u.Name, err)
	}
	for _, choice := range found {
		c.Choices = append(c.Choices, summary.Choice{Cost: summary.Dollars(choice.Cost), Cut: choice.Cut, Split: choice.Plan.Split()})
	}
	return c, nil
}
