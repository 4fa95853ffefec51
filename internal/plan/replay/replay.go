// Package replay computes what VMs cost while pods come and go. Package pack places the
// pods; replay keeps the time and bills the VMs.
package replay

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Event is a change of a user's pods. Pods depart before others arrive.
type Event struct {
	At     time.Duration // since any start
	Depart []string      // names of pods
	Arrive []cluster.Pod // with names that no present pod has
}

// Events returns the stays of a user as events since from, sorted by time. Pods that no model
// holds are treated as oversize says; left is the number of stays left out. A stay that lasts
// until to does not depart; one that begins then is no event. One that ends as it begins lasts 1 ns.
func Events(h cluster.History, from, to time.Duration, c cluster.Catalogue, oversize pack.Oversize) (events []Event, left int, err error) {
	at := map[time.Duration]*Event{}
	event := func(t time.Duration) *Event {
		t -= from
		if at[t] == nil {
			at[t] = &Event{At: t}
		}
		return at[t]
	}
	whole := map[string]bool{} // names that parts of cut pods must not have
	for _, stay := range h.Stays {
		whole[stay.Pod.Name] = true
	}
	for _, stay := range h.Stays {
		fit, out, err := pack.Fit(cluster.User{Name: h.User, Pods: []cluster.Pod{stay.Pod}}, c, oversize)
		if err != nil {
			return nil, 0, err
		}
		left += len(out)
		if len(fit.Pods) == 0 || stay.From >= to {
			continue
		}
		for i := range fit.Pods {
			for len(fit.Pods) > 1 && whole[fit.Pods[i].Name] {
				fit.Pods[i].Name += "'"
			}
		}
		arrival := event(stay.From)
		arrival.Arrive = append(arrival.Arrive, fit.Pods...)
		if stay.To >= to {
			continue
		}
		departure := event(max(stay.To, stay.From+1))
		for _, p := range fit.Pods {
			departure.Depart = append(departure.Depart, p.Name)
		}
	}
	for _, t := range slices.Sorted(maps.Keys(at)) {
		events = append(events, *at[t])
	}
	return events, left, nil
}

// Options are those of Run.
type Options struct {
	pack.Options
	// Split lets a pod without room on any VM be placed on several VMs of one host, and
	// lets containers migrate. Without it pods never move, as in Kubernetes.
	Split bool
	// Migrations is the number of containers that may move at an event. They only move to
	// empty a VM; running VMs are not resized.
	Migrations int
	// Minimum is the shortest time that a VM is billed for; 0: 60 s, as AWS does.
	Minimum time.Duration
}

// defaultMinimum is the default of Options.Minimum.
const defaultMinimum = time.Minute

// Timeline is the cost of pods that come and go.
type Timeline struct {
	Cost       int64 // billionths of a dollar
	Bought     int   // VMs
	Migrations int   // containers that moved
	States     []State
}

// State is the VMs after an event, or after the release of some.
type State struct {
	At   time.Duration
	VMs  int
	Rate int64 // billionths of a dollar for an hour
}

// Rates returns the price of the VMs for an hour at n evenly spaced moments from the start to
// the end.
func (l Timeline) Rates(n int, end time.Duration) []int64 {
	rates := make([]int64, n)
	next, rate, last := 0, int64(0), time.Duration(n-1)
	for i := range rates {
		for now := end/last*time.Duration(i) + end%last*time.Duration(i)/last; next < len(l.States) && l.States[next].At <= now; next++ {
			rate = l.States[next].Rate
		}
		rates[i] = rate
	}
	return rates
}

