package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Event is what happens to a user's pods at a time. Those that depart go before
// others arrive.
type Event struct {
	At     time.Duration // since any start
	Depart []string      // names of pods
	Arrive []Pod         // of names that no present pod has
}

// ReplayOptions are those of Replay.
type ReplayOptions struct {
	Options
	// Split lets a pod without room on any VM be shared out among bought VMs on one
	// host, and containers migrate. False: Kubernetes, which never moves a pod.
	Split bool
	// Migrations is how many containers may move at an event. Only VMs that can be
	// emptied by it are; running VMs are not resized.
	Migrations int
	// Minimum is what a VM is billed for at least; 0: 60 s, as AWS does.
	Minimum time.Duration
}

// leastBilled is ReplayOptions.Minimum when that is 0.
const leastBilled = time.Minute

// Timeline is what pods that come and go cost.
type Timeline struct {
	Cost       int64 // billionths of a dollar
	Bought     int   // VMs
	Migrations int   // containers that moved
	States     []State
}

// State is how things are after an event.
type State struct {
	At   time.Duration
	VMs  int
	Rate int64 // billionths of a dollar for an hour
}

// Replay lets a user's pods come and go as the events say, whose times do not
// descend, until the given end. Pods that arrive together are placed biggest first,
// as Kubernetes does it. A VM is billed by the second from purchase to release; an
// empty one is released when its minimum is over, because it is paid until then.
// Pods that no model holds are an error: see Fit.
func Replay(name string, events []Event, end time.Duration, c Catalogue, o ReplayOptions) (Timeline, error) {
	var err error
	if o.Options, err = o.withDefaults(c); err != nil {
		return Timeline{}, err
	}
	if o.Minimum < 0 || o.Migrations < 0 {
		return Timeline{}, fmt.Errorf("minimum %v, migrations %d: want 0 or more", o.Minimum, o.Migrations)
	}
	if o.Minimum == 0 {
		o.Minimum = leastBilled
	}
	u := User{Name: name}
	for _, e := range events {
		u.Pods = append(u.Pods, e.Arrive...)
	}
	r := &replay{opts: o, packing: newPacking(newMarket(c), newCargo(u, nil), o.Options), present: map[string]int32{}}
	for i, e := range events {
		if i > 0 && e.At < events[i-1].At || e.At > end {
			return Timeline{}, fmt.Errorf("event %d of user %s is at %v: want times that do not descend, and none after %v", i, name, e.At, end)
		}
		if err := r.event(e); err != nil {
			return Timeline{}, fmt.Errorf("user %s at %v: %w", name, e.At, err)
		}
	}
	r.now = end
	for b := range r.bins {
		r.release(b, true)
	}
	return r.out, nil
}

// replay is a packing over time.
type replay struct {
	*packing
	opts    ReplayOptions
	ranking ranking // of bins, most requested first
	present map[string]int32
	arrived int32 // pods so far
	now     time.Duration
	bought  []time.Duration // by bin
	emptied []time.Duration // by bin, the last time
	out     Timeline
}

func (r *replay) event(e Event) error {
	r.now = e.At
	for _, name := range e.Depart {
		if err := r.depart(name); err != nil {
			return err
		}
	}
	for b := range r.bins {
		r.release(b, false)
	}
	if err := r.arrive(e.Arrive); err != nil {
		return err
	}
	if r.opts.Split {
		r.migrate()
	}
	s := State{At: r.now, Rate: r.cost}
	for _, b := range r.bins {
		if b.model >= 0 {
			s.VMs++
		}
	}
	r.out.States = append(r.out.States, s)
	return nil
}

func (r *replay) depart(name string) error {
	pod, ok := r.present[name]
	if !ok {
		return fmt.Errorf("pod %s departs: it is not there", name)
	}
	delete(r.present, name)
	from, to := r.pod(pod)
	for u := from; u < to; u++ {
		b := int(r.where[u])
		r.take(u)
		r.changed(b)
	}
	return nil
}

// changed ranks a bin anew, and notes since when it is empty.
func (r *replay) changed(b int) {
	r.rank(&r.ranking, b, r.requested)
	if len(r.bins[b].units) == 0 {
		r.emptied[b] = r.now
	}
}

