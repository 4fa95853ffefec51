package trace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unique"
)

// ident is a name in a trace: a whole number, or a text. Equal names are equal, whatever file they
// are from.
type ident struct {
	n    int64
	text unique.Handle[string] // the zero value: n
}

func textIdent(text []byte) ident { return ident{text: unique.Make(string(text))} }

// String returns the name. Low numbers share their memory.
func (i ident) String() string {
	if i.text == (unique.Handle[string]{}) {
		return index(int(i.n))
	}
	return i.text.Value()
}

// taskID names a task by at most two columns, such as the job and the index, and by the user unless
// there is a table of owners.
type taskID [3]ident

// record is a row of a table.
type record struct {
	of        *table
	user      string
	pod, name string  // of a row that is a task
	task      taskID  // of an event
	inside    *taskID // likewise, the pod that the task is in; nil: see table.pod
	instances int64
	at        int64 // of an event
	request
	change change // of an event
	gpu    bool
}

// parser reads the rows of a file.
type parser struct {
	c     *Columns
	o     *Options
	span  span
	seen  names
	last  int64 // time of the last row
	begun bool
}

// parse returns how to read lines.
func (c *Columns) parse(o *Options) parse[record] {
	p, split := &parser{c: c, o: o, span: o.Period.span(max(c.time.tick, 1)), seen: names{}}, c.splitter(c.tables)
	return func(line []byte, r *record) (Reason, error) {
		t, cells, why, err := split(line)
		if err != nil || why != kept {
			return why, err
		}
		for i := range o.filled {
			if len(cells[i]) > 0 && !o.filled[i].Load() {
				o.filled[i].Store(true)
			}
		}
		*r = record{of: t}
		if t.event >= 0 {
			return p.event(cells, r)
		}
		return p.whole(cells, r)
	}
}

// event reads a row that is an event of a task.
func (p *parser) event(cells [][]byte, r *record) (Reason, error) {
	t := r.of
	if err := p.eventTime(cells, r); err != nil {
		return kept, err
	}
	err := p.names(cells, r)
	if err != nil {
		return kept, err
	}
	if r.request, err = t.request(cells, p.o); err != nil {
		return kept, err
	}
	c, known := t.changes[string(cells[t.event])]
	switch {
	case !known && !t.rest:
		return kept, fmt.Errorf("%s %q: want one of %s", t.cells[t.event], clip(cells[t.event]), strings.Join(slices.Sorted(maps.Keys(t.changes)), ", "))
	case !known:
		c = starts
	}
	r.change = c
	switch {
	case t.reserved.of(cells):
		return Reserved, nil
	case r.at > p.span.to, r.at == math.MaxInt64: // google2011's "after the trace"
		return Outside, nil
	case c == nothing:
		return OtherEvent, nil
	case r.user == "" && p.c.owners == nil:
		return NoOwner, nil
	}
	return kept, nil
}

// eventTime reads the time of an event, and checks the order of sorted traces.
func (p *parser) eventTime(cells [][]byte, r *record) (err error) {
	column, clock := r.of.cells[r.of.time], p.c.time
	if r.at, err = whole(column, cells[r.of.time]); err != nil {
		return err
	}
	if most := math.MaxInt64 / clock.ticks / clock.tick; r.at != math.MaxInt64 {
		if r.at > most || r.at < -most {
			return inColumn(column, cells[r.of.time], errTooLarge)
		}
		r.at *= clock.ticks
	}
	p.o.saw(r.at, clock.tick)
	switch {
	case !p.c.sorted:
		return nil
	case !p.begun && r.at > p.span.to:
		return errPast
	case p.begun && r.at < p.last:
		return fatal{fmt.Errorf("time goes back from %d to %d %s: sort the file by its column %q", p.last, r.at, clock.unit, column)}
	}
	p.last, p.begun = r.at, true
	return nil
}

// whole reads a row that is a task from its start to its end.
func (p *parser) whole(cells [][]byte, r *record) (Reason, error) {
	t := r.of
	var err error
	if r.user, err = p.user(cells, t); err != nil {
		return kept, err
	}
	if r.pod, err = p.text(t, cells, t.pod); err != nil {
		return kept, err
	}
	if r.name = r.pod; len(t.task) > 1 {
		if r.name, err = p.text(t, cells, t.container); err != nil {
			return kept, err
		}
	}
	if r.request, err = t.request(cells, p.o); err != nil {
		return kept, err
	}
	r.instances = 1
	if t.instances >= 0 {
		if r.instances, err = instances(t.cells[t.instances], cells[t.instances]); err != nil {
			return kept, err
		}
	}
	r.gpu = t.gpus >= 0 && some(cells[t.gpus])
	if r.user == "" {
		return NoOwner, nil
	}
	return p.within(cells, t)
}

