package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/frontier"
	"unnest/internal/plan/study"
	"unnest/internal/plan/summary"
)

// defaultLinkCPU is the number of vCPUs that a link of weight 1 uses.
const defaultLinkCPU = 0.01

func (s setting) frontier(ctx context.Context, c input, price *summary.CutPrice, settings summary.Settings, p *progress) (summary.Frontier, error) {
	s.today = c.today
	use := summary.LinkUse{From: s.links, Pairs: s.pairs}
	if s.linkFile != nil {
		users := slices.Collect(c.users)
		unused, err := s.linkFile.Join(users)
		if err != nil {
			return summary.Frontier{}, err
		}
		c.users, use.Rows, use.Unused = slices.Values(users), s.linkFile.Rows, unused
	}
	all, err := onAll(ctx, c.users, s.choices, func(n int) { p.users(n, c.count) })
	if err != nil {
		return summary.Frontier{}, err
	}
	if err := summary.AddableChoices(all); err != nil {
		return summary.Frontier{}, err
	}
	slices.SortFunc(all, func(a, b summary.Choices) int { return cmp.Compare(a.User, b.User) })
	return summary.NewFrontier(all, use, price, settings, c.readings), nil
}

func (s setting) choices(u cluster.User) (summary.Choices, error) {
	models, err := s.models(u)
	if err != nil {
		return summary.Choices{}, err
	}
	s.plan.Bundle = 0 // links are between containers
	plans, _, err := study.Of(u, models, s.plan, s.start(u)...)
	if err != nil {
		return summary.Choices{}, err
	}
	fit := plans.User
	c := summary.Choices{User: u.Name, Pods: len(fit.Pods), Containers: plans.Containers, LeftOut: len(plans.Left), Choices: []summary.Choice{}}
	if len(fit.Pods) == 0 {
		return c, nil
	}
	found, err := frontier.Find(fit, models, s.pairs, s.plan, plans.Whole, plans.Best)
	if err != nil {
		return summary.Choices{}, fmt.Errorf("user %s: %w", u.Name, err)
	}
	for _, choice := range found {
		c.Choices = append(c.Choices, summary.Choice{Cost: summary.Dollars(choice.Cost), Cut: choice.Cut, Split: choice.Plan.Split()})
	}
	return c, nil
}
