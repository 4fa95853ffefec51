// Package costing says what the pods of each user cost: under each scheme, with requests by use,
// against the communication between containers, and over time; and what the pools of a cluster
// cost today and could cost.
//
// It brings the planners (study, frontier, replay, fleet) and the figures (summary) together, and
// decides what of a plan counts. Reading traces belongs to package trace, sums over users to
// package summary, wording to package report.
package costing

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"iter"

	"unnest.io/unnest/internal/plan/bound"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/manifest"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/study"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/use"
)

// Setting is what the costs of a user depend on besides the pods.
type Setting struct {
	Models     cluster.Catalogue // on sale, with what they leave for pods
	OwnDaemons bool              // Models are without what runs on every VM
	Packing    pack.Options
	Today      *Today      // nil: users have no nodes
	Sizing     *use.Sizing // nil: the use is unknown
	Scheme     string      // plan whose split pods are kept; empty: none
}

// mostSingle is the most containers of a user that are planned one by one, so that a user of
// millions takes minutes and a few GB.
const mostSingle = 200_000

// Planned is the costs of a user.
type Planned struct {
	User  summary.User
	Split []manifest.Pod
	Pool  *summary.PoolCost // nil: the nodes are unknown
	Kept  bool              // its requests cannot follow from use
}

// Plans plans the users under each scheme, and returns them by name. See All for ctx and done.
func (s Setting) Plans(ctx context.Context, users iter.Seq[cluster.User], done func(int)) ([]Planned, error) {
	all, err := All(ctx, users, s.plan, done)
	slices.SortFunc(all, func(a, b Planned) int { return cmp.Compare(a.User.Name, b.User.Name) })
	return all, err
}

// models returns the models for a user, without what runs on every VM.
func (s Setting) models(u cluster.User) (cluster.Catalogue, error) {
	if s.Today != nil {
		return s.Today.pools[u.Name].Catalogue, nil
	}
	if s.OwnDaemons {
		u.PerVM = cluster.PerVM{} // the models are without them already
	}
	c := s.Models.For(u)
	if len(c) == 0 {
		return nil, fmt.Errorf("user %s: no VM of the catalogue has room for what runs on every VM, %s: use larger VMs, or say what runs there with daemonsets in the catalogue's file", u.Name, u.PerVM)
	}
	return c, nil
}

// start returns where the pods of a pool are today, if that is known and a plan.
func (s Setting) start(u cluster.User) []cluster.Plan {
	if s.Today == nil || s.Today.pools[u.Name].Start == nil {
		return nil
	}
	return []cluster.Plan{*s.Today.pools[u.Name].Start}
}

// The effort for the pools of a cluster, of which there are few: that of small ones is the most.
const (
	poolEffort     = 10_000
	poolContainers = 20_000_000 // times the effort
)

// packing returns how to pack a user. Containers are bundled if none needs a place of its own.
func (s Setting) packing(u cluster.User) pack.Options {
	o := s.Packing
	if s.Today != nil && o.Effort == 0 {
		o.Effort = max(pack.DefaultEffort, min(poolEffort, poolContainers/max(1, summary.Containers(u))))
	}
	if s.Scheme == "" && s.Today == nil && s.Sizing == nil {
		o.Bundle = mostSingle
	}
	return o
}

func (s Setting) plan(u cluster.User) (Planned, error) {
	models, err := s.models(u)
	if err != nil {
		return Planned{}, err
	}
	plans, low, err := study.Of(u, models, s.packing(u), s.start(u)...)
	if err != nil {
		return Planned{}, err
	}
	if s.Today != nil && len(s.Today.pools[u.Name].Unlimited) > 0 {
		low = min(low, bound.Of(plans.User, s.Today.pools[u.Name].Unlimited, bound.Options{Known: low}).Best)
	}
	p := Planned{User: summary.NewUser(plans, low)}
	if s.Today != nil {
		p.Pool = s.Today.pool(plans, low)
	}
	if s.Sizing != nil {
		if err := s.rightSize(u, models, plans, &p); err != nil {
			return Planned{}, err
		}
	}
	if s.Scheme != "" && (p.Pool == nil || p.Pool.Final().PodsSplit > 0) {
		outcome := map[string]pack.Outcome{"hostlo": plans.Hostlo, "spread": plans.Spread, "best": plans.Best, "whole": plans.Whole}[s.Scheme]
		p.Split = manifest.Split(plans.User, models, outcome.Plan)
	}
	return p, nil
}

// Parts returns the figures of users, the split pods and the pools.
func Parts(all []Planned) (users []summary.User, split []manifest.Pod, pools []summary.PoolCost) {
	for _, p := range all {
		if p.Pool != nil {
			pools = append(pools, *p.Pool)
		}
		users = append(users, p.User)
		split = append(split, p.Split...)
	}
	return users, split, pools
}
