package trace

import (
	"cmp"
	"slices"
	"strings"
)

// compile turns tables as in the file into tables whose columns are cells.
func (f columnsFile) compile(c *Columns, tables []tableFile, owners tableFile) {
	for _, from := range tables {
		c.tables = append(c.tables, f.compiled(c, from, owners))
	}
	if owners.key != "" {
		c.owners = f.compiled(c, owners, owners)
	}
	if several := len(c.tables) > 1; several && slices.ContainsFunc(c.tables, func(t *table) bool { return t.columns == nil }) {
		f.Fail("tables", "want columns in each of several tables: only one table can have a header or be of JSON")
	}
	if events := slices.DeleteFunc(slices.Clone(c.tables), func(t *table) bool { return t.event < 0 }); len(events) > 1 {
		f.Fail("tables", "want one table of events, got %d", len(events))
	}
	for _, t := range append(slices.Clone(c.tables), c.owners) {
		if c.json && t != nil && slices.ContainsFunc(t.cells, func(a string) bool {
			return slices.ContainsFunc(t.cells, func(b string) bool { return strings.HasPrefix(b, a+".") })
		}) {
			f.Fail("tables", "a column of JSON is a value and has others in it: %s", strings.Join(t.cells, ", "))
		}
	}
	if c.sorted && slices.ContainsFunc(c.tables, func(t *table) bool { return t.event < 0 }) {
		f.Fail("sorted", "want a time and an event in each table: only events are sorted by time")
	}
}

func (f columnsFile) compiled(c *Columns, from, owners tableFile) *table {
	t := &table{files: from.files, row: cmp.Or(from.row, "a row of "+c.name), columns: from.columns, numbers: from.numbers}
	r := resolver{f, c, t}
	if t.columns != nil {
		t.cells = t.columns
	}
	t.user = userColumn{r.ref(from.user.column), from.user.is, from.user.empty != ""}
	t.when = r.match(from.when)
	if from.key != "" {
		t.task = []ref{r.ref(from.key)}
		return t
	}
	if t.user == (userColumn{ref: -1}) && (from.event.column == "" || owners.key == "") {
		f.Fail("tables", "key user is missing: only events whose users are in owners have none")
	}
	t.pod, t.container = r.names(from.pod), r.names(from.container)
	if len(t.task) > 2 {
		f.Fail("tables", "pod and container are named by more than two columns: %v, %v", from.pod, from.container)
	}
	t.cpu, t.memory = r.quantity(from.cpu, cpuUnits, "vcpu"), r.quantity(from.memory, memoryUnits, "bytes")
	t.starts, t.ends = r.moment(from.starts), r.moment(from.ends)
	t.instances = r.ref(from.instances)
	t.waiting, t.reserved = r.match(from.waiting), r.match(from.reserved)
	for _, column := range from.inside {
		t.inside = append(t.inside, r.ref(column))
	}
	t.time, t.event = r.time(from.time), r.ref(from.event.column)
	t.changes, t.rest = from.event.changes(), len(from.event.starts) == 0
	before := len(t.cells)
	t.gpus = r.ref(from.gpus)
	t.optional = len(t.cells) - before
	return t
}

// changes returns what each event does.
func (e eventFile) changes() map[string]change {
	all := map[string]change{}
	for c, words := range map[change][]string{starts: e.starts, ends: e.ends, updates: e.updates, nothing: e.others} {
		for _, word := range words {
			all[word] = c
		}
	}
	return all
}

// resolver finds the cells of columns.
type resolver struct {
	f columnsFile
	c *Columns
	t *table
}

// ref returns the cell of a column. It adds the cell if files name their columns.
func (r resolver) ref(column string) ref {
	if column == "" {
		return -1
	}
	at := slices.Index(r.t.cells, column)
	switch {
	case at >= 0:
	case r.t.columns != nil:
		r.f.Fail("tables", "column %q is not one of columns", column)
	default:
		at = len(r.t.cells)
		r.t.cells = append(r.t.cells, column)
	}
	return ref(at)
}

// names adds columns to those that name a task, and returns their places there.
func (r resolver) names(columns []string) (places []int) {
	for _, column := range columns {
		at := r.ref(column)
		if !slices.Contains(r.t.task, at) {
			r.t.task = append(r.t.task, at)
		}
		places = append(places, slices.Index(r.t.task, at))
	}
	return places
}

func (r resolver) match(from matchFile) match { return match{r.ref(from.column), from.is} }

func (r resolver) time(column string) ref {
	if column != "" && !r.c.timed() {
		r.f.Fail("tables", "column %q is a time: say its unit with the key time", column)
	}
	return r.ref(column)
}

func (r resolver) moment(from momentFile) moment {
	return moment{r.time(from.column), from.column, from.empty, from.zero}
}
