package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
)

// ReadHistory reads when each pod was present. The format must have events sorted by time, such as
// google2011. Options.Period limits the time, by default all of the trace, from time 0 where Read
// reads that, else from the first event; a pod present before the period begins with it.
// ReadHistory returns the period it found. A pod that returns is named POD#2, and so on; one with #
// in its name is named POD#1. Users are sorted by name; that there are none is an error.
func ReadHistory(ctx context.Context, format string, paths []string, o Options) ([]cluster.History, Period, Report, error) {
	rep := Report{Format: format}
	c, err := o.columns(format)
	if err != nil {
		return nil, Period{}, rep, err
	}
	if !c.sorted || len(c.tables[0].pod) > 1 || len(c.tables[0].inside) > 0 {
		return nil, Period{}, rep, fmt.Errorf("replay %s: want google2011 or columns with the key sorted, a pod of one column and no inside: only events sorted by time can be replayed", format)
	}
	if o.Period == nil && c.atZero {
		o.Period = &Period{0, math.MaxInt64}
	}
	if err := o.complete(c); err != nil {
		return nil, Period{}, rep, err
	}
	h := &history{c: c, span: o.Period.span(c.time.tick), pods: map[taskID]*stay{}, before: map[taskID]int{}, most: o.MaxContainers, rep: &rep}
	owners, err := c.each(ctx, paths, &o, &rep, h.event)
	if err == nil {
		err = h.finish(ctx, owners, &o)
	}
	if err != nil {
		return nil, Period{}, rep, err
	}
	rep.lostEnds(h.lost, rep.excluded[EndEvent])
	histories := h.histories()
	rep.complete(nil)
	if last := h.time(h.last); last < h.time(h.to) {
		rep.Remarks = append(rep.Remarks, fmt.Sprintf("The last event is at %v, before the end of the period, %v (--at): what had not ended by then is priced until the end.", last, h.time(h.to)))
	}
	if len(histories) == 0 {
		return nil, Period{}, rep, rep.nothing(paths, &o)
	}
	for _, u := range histories {
		rep.Users++
		rep.Pods += len(u.Stays)
		for _, s := range u.Stays {
			rep.Containers += len(s.Pod.Containers)
		}
	}
	return histories, Period{h.time(h.from), h.time(h.to)}, rep, nil
}

type history struct {
	c *Columns
	span
	last       int64 // time of the last event
	pods       map[taskID]*stay
	before     map[taskID]int // past stays of a pod
	over       []*stay
	containers int
	most       int
	lost       int // ends of tasks that did not run
	rep        *Report
}

// stay is a pod while at least one of its tasks runs, or a past one.
type stay struct {
	pod      taskID // without its task
	owner    string
	number   int // of the stays of the pod, from 0
	from, to int64
	running  int
	tasks    map[ident]*taskStay
}

type taskStay struct {
	request
	runs bool
}

// event applies one event, at or before the end of the span.
func (h *history) event(e *record) error {
	h.last = e.at
	pod := taskID{0: e.task[0], 2: e.task[2]}
	switch e.change {
	case starts:
		return h.start(pod, e)
	case ends:
		h.rep.excluded[EndEvent]++
		h.end(pod, e)
	case updates:
		h.rep.excluded[Update]++
		if s := h.pods[pod]; s != nil && s.tasks[e.task[1]] != nil && e.why == kept {
			s.tasks[e.task[1]].grow(e.request)
		}
	}
	return nil
}

func (h *history) start(pod taskID, e *record) error {
	if e.why != kept {
		h.rep.count(e.request)
		return nil
	}
	s := h.pods[pod]
	if s == nil {
		s = &stay{pod: pod, number: h.before[pod], from: max(e.at, h.from), tasks: map[ident]*taskStay{}}
		h.pods[pod] = s
	}
	s.owner = cmp.Or(s.owner, e.user)
	t := s.tasks[e.task[1]]
	if t == nil {
		t = &taskStay{request: e.request}
		s.tasks[e.task[1]] = t
		if h.containers++; h.containers > h.most {
			return tooMany(h.most)
		}
	} else {
		h.rep.excluded[Repeated]++
		t.grow(e.request)
	}
	if !t.runs {
		t.runs = true
		s.running++
	}
	return nil
}

func (t *taskStay) grow(q request) { t.Resources = t.Resources.Max(q.Resources) }

func (h *history) end(pod taskID, e *record) {
	s := h.pods[pod]
	if s == nil || s.tasks[e.task[1]] == nil || !s.tasks[e.task[1]].runs {
		h.lost++
		return
	}
	s.tasks[e.task[1]].runs = false
	s.running--
	if e.at <= h.from {
		delete(s.tasks, e.task[1])
		h.containers--
		h.rep.excluded[Superseded]++
	}
	if s.running > 0 {
		return
	}
	delete(h.pods, s.pod)
	if len(s.tasks) > 0 {
		h.close(s, e.at)
	}
}

func (h *history) close(s *stay, at int64) {
	h.before[s.pod]++
	s.to = at
	h.over = append(h.over, s)
}

// finish ends the stays that go on at the end of the span, and finds the owners of all.
func (h *history) finish(ctx context.Context, owners []string, o *Options) error {
	if h.to == math.MaxInt64 {
		h.to = h.last
	}
	if h.from == math.MinInt64 {
		h.from = o.earliest.Load() / h.c.time.tick
	}
	for _, pod := range slices.SortedFunc(maps.Keys(h.pods), taskID.compare) {
		h.close(h.pods[pod], h.to)
	}
	users := map[ident]string{}
	for _, s := range h.over {
		if s.owner == "" {
			users[s.pod[0]] = ""
		}
	}
	if err := h.c.fillOwners(ctx, owners, users, o); err != nil {
		return err
	}
	for _, s := range h.over {
		s.owner = cmp.Or(s.owner, users[s.pod[0]])
	}
	return nil
}

func (h *history) histories() []cluster.History {
	slices.SortFunc(h.over, func(a, b *stay) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.from, b.from), a.pod.compare(b.pod), cmp.Compare(a.number, b.number))
	})
	var all []cluster.History
	for _, s := range h.over {
		if s.owner == "" {
			h.rep.excluded[NoOwner] += len(s.tasks)
			continue
		}
		if len(all) == 0 || all[len(all)-1].User != s.owner {
			all = append(all, cluster.History{User: s.owner})
		}
		u := &all[len(all)-1]
		u.Stays = append(u.Stays, cluster.Stay{Pod: h.pod(s), From: h.time(s.from), To: h.time(s.to)})
	}
	return all
}

func (h *history) pod(s *stay) cluster.Pod {
	p := cluster.Pod{Name: s.pod[0].String()}
	if s.number > 0 || strings.Contains(p.Name, "#") {
		p.Name += "#" + strconv.Itoa(s.number+1)
	}
	for _, i := range slices.SortedFunc(maps.Keys(s.tasks), ident.compare) {
		h.rep.count(s.tasks[i].request)
		_, name := h.c.tables[0].podName(taskID{s.pod[0], i}, nil)
		p.Containers = append(p.Containers, cluster.Container{Name: name, Request: s.tasks[i].Resources})
	}
	return p
}

func (h *history) time(t int64) time.Duration { return time.Duration(t * h.c.time.tick) }