// release bills a bin and lets it go: one that is empty and paid no longer, or any at
// the end.
func (r *replay) release(b int, end bool) {
	bin := &r.bins[b]
	if bin.model < 0 {
		return
	}
	paid := r.bought[b] + r.opts.Minimum
	until := r.now
	if len(bin.units) == 0 {
		until = r.emptied[b]
	} else if !end {
		return
	}
	if !end && paid > r.now {
		return
	}
	life := max(until, paid) - r.bought[b]
	seconds := int64(math.Ceil(life.Seconds()))
	r.out.Cost += r.catalogue[bin.model].Price / 3600 * seconds
	r.out.Cost += r.catalogue[bin.model].Price % 3600 * seconds / 3600
	r.ranking.remove(b)
	r.drop(b)
}

// arrive places pods, which come next in the user's order.
func (r *replay) arrive(pods []Pod) error {
	var order []int32
	for i, p := range pods {
		if _, there := r.present[p.Name]; there {
			return fmt.Errorf("pod %s arrives: one of that name is there", p.Name)
		}
		pod := r.arrived + int32(i)
		r.present[p.Name] = pod
		order = append(order, pod)
	}
	r.arrived += int32(len(pods))
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(r.size(r.user.Pods[b].Request()), r.size(r.user.Pods[a].Request()))
	})
	for _, pod := range order {
		if err := r.place(pod); err != nil {
			return err
		}
	}
	return nil
}

// place puts a pod on a bought VM, or shares it out, or buys a VM.
func (r *replay) place(pod int32) error {
	req := r.user.Pods[pod].Request()
	if b := r.ranking.first(req, nil); b >= 0 {
		r.putPod(pod, b)
		r.changed(b)
		return nil
	}
	if r.opts.Split && r.share(pod) {
		return nil
	}
	model := r.cheapest(req, 1)
	if model < 0 {
		return fmt.Errorf("pod %s needs %s: no model holds that; cut or drop it", r.user.Pods[pod].Name, req)
	}
	for _, b := range r.buyFor(pod, model, r.opts.Split) {
		r.bought, r.emptied = append(r.bought, r.now), append(r.emptied, r.now)
		r.out.Bought++
		r.changed(b)
	}
	return nil
}

// share puts the units of a pod, biggest first, on the most requested bought VMs, if
// all of them have room on the host of the first.
func (r *replay) share(pod int32) bool {
	from, to := r.pod(pod)
	units := make([]int32, 0, to-from)
	for u := from; u < to; u++ {
		units = append(units, u)
	}
	units = r.smallestFirst(units)
	host := -1
	for i, u := range slices.Backward(units) {
		b := r.ranking.first(r.units[u].req, func(b int) bool { return host < 0 || r.bins[b].host == host })
		if b < 0 {
			for _, back := range units[i+1:] {
				b := int(r.where[back])
				r.take(back)
				r.changed(b)
			}
			return false
		}
		host = r.bins[b].host
		r.put(u, b)
		r.changed(b)
	}
	return true
}

// migrate empties the VMs that waste most, while containers may move. They are
// released when they are paid no longer.
func (r *replay) migrate() {
	left := r.opts.Migrations
	for _, b := range r.emptying() {
		count := 0
		for _, u := range r.bins[b].units {
			count += len(r.units[u].containers)
		}
		if count == 0 || count > left || !r.evacuate(b) {
			continue
		}
		left -= count
		r.out.Migrations += count
		r.emptied[b] = r.now
		r.release(b, false)
	}
}

// evacuate moves all units of a bin to bought VMs that have something on them, or
// none.
func (r *replay) evacuate(b int) bool {
	r.ranking.remove(b)
	defer r.changed(b)
	units := r.smallestFirst(r.bins[b].units)
	for i, u := range slices.Backward(units) {
		reachable := r.reachable(u)
		t := r.ranking.first(r.units[u].req, func(t int) bool {
			return len(r.bins[t].units) > 0 && (reachable == nil || reachable(t))
		})
		if t < 0 {
			for _, back := range units[i+1:] {
				t := int(r.where[back])
				r.shift(back, b)
				r.rank(&r.ranking, t, r.requested)
			}
			return false
		}
		r.shift(u, t)
		r.rank(&r.ranking, t, r.requested)
	}
	return true
}
