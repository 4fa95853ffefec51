package trace

import "math"

// span is a period in the unit of a trace.
type span struct{ from, to int64 }

// span returns the period in units of a trace, of which one has so many nanoseconds.
func (p Period) span(unit int64) span {
	s := span{int64(p.From) / unit, int64(p.To) / unit}
	if p.From == math.MinInt64 {
		s.from = math.MinInt64
	}
	if p.To == math.MaxInt64 {
		s.to = math.MaxInt64
	}
	return s
}

// overlaps reports whether what runs from start until just before end is in the span.
func (s span) overlaps(start, end int64) bool { return start <= s.to && end > s.from }

// change is what an event does to a task.
type change uint8

const (
	starts change = iota
	ends
	updates
)

// lives follows events of tasks to those that ran at some moment of a span: the ones
// that started at or before its end and had not ended at its beginning. A task's
// request is the last that it had in the span.
//
// Where events come in the order of time, tasks that ended are forgotten. Where they
// do not, every task that is named by then is remembered; of events of one task at
// the same time, the later row counts.
type lives[K comparable] struct {
	span
	ordered bool
	tasks   map[K]life
	starts  int
	ends    int
	updates int
}

// life is what is known of one task.
type life struct {
	request
	owner string
	asked int64 // when the request was made
	at    int64 // when it last started or ended, at or before the beginning
	known bool  // at is set
	on    bool  // it ran at the beginning
	ran   bool  // it started later, but within
}

func newLives[K comparable](s span, ordered bool) *lives[K] {
	return &lives[K]{span: s, ordered: ordered, tasks: map[K]life{}}
}

// event applies one event, at or before the end of the span.
func (l *lives[K]) event(task K, at int64, c change, q request, owner string) {
	switch c {
	case starts:
		l.starts++
	case ends:
		l.ends++
	case updates:
		l.updates++
	}
	t, known := l.tasks[task]
	if !known && l.ordered && c != starts {
		return
	}
	if c != ends && (!known || at >= t.asked) {
		t.request, t.asked = q, at
	}
	if t.owner == "" {
		t.owner = owner
	}
	switch {
	case c == updates:
	case at > l.from:
		t.ran = t.ran || c == starts
	case !t.known || at >= t.at:
		t.known, t.at, t.on = true, at, c == starts
	}
	if l.ordered && !t.on && !t.ran {
		delete(l.tasks, task)
		return
	}
	l.tasks[task] = t
}

// finish forgets what was not in the span, and counts all events but one start of
// each task that is left.
func (l *lives[K]) finish(rep *Report) {
	for task, t := range l.tasks {
		if !t.on && !t.ran {
			delete(l.tasks, task)
		}
	}
	rep.excluded[Superseded] += l.starts - len(l.tasks)
	rep.excluded[EndEvent] += l.ends
	rep.excluded[Update] += l.updates
}
