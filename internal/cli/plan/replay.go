package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/replay"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
	"unnest/internal/report/plans"
)

// Defaults of --replay. AWS bills a Linux VM by the second, for at least a minute.
const (
	defaultMinimum    = time.Minute
	defaultMigrations = 10
)

func checkReplay(opts Options) error {
	switch {
	case !opts.Replay && (opts.Minimum != defaultMinimum || opts.Migrations != defaultMigrations):
		return usage.Errorf("--billing-minimum and --migrations need --replay: add it")
	case opts.Minimum <= 0:
		return usage.Errorf("--billing-minimum %v: want a time above 0", opts.Minimum)
	case opts.Migrations < 0:
		return usage.Errorf("--migrations %d: want 0 or more", opts.Migrations)
	case !opts.Replay:
		return nil
	}
	for _, t := range opts.Traces {
		if !strings.HasPrefix(t, "google2011:") {
			return usage.Errorf("--replay --trace %s: want google2011:PATH, the only format that is read as events over time", t)
		}
	}
	if opts.At != "" && !strings.Contains(opts.At, "..") {
		return usage.Errorf("--replay --at %s: want two times, such as 0..1h", opts.At)
	}
	return nil
}

func (s setting) replay(ctx context.Context, opts Options, p *progress) error {
	p.phase("reading " + strings.Join(s.sources[0].paths, ", "))
	histories, period, read, err := trace.ReadHistory(ctx, s.sources[0].format, s.sources[0].paths, s.trace)
	if err != nil {
		return err
	}
	// The largest first, so that all processors end at about the same time.
	slices.SortStableFunc(histories, func(a, b cluster.History) int { return cmp.Compare(len(b.Stays), len(a.Stays)) })
	play := func(h cluster.History) (summary.UserReplay, error) { return s.play(h, period, opts) }
	all, err := onAll(ctx, slices.Values(histories), play, func(n int) { p.users(n, len(histories)) })
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	p.clear()
	slices.SortFunc(all, func(a, b summary.UserReplay) int { return cmp.Compare(a.User, b.User) })
	r := summary.Replay{
		From: period.From.Seconds(), To: period.To.Seconds(), Minimum: opts.Minimum.Seconds(), Migrations: opts.Migrations,
		Settings: newSettings(opts, s), Traces: []summary.Reading{newReading(read)}, PerUser: all,
	}
	r.Add()
	return opts.Output.write(opts.Streams, plans.Replay(r))
}

// play replays the pods of one user, in every way.
func (s setting) play(h cluster.History, period trace.Period, opts Options) (summary.UserReplay, error) {
	u := summary.UserReplay{User: h.User}
	events, left, err := replay.Events(h, period.From, period.To, s.catalogue, s.plan.Oversize)
	if err != nil {
		return u, err
	}
	u.LeftOut, u.Stays = left, len(h.Stays)-left
	for _, e := range events {
		u.Containers += summary.Containers(cluster.User{Pods: e.Arrive})
	}
	for _, name := range summary.Courses {
		o := replay.Options{Options: s.plan, Minimum: opts.Minimum, Split: name != "kubernetes"}
		if name == "moved" {
			o.Migrations = opts.Migrations
		}
		end := period.To - period.From
		line, err := replay.Run(h.User, events, end, s.catalogue, o)
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