// Run plays the events of a user until the given end. Their times must not descend. Pods that
// arrive together are placed biggest first, as Kubernetes does. A VM is billed by the second
// from purchase to release. An empty VM is released when its minimum is over, because it is
// paid until then. A pod that no model holds is an error: see pack.Fit.
func Run(name string, events []Event, end time.Duration, c cluster.Catalogue, o Options) (Timeline, error) {
	if o.Minimum < 0 || o.Migrations < 0 {
		return Timeline{}, fmt.Errorf("minimum %v, migrations %d: want 0 or more", o.Minimum, o.Migrations)
	}
	o.Minimum = cmp.Or(o.Minimum, defaultMinimum)
	u := cluster.User{Name: name}
	for _, e := range events {
		u.Pods = append(u.Pods, e.Arrive...)
	}
	live, err := pack.NewLive(u, c, o.Options, o.Split)
	if err != nil {
		return Timeline{}, err
	}
	r := &replay{live: live, catalogue: c, opts: o, present: map[string]int{}}
	for i, e := range events {
		if i > 0 && e.At < events[i-1].At || e.At > end {
			return Timeline{}, fmt.Errorf("event %d of user %s is at %v: want times that do not descend, and none after %v", i, name, e.At, end)
		}
		r.until(e.At)
		if err := r.event(e); err != nil {
			return Timeline{}, fmt.Errorf("user %s at %v: %w", name, e.At, err)
		}
	}
	r.until(end)
	r.release(true)
	return r.out, nil
}

// replay is a plan over time.
type replay struct {
	live      *pack.Live
	catalogue cluster.Catalogue
	opts      Options
	present   map[string]int // index of each present pod
	arrived   int            // pods so far
	now       time.Duration
	vms       []lifetime // of VMs that are not released
	out       Timeline
}

// lifetime is a VM, when it was bought, and since when it is empty: below 0 while it is not.
type lifetime struct {
	vm              int
	bought, emptied time.Duration
}

// until moves the time forward, and releases each empty VM when its minimum is over.
func (r *replay) until(t time.Duration) {
	for {
		r.now = t
		for _, l := range r.vms {
			if l.emptied >= 0 {
				r.now = min(r.now, l.bought+r.opts.Minimum)
			}
		}
		if r.now == t {
			return
		}
		r.release(false)
		r.state()
	}
}

func (r *replay) event(e Event) error {
	for _, name := range e.Depart {
		pod, ok := r.present[name]
		if !ok {
			return fmt.Errorf("pod %s departs: it is not present", name)
		}
		delete(r.present, name)
		r.live.Remove(pod)
	}
	r.release(false)
	if err := r.arrive(e.Arrive); err != nil {
		return err
	}
	r.out.Migrations += r.live.Migrate(r.opts.Migrations)
	r.release(false)
	r.state()
	return nil
}

func (r *replay) state() {
	r.out.States = append(r.out.States, State{At: r.now, VMs: len(r.vms), Rate: r.live.Rate()})
}

func (r *replay) arrive(pods []cluster.Pod) error {
	first := r.arrived
	for _, p := range pods {
		if _, present := r.present[p.Name]; present {
			return fmt.Errorf("pod %s arrives: one of that name is present", p.Name)
		}
		r.present[p.Name] = r.arrived
		r.arrived++
	}
	err := r.live.Place(first, r.arrived)
	for ; r.out.Bought < r.live.Bought(); r.out.Bought++ {
		r.vms = append(r.vms, lifetime{vm: r.out.Bought, bought: r.now, emptied: -1})
	}
	return err
}

// release bills and releases VMs: those that are empty and no longer paid for, or all
// at the end.
func (r *replay) release(end bool) {
	living := r.vms[:0]
	for _, t := range r.vms {
		switch {
		case !r.live.Empty(t.vm):
			t.emptied = -1
		case t.emptied < 0:
			t.emptied = r.now
		}
		until, paid := r.now, t.bought+r.opts.Minimum
		if t.emptied >= 0 {
			until = t.emptied
		}
		if !end && (t.emptied < 0 || paid > r.now) {
			living = append(living, t)
			continue
		}
		price := r.catalogue[r.live.Model(t.vm)].Price
		seconds := int64(math.Ceil((max(until, paid) - t.bought).Seconds()))
		r.out.Cost += price/3600*seconds + price%3600*seconds/3600
		r.live.Release(t.vm)
	}
	r.vms = living
}
