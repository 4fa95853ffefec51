package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/manifest"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/study"
	"unnest/internal/plan/summary"
)

type planned struct {
	row   summary.User
	split []manifest.Pod
	pool  *summary.PoolCost // nil: the nodes are unknown
	kept  bool              // its requests cannot follow from use
}

// compare plans the users under each scheme, and returns them by name.
func (s setting) compare(ctx context.Context, c input, p *progress) ([]planned, error) {
	s.today = c.today
	all, err := onAll(ctx, c.users, s.one, func(n int) { p.users(n, c.count) })
	slices.SortFunc(all, func(a, b planned) int { return cmp.Compare(a.row.Name, b.row.Name) })
	return all, err
}

// models returns the catalogue for a user, without what runs on every VM.
func (s setting) models(u cluster.User) (cluster.Catalogue, error) {
	if s.today != nil {
		return s.today.pools[u.Name].Catalogue, nil
	}
	if s.daemons {
		u.PerVM = cluster.PerVM{} // the catalogue is without them already
	}
	c := s.catalogue.For(u)
	if len(c) == 0 {
		return nil, fmt.Errorf("user %s: no VM of the catalogue has room for what runs on every VM, %s: use larger VMs, or say what runs there with --daemonsets", u.Name, u.PerVM)
	}
	return c, nil
}

// start returns where the pods of a pool are today, if that is known and a plan.
func (s setting) start(u cluster.User) []cluster.Plan {
	if s.today == nil || s.today.pools[u.Name].Start == nil {
		return nil
	}
	return []cluster.Plan{*s.today.pools[u.Name].Start}
}

func (s setting) one(u cluster.User) (planned, error) {
	c, err := s.models(u)
	if err != nil {
		return planned{}, err
	}
	plans, low, err := study.Of(u, c, s.plan, s.start(u)...)
	if err != nil {
		return planned{}, err
	}
	r := planned{row: summary.NewUser(plans, low)}
	if s.today != nil {
		r.pool = s.today.pool(plans, low)
	}
	if s.sizing != nil {
		if err := s.rightSize(u, c, plans, &r); err != nil {
			return planned{}, err
		}
	}
	if s.scheme != "" {
		outcome := map[string]pack.Outcome{"hostlo": plans.Hostlo, "spread": plans.Spread, "best": plans.Best, "whole": plans.Whole}[s.scheme]
		r.split = manifest.Split(plans.User, c, outcome.Plan)
	}
	return r, nil
}
