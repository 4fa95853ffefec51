package trace

import (
	"cmp"
	"maps"
	"math"
)

// span is a period in the unit of a trace.
type span struct{ from, to int64 }

// span returns the period in a unit of so many nanoseconds.
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

// overlaps reports whether something that runs from start until just before end is in the
// span.
func (s span) overlaps(start, end int64) bool { return start <= s.to && end > s.from }

// change is the effect of an event on a task.
type change uint8

const (
	starts change = iota
	ends
	updates
	nothing
	changes
)

// taskStates reduces events to the tasks that ran at some moment of a span: those that
// started at or before its end and had not ended at its beginning. The request of a task
// is its last one in the span.
//
// If events are ordered by time, tasks that ended are forgotten. Otherwise every task is
// remembered, and of events of one task at the same time, the later row counts.
type taskStates[K comparable] struct {
	span
	ordered bool
	tasks   map[K]taskState
	events  [changes]int
	lost    int // ends of tasks that never started; of ordered events, of tasks that do not run
}

// taskState is what is known of one task.
type taskState struct {
	request
	owner string
	asked int64 // time of the request
	at    int64 // time of the last start or end, at or before the beginning of the span
	known bool  // at is set
	on    bool  // it ran at the beginning
	ran   bool  // it started within the span
	began bool  // it started at some time
	ended bool  // it ended at some time
}

func newTaskStates[K comparable](s span, ordered bool) *taskStates[K] {
	return &taskStates[K]{span: s, ordered: ordered, tasks: map[K]taskState{}}
}

// event applies one event, at or before the end of the span.
func (l *taskStates[K]) event(task K, at int64, c change, q request, owner string) {
	l.events[c]++
	t, known := l.tasks[task]
	if !known && l.ordered && c != starts {
		if c == ends {
			l.lost++
		}
		return
	}
	t.began, t.ended = t.began || c == starts, t.ended || c == ends
	if c != ends && (!known || at >= t.asked) {
		t.request, t.asked = q, at
	}
	t.owner = cmp.Or(t.owner, owner)
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

// finish removes tasks outside the span, and counts all events but one start of each task
// that is left.
func (l *taskStates[K]) finish(rep *Report) {
	maps.DeleteFunc(l.tasks, func(_ K, t taskState) bool {
		if t.ended && !t.began {
			l.lost++
		}
		return !t.on && !t.ran
	})
	rep.lostEnds(l.lost, l.events[ends])
	rep.excluded[Superseded] += l.events[starts] - len(l.tasks)
	rep.excluded[EndEvent] += l.events[ends]
	rep.excluded[Update] += l.events[updates]
}
