package plan

import (
	"cmp"
	"context"
	"slices"

	"unnest/internal/plan/bound"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/manifest"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
)

type planned struct {
	row   summary.User
	split []manifest.Pod
}

// compare plans the users under each scheme, and returns them by name.
func (s setting) compare(ctx context.Context, c input, p *progress) ([]planned, error) {
	all, err := onAll(ctx, c.users, s.one, func(n int) { p.users(n, c.count) })
	slices.SortFunc(all, func(a, b planned) int { return cmp.Compare(a.row.Name, b.row.Name) })
	return all, err
}

func (s setting) one(u cluster.User) (planned, error) {
	study, err := pack.Compare(u, s.catalogue, s.plan)
	if err != nil {
		return planned{}, err
	}
	bound := bound.Of(study.User, s.catalogue, bound.Options{Known: study.Best.Cost})
	r := planned{row: summary.NewUser(study, bound.Best)}
	if s.scheme != "" {
		outcome := map[string]pack.Outcome{"hostlo": study.Hostlo, "spread": study.Spread, "best": study.Best}[s.scheme]
		r.split = manifest.Split(study.User, s.trace.OwnerLabel != "", s.catalogue, outcome.Plan)
	}
	return r, nil
}
