package trace

import (
	"embed"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Columns say which columns of the tables of a trace name users, pods and containers, and which
// have their requests and times. Columns are data: those of public traces are YAML files in the
// binary, and a user's own trace needs no more than such a file (docs/plan.md).
type Columns struct {
	name    string
	kubectl bool // dumps of a cluster, which have no columns
	json    bool // a JSON object in each line; else CSV
	time    clock
	sorted  bool // by time, within and across files
	atZero  bool // unless Options.Period says otherwise, what ran at time 0 is read
	tables  []*table
	owners  *table // of users by pod; nil: rows name their users

	maxBroken, maxContainers int // for Options that do not say; 0: the default
}

// clock is the unit of times. A trace without times has none.
type clock struct {
	unit  string
	tick  int64 // in nanoseconds
	ticks int64 // of a unit; a time is rounded to one
}

// clocks are the units that files of columns name.
var clocks = map[string]clock{"us": {"µs", 1000, 1}, "ms": {"ms", 1e6, 1}, "s": {"s", 1e9, 1}, "day": {"days", 1, 24 * 3600 * 1e9}}

func (c *Columns) timed() bool { return c.time.tick > 0 }

// streams reports whether the trace can be read from one stream.
func (c *Columns) streams() bool { return c.owners == nil }

// table is one kind of rows.
type table struct {
	files   string   // begins the names of its files or directories; empty: the only table
	row     string   // what a row is called
	columns []string // of a file without a header; nil: the first line names them
	when    match    // tells the rows of tables in the same files apart
	cells   []string // the columns that are read, to which ref points

	user      userColumn
	task      []ref // columns that name a task: at most two, of the pod first
	pod       []int // which of them name the pod
	container []int // and the container
	inside    []ref // columns that name the pod that a task is in, where they are not empty, 0 or below
	numbers   bool  // names are whole numbers, by which pods are sorted
	instances ref   // number of equal containers
	cpu       quantityColumn
	memory    quantityColumn
	gpus      ref
	optional  int // of the last cells: a header may lack them

	starts, ends moment // of rows that are tasks
	waiting      match  // not started yet

	time     ref // of rows that are events of tasks
	event    ref // -1: rows are tasks
	changes  map[string]change
	rest     bool // other events start
	reserved match
}

// ref is the index of a cell; -1: none.
type ref int

type userColumn struct {
	ref
	is      string
	unknown bool // a row without a user is left out; else it is broken
}

// match is values of a column.
type match struct {
	ref
	is []string
}

func (m match) of(cells [][]byte) bool {
	return m.ref >= 0 && slices.Contains(m.is, string(cells[m.ref]))
}

// moment is the column with a start or an end.
type moment struct {
	ref
	column string
	empty  string // what no time means: before, never or after; empty: a broken row
	zero   string // what 0 means: after; empty: 0
}

// mayLack reports whether a column may be empty in all rows, because that says something.
func (t *table) mayLack(at ref) bool {
	return slices.Contains(append([]ref{t.gpus, t.when.ref, t.waiting.ref, t.reserved.ref}, t.inside...), at) ||
		slices.ContainsFunc([]moment{t.starts, t.ends}, func(m moment) bool { return m.ref == at && m.empty != "" })
}

//go:embed columns/*.yaml
var builtin embed.FS

// builtinColumns returns the columns of a public trace, or nil.
func builtinColumns(format string) *Columns {
	name := path.Join("columns", format+".yaml")
	data, err := builtin.ReadFile(name)
	if err != nil {
		return nil
	}
	c, err := ParseColumns(name, data)
	if err != nil {
		panic(fmt.Sprintf("columns of %s: %v", format, err)) // they are part of the program
	}
	return c
}

// builtinNames returns the names of the public traces and of our own format, sorted.
func builtinNames() (names []string) {
	entries, err := builtin.ReadDir("columns")
	if err != nil {
		panic(fmt.Sprintf("read the columns of traces: %v", err)) // they are part of the program
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Name returns the name of the format: that of the file without its extension.
func (c *Columns) Name() string { return c.name }

func nameOf(file string) string {
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}
