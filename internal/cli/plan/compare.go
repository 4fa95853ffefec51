package plan

import (
	"cmp"
	"context"
	"slices"

	"unnest/internal/plan/bound"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
)

// planned is what is kept of a user.
type planned struct {
	row   User
	split []splitPod
}

// compare plans the users in every way, and returns them by name.
func (s setting) compare(ctx context.Context, c crowd, p *progress) ([]planned, error) {
	all, err := onAll(ctx, c.users, s.one, func(n int) { p.users(n, c.count) })
	slices.SortFunc(all, func(a, b planned) int { return cmp.Compare(a.row.Name, b.row.Name) })
	return all, err
}

// one plans one user.
func (s setting) one(u cluster.User) (planned, error) {
	study, err := pack.Compare(u, s.catalogue, s.plan)
	if err != nil {
		return planned{}, err
	}
	bound := bound.Of(study.User, s.catalogue, bound.Options{Known: study.Best.Cost})
	row := User{Name: u.Name, Pods: len(study.User.Pods), Containers: containers(study.User), LeftOut: len(study.Left), Bound: dollars(bound.Best)}
	for _, scheme := range schemes {
		*row.Cost.at(scheme) = dollars(outcome(study, scheme).Cost)
	}
	row.SplitHostlo, row.SplitBest = study.Hostlo.Plan.Split(), study.Best.Plan.Split()
	r := planned{row: row}
	if s.scheme != "" {
		r.split = splitPods(study.User, s.trace.OwnerLabel != "", s.catalogue, outcome(study, s.scheme).Plan)
	}
	return r, nil
}

// outcome returns a plan of a study by its name.
func outcome(s pack.Comparison, scheme string) pack.Outcome {
	switch scheme {
	case "kubernetes":
		return s.Kubernetes
	case "resize":
		return s.Resize
	case "hostlo":
		return s.Hostlo
	case "spread":
		return s.Spread
	case "whole":
		return s.Whole
	}
	return s.Best
}