// within returns Outside for a row that runs outside the span.
func (p *parser) within(cells [][]byte, t *table) (Reason, error) {
	from, err := p.c.time.moment(t.starts, cells, p.o)
	if err != nil {
		return kept, err
	}
	to := int64(math.MaxInt64)
	if t.ends.ref >= 0 {
		if to, err = p.c.time.moment(t.ends, cells, p.o); err != nil {
			return kept, err
		}
	}
	waits := t.waiting.of(cells) || from == math.MaxInt64
	if !p.o.Period.all() && (waits || !p.span.overlaps(from, to)) {
		return Outside, nil
	}
	return kept, nil
}

func (p *parser) user(cells [][]byte, t *table) (string, error) {
	if t.user.ref < 0 {
		return t.user.is, nil
	}
	if len(cells[t.user.ref]) == 0 && !t.user.unknown && (t.event < 0 || p.c.owners == nil) {
		return "", errors.New("the user has no name")
	}
	return p.seen.of(cells[t.user.ref]), nil
}

func (p *parser) names(cells [][]byte, r *record) (err error) {
	t := r.of
	if r.user, err = p.user(cells, t); err != nil {
		return err
	}
	if r.task, err = p.task(t, cells, t.task); err != nil {
		return err
	}
	if p.c.owners == nil {
		r.task[2] = textIdent([]byte(r.user))
	}
	if len(t.inside) == 0 {
		return nil
	}
	for _, at := range t.inside {
		if len(cells[at]) == 0 || cells[at][0] == '-' {
			return nil
		}
	}
	pod, err := p.task(t, cells, t.inside)
	if err == nil && pod[0] != (ident{}) {
		r.inside = &pod
	}
	return err
}

// task reads the columns that name something.
func (p *parser) task(t *table, cells [][]byte, columns []ref) (id taskID, err error) {
	for i, at := range columns {
		switch {
		case t.numbers:
			id[i].n, err = whole(t.cells[at], cells[at])
		case len(cells[at]) == 0:
			err = fmt.Errorf("the %s has no name", t.called(at))
		default:
			id[i] = textIdent(cells[at])
		}
		if err != nil {
			return id, err
		}
	}
	return id, nil
}

// text returns the name that some of the columns of a task make, with / between them.
func (p *parser) text(t *table, cells [][]byte, places []int) (name string, err error) {
	for i, place := range places {
		at := t.task[place]
		if len(cells[at]) == 0 {
			return "", fmt.Errorf("the %s has no name", t.called(at))
		}
		if t.numbers {
			if _, err := whole(t.cells[at], cells[at]); err != nil {
				return "", err
			}
		}
		switch {
		case i > 0:
			name += "/" + p.seen.of(cells[at])
		case len(t.task) == 1: // each row has another
			name = string(cells[at])
		default:
			name = p.seen.of(cells[at])
		}
	}
	return name, nil
}

// called returns what a column names.
func (t *table) called(at ref) string {
	if at == t.task[t.pod[0]] {
		return "pod"
	}
	return "container"
}

func (id taskID) compare(other taskID) int {
	return slices.CompareFunc(id[:], other[:], ident.compare)
}

// compare orders names by their numbers, else by their texts.
func (i ident) compare(other ident) int {
	if i.text == other.text {
		return cmp.Compare(i.n, other.n)
	}
	return cmp.Compare(i.String(), other.String())
}

func (t *table) podName(task taskID, inside *taskID) (pod, container string) {
	if inside != nil {
		return inside.join([]int{0, 1}[:len(t.inside)]), task.join([]int{0, 1}[:len(t.task)])
	}
	return task.join(t.pod), task.join(t.container)
}

// join returns the texts of some columns, with / between them.
func (id taskID) join(places []int) string {
	var texts []string
	for _, i := range places {
		texts = append(texts, id[i].String())
	}
	return strings.Join(texts, "/")
}

func instances(column string, text []byte) (int64, error) {
	if a, err := amountOf(column, text, 1e9, 0); err == nil && a.why == kept && a.value%1e9 == 0 {
		return a.value / 1e9, nil
	}
	return 0, inColumn(column, text, errors.New("want a whole number from 0"))
}
