package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"unnest/internal/plan/cluster"
)

// ReadHistory reads when each pod was present. The format must have events sorted by time:
// google2011. Options.Period limits the time, by default all of the trace; a pod present
// before the period begins with it. ReadHistory returns the period it found. A pod that
// returns is named POD#2, and so on. Users are sorted by name; that there are none is an
// error.
func ReadHistory(ctx context.Context, format string, paths []string, o Options) ([]cluster.History, Period, Report, error) {
	rep := Report{Format: format}
	if format != "google2011" {
		return nil, Period{}, rep, fmt.Errorf("replay %s: want google2011, the only format that is read as events over time", format)
	}
	if o.Period == nil {
		o.Period = &Period{0, math.MaxInt64}
	}
	if err := o.complete(format); err != nil {
		return nil, Period{}, rep, err
	}
	h := &history{span: o.Period.span(1000), jobs: map[int64]*stay2011{}, before: map[int64]int{}, most: o.MaxContainers, rep: &rep}
	jobs, err := eachTask2011(ctx, paths, &o, h.span, &rep, h.event)
	if err == nil {
		err = h.finish(ctx, jobs, &o)
	}
	if err != nil {
		return nil, Period{}, rep, err
	}
	histories := h.histories()
	rep.complete(nil)
	if last := h.time(h.last); last < h.time(h.to) {
		rep.Remarks = append(rep.Remarks, fmt.Sprintf("The last event is at %v, before the end of the period, %v (--at): what had not ended by then is priced until the end.", last, h.time(h.to)))
	}
	if len(histories) == 0 {
		return nil, Period{}, rep, rep.nothing(paths)
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
	span
	last       int64 // time of the last event
	jobs       map[int64]*stay2011
	before     map[int64]int // past stays of a job
	over       []*stay2011
	containers int
	most       int
	rep        *Report
}

// stay2011 is a job while at least one of its tasks runs, or a past one.
type stay2011 struct {
	job      int64
	owner    string
	number   int // of the stays of the job, from 0
	from, to int64
	running  int
	tasks    map[int64]*taskStay
}

type taskStay struct {
	request
	runs bool
}

// event applies one event, at or before the end of the span.
func (h *history) event(e *event2011) error {
	h.last = max(h.last, e.at)
	switch e.change {
	case starts:
		return h.start(e)
	case ends:
		h.rep.excluded[EndEvent]++
		h.end(e)
	case updates:
		h.rep.excluded[Update]++
		if s := h.jobs[e.task.collection]; s != nil && s.tasks[e.task.index] != nil && e.why == kept {
			s.tasks[e.task.index].grow(e.request)
		}
	}
	return nil
}

func (h *history) start(e *event2011) error {
	if e.why != kept {
		h.rep.count(e.request)
		return nil
	}
	s := h.jobs[e.task.collection]
	if s == nil {
		s = &stay2011{job: e.task.collection, number: h.before[e.task.collection], from: max(e.at, h.from), tasks: map[int64]*taskStay{}}
		h.jobs[e.task.collection] = s
	}
	s.owner = cmp.Or(s.owner, e.user)
	t := s.tasks[e.task.index]
	if t == nil {
		t = &taskStay{request: e.request}
		s.tasks[e.task.index] = t
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

func (t *taskStay) grow(q request) { t.Resources = larger(t.Resources, q.Resources) }

func (h *history) end(e *event2011) {
	s := h.jobs[e.task.collection]
	if s == nil || s.tasks[e.task.index] == nil || !s.tasks[e.task.index].runs {
		return
	}
	s.tasks[e.task.index].runs = false
	s.running--
	if e.at <= h.from {
		delete(s.tasks, e.task.index)
		h.containers--
		h.rep.excluded[Superseded]++
	}
	if s.running > 0 {
		return
	}
	delete(h.jobs, s.job)
	if len(s.tasks) > 0 {
		h.close(s, e.at)
	}
}

func (h *history) close(s *stay2011, at int64) {
	h.before[s.job]++
	s.to = at
	h.over = append(h.over, s)
}

// finish ends the stays that go on at the end of the span, and finds the owners of all.
func (h *history) finish(ctx context.Context, jobs []string, o *Options) error {
	if h.to == math.MaxInt64 {
		h.to = h.last
	}
	for _, job := range slices.Sorted(maps.Keys(h.jobs)) {
		h.close(h.jobs[job], h.to)
	}
	users := map[int64]string{}
	for _, s := range h.over {
		if s.owner == "" {
			users[s.job] = ""
		}
	}
	if err := findOwners(ctx, jobs, users, o, parseJob2011); err != nil {
		return err
	}
	for _, s := range h.over {
		s.owner = cmp.Or(s.owner, users[s.job])
	}
	return nil
}

func (h *history) histories() []cluster.History {
	slices.SortFunc(h.over, func(a, b *stay2011) int {
		return cmp.Or(cmp.Compare(a.owner, b.owner), cmp.Compare(a.from, b.from), cmp.Compare(a.job, b.job), cmp.Compare(a.number, b.number))
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

func (h *history) pod(s *stay2011) cluster.Pod {
	p := cluster.Pod{Name: strconv.FormatInt(s.job, 10)}
	if s.number > 0 {
		p.Name += "#" + strconv.Itoa(s.number+1)
	}
	for _, i := range slices.Sorted(maps.Keys(s.tasks)) {
		h.rep.count(s.tasks[i].request)
		p.Containers = append(p.Containers, cluster.Container{Name: index(int(i)), Request: s.tasks[i].Resources})
	}
	return p
}

func (h *history) time(µs int64) time.Duration { return time.Duration(µs) * time.Microsecond }
