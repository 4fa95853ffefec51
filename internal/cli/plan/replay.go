package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"unnest/internal/cli/document"
	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/replay"
	"unnest/internal/plan/trace"
)

// What --replay assumes unless told: AWS bills a Linux VM by the second, for a minute
// at least.
const (
	defaultMinimum    = time.Minute
	defaultMigrations = 10
)

// Replay is what VMs cost while pods come and go. Costs are for the whole time.
type Replay struct {
	Users      int          `json:"users"`
	Stays      int          `json:"stays"` // of pods
	Contain    int          `json:"containers"`
	LeftOut    int          `json:"stays_left_out"` // that no model holds
	From       float64      `json:"from_seconds"`
	To         float64      `json:"to_seconds"`
	Minimum    float64      `json:"billing_minimum_seconds"`
	Migrations int          `json:"migrations_at_an_event"`
	Plans      []Course     `json:"plans"`
	Setup      Setup        `json:"settings"`
	Traces     []Reading    `json:"traces"`
	PerUser    []UserReplay `json:"per_user"`
}

// Course is what one way of placing pods costs.
type Course struct {
	Plan     string  `json:"plan"`
	Cost     dollars `json:"cost"`
	Bought   int     `json:"vms_bought"`
	Migrated int     `json:"containers_migrated"`
	// Rates are the prices of the VMs for an hour, at the beginning, at the end and at
	// evenly many moments between.
	Rates []dollars `json:"rates,omitempty"`
}

// UserReplay is the pods of one user over time.
type UserReplay struct {
	User    string   `json:"user"`
	Stays   int      `json:"stays"`
	Contain int      `json:"containers"`
	LeftOut int      `json:"stays_left_out,omitempty"`
	Plans   []Course `json:"plans"`
}

// The ways in which pods are placed over time, and what they are.
var (
	courses     = []string{"kubernetes", "shared", "moved"}
	courseMeans = map[string]string{
		"kubernetes": "pods whole, never moved",
		"shared":     "a pod without room on any VM is shared out among VMs; never moved",
		"moved":      "and containers move, to empty VMs",
	}
)

// moments is how many rates a course has.
const moments = 61

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
	histories, period, report, err := trace.ReadHistory(ctx, s.sources[0].format, s.sources[0].paths, s.trace)
	if err != nil {
		return err
	}
	// The most stays first: none is left to one processor at the end.
	slices.SortStableFunc(histories, func(a, b trace.History) int { return cmp.Compare(len(b.Stays), len(a.Stays)) })
	play := func(h trace.History) (UserReplay, error) { return s.play(h, period, opts) }
	all, err := onAll(ctx, slices.Values(histories), play, func(n int) { p.users(n, len(histories)) })
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	p.clear()
	slices.SortFunc(all, func(a, b UserReplay) int { return cmp.Compare(a.User, b.User) })
	r := Replay{
		From: period.From.Seconds(), To: period.To.Seconds(), Minimum: opts.Minimum.Seconds(), Migrations: opts.Migrations,
		Setup: newSetup(opts, s), Traces: []Reading{newReading(report)}, PerUser: all,
	}
	r.add()
	return opts.Output.writeReplay(opts, r)
}

