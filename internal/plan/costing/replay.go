package costing

import (
	"cmp"
	"context"
	"slices"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/replay"
	"unnest.io/unnest/internal/plan/summary"
)

// Replayed says how the pods of users are replayed.
type Replayed struct {
	From, To   time.Duration // of the trace
	Minimum    time.Duration // shortest time that a VM is billed for
	Migrations int           // containers that may move at an event
}

// Replays replays the pods of all users, and returns them by name. See All for ctx and done.
func (s Setting) Replays(ctx context.Context, histories []cluster.History, r Replayed, done func(int)) ([]summary.UserReplay, error) {
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
