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
	"unnest/internal/plan/pack"
	"unnest/internal/plan/replay"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
	"unnest/internal/report"
)

// What --replay assumes unless told: AWS bills a Linux VM by the second, for a minute
// at least.
const (
	defaultMinimum    = time.Minute
	defaultMigrations = 10
)

// checkReplay refuses what --replay cannot do.
func checkReplay(opts Options) error {
	switch {
	case !opts.Replay && (opts.Minimum != defaultMinimum || opts.Migrations != defaultMigrations):
		return usage.Errorf("--billing-minimum and --migrations are about --replay: name that as well")
	case opts.Minimum <= 0:
		return usage.Errorf("--billing-minimum %v: want a time above 0", opts.Minimum)
	case opts.Migrations < 0:
		return usage.Errorf("--migrations %d: want 0 or more", opts.Migrations)
	case !opts.Replay:
		return nil
	}
	for _, t := range opts.Traces {
		if !strings.HasPrefix(t, "google2011:") {
			return usage.Errorf("--replay --trace %s: only google2011 is read as events over time", t)
		}
	}
	if opts.At != "" && !strings.Contains(opts.At, "..") {
		return usage.Errorf("--replay --at %s: want two times, such as 0..1h", opts.At)
	}
	return nil
}

// replay reads, plays and prints.
func (s setting) replay(ctx context.Context, opts Options, p *progress) error {
	p.phase("reading " + strings.Join(s.sources[0].paths, ", "))
	histories, period, read, err := trace.ReadHistory(ctx, s.sources[0].format, s.sources[0].paths, s.trace)
	if err != nil {
		return err
	}
	// The most stays first: none is left to one processor at the end.
	slices.SortStableFunc(histories, func(a, b trace.History) int { return cmp.Compare(len(b.Stays), len(a.Stays)) })
	play := func(h trace.History) (summary.UserReplay, error) { return s.play(h, period, opts) }
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
	return opts.Output.print(opts.Streams, report.Replay(r))
}

// play lets the pods of one user come and go, in every way.
func (s setting) play(h trace.History, period trace.Period, opts Options) (summary.UserReplay, error) {
	u := summary.UserReplay{User: h.User}
	events, left, err := s.events(h, period)
	if err != nil {
		return u, err
	}
	u.LeftOut, u.Stays = left, len(h.Stays)-left
	for _, e := range events {
		for _, p := range e.Arrive {
			u.Containers += len(p.Containers)
		}
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
		u.Plans = append(u.Plans, summary.Course{Plan: name, Cost: summary.Dollars(line.Cost), Bought: line.Bought, Migrated: line.Migrations, Rates: rates(line.States, end)})
	}
	return u, nil
}

// events turns stays into what comes and goes when, since the beginning of the period.
// Pods that no model holds are treated as Options.Oversize says.
func (s setting) events(h trace.History, period trace.Period) (events []replay.Event, left int, err error) {
	at := map[time.Duration]*replay.Event{}
	event := func(t time.Duration) *replay.Event {
		t -= period.From
		if at[t] == nil {
			at[t] = &replay.Event{At: t}
		}
		return at[t]
	}
	for _, stay := range h.Stays {
		fit, out, err := pack.Fit(cluster.User{Name: h.User, Pods: []cluster.Pod{stay.Pod}}, s.catalogue, s.plan.Oversize)
		if err != nil {
			return nil, 0, err
		}
		left += len(out)
		if len(fit.Pods) == 0 || stay.To <= stay.From {
			continue
		}
		arrival := event(stay.From)
		arrival.Arrive = append(arrival.Arrive, fit.Pods...)
		if stay.To >= period.To {
			continue
		}
		departure := event(stay.To)
		for _, p := range fit.Pods {
			departure.Depart = append(departure.Depart, p.Name)
		}
	}
	for _, e := range at {
		events = append(events, *e)
	}
	slices.SortFunc(events, func(a, b replay.Event) int { return cmp.Compare(a.At, b.At) })
	return events, left, nil
}

// rates returns the price of the VMs at evenly spaced moments from the beginning to the
// end.
func rates(states []replay.State, end time.Duration) []summary.Dollars {
	list := make([]summary.Dollars, summary.Moments)
	next, rate := 0, summary.Dollars(0)
	for i := range list {
		for now := end * time.Duration(i) / (summary.Moments - 1); next < len(states) && states[next].At <= now; next++ {
			rate = summary.Dollars(states[next].Rate)
		}
		list[i] = rate
	}
	return list
}