// play lets the pods of one user come and go, in every way.
func (s setting) play(h trace.History, period trace.Period, opts Options) (UserReplay, error) {
	u := UserReplay{User: h.User}
	events, left, err := s.events(h, period)
	if err != nil {
		return u, err
	}
	u.LeftOut, u.Stays = left, len(h.Stays)-left
	for _, e := range events {
		for _, p := range e.Arrive {
			u.Contain += len(p.Containers)
		}
	}
	for _, name := range courses {
		o := replay.Options{Options: s.plan, Minimum: opts.Minimum, Split: name != "kubernetes"}
		if name == "moved" {
			o.Migrations = opts.Migrations
		}
		end := period.To - period.From
		line, err := replay.Run(h.User, events, end, s.catalogue, o)
		if err != nil {
			return u, err
		}
		u.Plans = append(u.Plans, Course{name, dollars(line.Cost), line.Bought, line.Migrations, rates(line.States, end)})
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

// rates returns the price of the VMs at evenly many moments from the beginning to the
// end.
func rates(states []replay.State, end time.Duration) []dollars {
	list := make([]dollars, moments)
	next, rate := 0, dollars(0)
	for i := range list {
		for now := end * time.Duration(i) / (moments - 1); next < len(states) && states[next].At <= now; next++ {
			rate = dollars(states[next].Rate)
		}
		list[i] = rate
	}
	return list
}

// add sums the users up, and forgets when each of them paid how much.
func (r *Replay) add() {
	for _, name := range courses {
		r.Plans = append(r.Plans, Course{Plan: name, Rates: make([]dollars, moments)})
	}
	for _, u := range r.PerUser {
		r.LeftOut += u.LeftOut
		if u.Stays > 0 {
			r.Users++
		}
		r.Stays, r.Contain = r.Stays+u.Stays, r.Contain+u.Contain
		for i := range u.Plans {
			sum, c := &r.Plans[i], &u.Plans[i]
			sum.Cost += c.Cost
			sum.Bought += c.Bought
			sum.Migrated += c.Migrated
			for k, rate := range c.Rates {
				sum.Rates[k] += rate
			}
			c.Rates = nil
		}
	}
}

// writeReplay prints the replay as text or JSON.
func (o Output) writeReplay(opts Options, r Replay) error {
	show := r.Text
	if o.JSON {
		show = func(w io.Writer) error { return printJSON(w, r) }
	}
	if o.File != "" {
		return document.WriteFile(o.File, show)
	}
	if err := show(opts.Streams.Out); err != nil {
		return fmt.Errorf("print the plan: %w", err)
	}
	return nil
}

// Text prints the replay for people.
func (r Replay) Text(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %s of a pod with together %s, from %s to %s of the trace\n", plural(r.Users, "user"), plural(r.Stays, "stay"),
		plural(r.Contain, "container"), seconds(r.From), seconds(r.To))
	if r.LeftOut > 0 {
		fmt.Fprintf(&text, "Left out: %s of a pod that no VM holds (oversize: %s)\n", plural(r.LeftOut, "stay"), r.Setup.Oversize)
	}
	fmt.Fprintf(&text, "A VM is billed by the second, for %s at least. At an event %s may move.\n\n", seconds(r.Minimum), plural(r.Migrations, "container"))
	table(&text, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "plan\t$\tagainst kubernetes\t$/h, mean\tVMs bought\tmoved\t")
		for _, c := range r.Plans {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", c.Plan, c.Cost, change(c.Cost, r.Plans[0].Cost), r.mean(c), c.Bought, c.Migrated, courseMeans[c.Plan])
		}
	})
	r.writeSavers(&text)
	for _, reading := range r.Traces {
		reading.write(&text)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

// mean returns the cost for an hour.
func (r Replay) mean(c Course) dollars {
	if r.To <= r.From {
		return 0
	}
	return dollars(float64(c.Cost) * 3600 / (r.To - r.From))
}

// writeSavers lists the users who save most with what moves.
func (r Replay) writeSavers(w *strings.Builder) {
	saved := func(u UserReplay) dollars { return u.Plans[0].Cost - u.Plans[len(u.Plans)-1].Cost }
	savers := slices.Clone(r.PerUser)
	slices.SortStableFunc(savers, func(a, b UserReplay) int { return cmp.Compare(saved(b), saved(a)) })
	savers = slices.DeleteFunc(savers[:min(len(savers), mostShown)], func(u UserReplay) bool { return saved(u) <= 0 })
	if len(savers) == 0 {
		return
	}
	w.WriteString("\nLargest savings, $\n\n")
	table(w, func(tw *tabwriter.Writer) {
		fmt.Fprintln(tw, "user\t"+strings.Join(courses, "\t")+"\tpart\tstays")
		for _, u := range savers {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\n", u.User, u.Plans[0].Cost, u.Plans[1].Cost, u.Plans[2].Cost,
				percent(ratio(saved(u), u.Plans[0].Cost)), u.Stays)
		}
	})
}
