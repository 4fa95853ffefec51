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
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/plan/bound"
	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/frontier"
	"unnest.io/unnest/internal/plan/manifest"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/replay"
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

	unlimited cluster.Catalogue // models that lower considers for a namespace, which has no Today
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

// lower returns a bound that also holds for legal plans with models that the pool may not buy.
func (s Setting) lower(u cluster.User, low int64) int64 {
	more := s.unlimited
	if s.Today != nil {
		more = s.Today.pools[u.Name].Unlimited
	}
	if len(more) > 0 {
		low = min(low, bound.Of(u, more, bound.Options{Known: low}).Best)
	}
	return low
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
	low = s.lower(plans.User, low)
	p := Planned{User: summary.NewUser(plans, low)}
	if s.Today != nil {
		p.Pool = s.Today.pool(plans, low)
	}
	if s.Sizing != nil {
		if plans, err = s.rightSize(u, models, plans, &p); err != nil {
			return Planned{}, err
		}
	}
	if s.Scheme != "" && (p.Pool == nil || p.Pool.Final().PodsSplit > 0) {
		outcome := map[string]pack.Outcome{"hostlo": plans.Hostlo, "spread": plans.Spread, "best": plans.Best, "whole": plans.Whole}[s.Scheme]
		all := u.Pods
		if s.Today != nil {
			all = s.Today.pods
		}
		p.Split = manifest.Split(plans.User, all, models, outcome.Plan)
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
	o := s.packing(u)
	o.Bundle = 0 // links are between containers
	plans, _, err := study.Of(u, models, o, s.start(u)...)
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

// Explained is the plans of one user with every step.
type Explained struct {
	Plans  pack.Comparison
	Models cluster.Catalogue
	Bound  int64 // billionths of a dollar for an hour
}

// Explain plans the user of a name, or the pods of a namespace, and keeps every step. When the
// context ends, it returns at once.
func (s Setting) Explain(ctx context.Context, users iter.Seq[cluster.User], name string) (Explained, error) {
	all, err := All(ctx, slices.Values([]string{name}), func(name string) (Explained, error) { return s.find(users, name) }, nil)
	if err != nil {
		return Explained{}, err
	}
	return all[0], nil
}

func (s Setting) find(users iter.Seq[cluster.User], name string) (Explained, error) {
	var near []string
	namespace := cluster.User{Name: name}
	var pools []string
	for u := range users {
		if u.Name == name {
			return s.explain(u)
		}
		near = append(near, u.Name)
		before := len(namespace.Pods)
		for _, p := range u.Pods {
			if p.Origin != nil && p.Origin.Namespace == name {
				p.Name = p.Origin.Name
				namespace.Pods = append(namespace.Pods, p)
			}
		}
		if len(namespace.Pods) > before {
			pools = append(pools, u.Name)
			namespace.PerVM.Request, namespace.PerVM.Pods = namespace.PerVM.Request.Max(u.PerVM.Request), max(namespace.PerVM.Pods, u.PerVM.Pods)
			namespace.Limits = least(namespace.Limits, u.Limits)
		}
	}
	if len(namespace.Pods) > 0 {
		if s.Today != nil {
			if s.Models = s.Today.common(pools); len(s.Models) == 0 {
				return Explained{}, fmt.Errorf("explain %s: no model may be in all pools of its pods: want one of the pools %s", name, strings.Join(pools, ", "))
			}
			for _, pool := range pools {
				s.unlimited = append(s.unlimited, s.Today.pools[pool].Unlimited...)
			}
			s.Today = nil
		}
		return s.explain(namespace)
	}
	if len(near) == 0 {
		return Explained{}, fmt.Errorf("explain %s: the trace has no users", name)
	}
	slices.Sort(near)
	more := ""
	if len(near) > 3 {
		near, more = near[:3], " …; --json lists all"
	}
	return Explained{}, fmt.Errorf("explain %s: the trace has no such user: want one such as %s%s", name, strings.Join(near, ", "), more)
}

// least returns limits that hold in two pools. The first may be nil.
func least(a, b []cluster.Limit) []cluster.Limit {
	b = slices.Clone(b)
	for i := range b {
		if a != nil {
			b[i].Most = min(a[i].Most, b[i].Most)
		}
		if b[i].Skew > 0 { // Legal is for all pods of a pool, and says nothing of some
			b[i].Legal = cluster.Unlimited
		}
	}
	return b
}

func (s Setting) explain(u cluster.User) (e Explained, err error) {
	if e.Models, err = s.models(u); err != nil {
		return e, err
	}
	o := s.packing(u)
	o.Explain, o.Bundle = true, 0
	e.Plans, e.Bound, err = study.Of(u, e.Models, o, s.start(u)...)
	e.Bound = s.lower(e.Plans.User, e.Bound)
	return e, err
}

// Replayed says how the pods of users are replayed.
type Replayed struct {
	From, To   time.Duration // of the trace
	Minimum    time.Duration // shortest time that a VM is billed for
	Migrations int           // containers that may move at an event
}

// Replays replays the pods of all users, and returns them by name. See All for ctx and done.
func (s Setting) Replays(ctx context.Context, histories []cluster.History, r Replayed, done func(int)) ([]summary.UserReplay, error) {
	hours := 0. // of all VMs, at most; of each an hour or more, so that rates can be added up, too
	for _, h := range histories {
		for _, stay := range h.Stays {
			hours += float64(len(stay.Pod.Containers)) * (1 + r.Minimum.Hours() + (min(stay.To, r.To) - max(stay.From, r.From)).Hours())
		}
	}
	price := float64(slices.MaxFunc(s.Models, func(a, b cluster.Model) int { return cmp.Compare(a.Price, b.Price) }).Price)
	if hours*price > math.MaxInt64/2 {
		return nil, fmt.Errorf("%.3g hours of VMs at the highest price, %.4g $/h, cannot be added up: correct the prices of the catalogue, or replay less of the trace (--at)", hours, price/cluster.Dollar)
	}
	// The largest first, so that all processors end at about the same time.
	slices.SortStableFunc(histories, func(a, b cluster.History) int { return cmp.Compare(len(b.Stays), len(a.Stays)) })
	all, err := All(ctx, slices.Values(histories), func(h cluster.History) (summary.UserReplay, error) { return s.play(h, r) }, done)
	slices.SortFunc(all, func(a, b summary.UserReplay) int { return cmp.Compare(a.User, b.User) })
	return all, err
}

// play replays the pods of one user, in every way.
func (s Setting) play(h cluster.History, r Replayed) (summary.UserReplay, error) {
	u := summary.UserReplay{User: h.User}
	events, left, err := replay.Events(h, r.From, r.To, s.Models, s.Packing.Oversize)
	if err != nil {
		return u, err
	}
	u.LeftOut, u.Stays = left, len(h.Stays)-left
	for _, e := range events {
		u.Containers += summary.Containers(cluster.User{Pods: e.Arrive})
	}
	end := r.To - r.From
	for _, name := range summary.Courses {
		o := replay.Options{Options: s.Packing, Minimum: r.Minimum, Split: name != "kubernetes"}
		if name == "moved" {
			o.Migrations = r.Migrations
		}
		line, err := replay.Run(h.User, events, end, s.Models, o)
		if err != nil {
			return u, err
		}
		course := summary.Course{Plan: name, Cost: summary.Dollars(line.Cost), Bought: line.Bought, Migrated: line.Migrations}
		for _, rate := range line.Rates(summary.Moments, end) {
			course.Rates = append(course.Rates, summary.Dollars(rate))
		}
		u.Plans = append(u.Plans, course)
	}
	return u, nil
}

// Catalogue returns the models on sale: of a cluster those that it can have.
func (s Setting) Catalogue() cluster.Catalogue {
	if s.Today != nil {
		return s.Today.Models
	}
	return s.Models
}

// Settings says what the figures depend on. A cluster names its catalogues itself.
func (s Setting) Settings(o catalogue.Offer) summary.Settings {
	p := s.Packing
	settings := summary.Settings{
		Oversize: cmp.Or(string(p.Oversize), string(pack.Drop)), Moving: cmp.Or(string(p.Moving), string(pack.MoveByVM)),
		Emptying: cmp.Or(string(p.Emptying), string(pack.MostWastedFirst)), Requested: cmp.Or(string(p.Requested), string(pack.OfVM)),
		Wasted: cmp.Or(string(p.Wasted), string(pack.OfVM)), Rounds: p.Rounds, Effort: p.Effort,
	}
	if p.Host != (cluster.Resources{}) {
		settings.Host = p.Host.String()
	}
	if s.Today == nil {
		o = o.Named()
		settings.Catalogues, settings.Prices, settings.Term, settings.KubeReserved = o.Names(), o.PriceDates(), o.Prices.Term, o.KubeReserved()
	}
	for _, m := range s.Catalogue() {
		settings.Catalogue = append(settings.Catalogue, summary.Model{
			Name: m.Name, VCPU: float64(m.Size.CPU) / cluster.VCPU, GiB: float64(m.Size.Memory) / (1 << 30), Price: summary.Dollars(m.Price), Pods: m.Pods, Arch: m.Arch,
		})
	}
	return settings
}
