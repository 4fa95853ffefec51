package trace

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/yamldoc"
)

// maxColumns is the most bytes of a file of columns.
const maxColumns = 64 << 10

// tableFile is a table as a file of columns describes it.
type tableFile struct {
	files, row      string
	columns         []string
	when            matchFile
	user            userFile
	pod, container  []string
	inside          []string
	numbers         bool
	instances, gpus string
	cpu, memory     amountFile
	starts, ends    momentFile
	waiting         matchFile
	time            string
	event           eventFile
	reserved        matchFile
	key             string // of owners
}

type userFile struct{ column, is, empty string }

type matchFile struct {
	column string
	is     []string
}

type amountFile struct{ column, unit string }

type momentFile struct{ column, empty, zero string }

type eventFile struct {
	column                        string
	starts, ends, updates, others []string
}

// ParseColumns parses a file of columns: see the built-in ones in the directory columns, and
// docs/plan.md. Errors name lines and keys.
func ParseColumns(file string, data []byte) (*Columns, error) {
	doc, root, err := yamldoc.Parse(file, data, maxColumns)
	if err != nil {
		return nil, err
	}
	c, f := &Columns{name: nameOf(file)}, columnsFile{doc}
	var tables []tableFile
	var owners tableFile
	f.Mapping("", root, map[string]yamldoc.Key{
		"file":         yamldoc.Scalar(doc, &c.json, among(map[string]bool{"csv": false, "json": true})),
		"time":         yamldoc.Scalar(doc, &c.time, among(clocks)),
		"sorted":       yamldoc.Scalar(doc, &c.sorted, yamldoc.Bool),
		"at":           yamldoc.Scalar(doc, &c.atZero, among(map[string]bool{"0": true})),
		"broken_lines": yamldoc.Scalar(doc, &c.maxBroken, yamldoc.Count(1, 1<<30)),
		"containers":   yamldoc.Scalar(doc, &c.maxContainers, yamldoc.Count(1, 1<<30)),
		"tables":       doc.NotEmpty(doc.List(func(path string, n ast.Node) { tables = append(tables, f.table(path, n)) })),
		"owners":       func(path string, n ast.Node) { owners = f.owners(path, n) },
	})
	if f.Require("", "tables") && !f.Failed() {
		f.compile(c, tables, owners)
	}
	return c, doc.Err()
}

type columnsFile struct{ *yamldoc.Document }

func (f columnsFile) table(path string, n ast.Node) (t tableFile) {
	f.Mapping(path, n, map[string]yamldoc.Key{
		"files":     yamldoc.Scalar(f.Document, &t.files, yamldoc.Text),
		"row":       yamldoc.Scalar(f.Document, &t.row, yamldoc.Text),
		"columns":   f.texts(&t.columns),
		"when":      f.match(&t.when),
		"user":      f.user(&t.user),
		"pod":       f.texts(&t.pod),
		"container": f.texts(&t.container),
		"inside":    f.texts(&t.inside),
		"numbers":   yamldoc.Scalar(f.Document, &t.numbers, yamldoc.Bool),
		"instances": f.column(&t.instances),
		"cpu":       f.amount(&t.cpu, cpuUnits),
		"memory":    f.amount(&t.memory, memoryUnits),
		"gpus":      f.column(&t.gpus),
		"starts":    f.moment(&t.starts, "before", "never"),
		"ends":      f.moment(&t.ends, "after"),
		"waiting":   f.match(&t.waiting),
		"time":      f.column(&t.time),
		"event":     f.event(&t.event),
		"reserved":  f.match(&t.reserved),
	})
	f.Require(path, "pod", "container", "cpu", "memory")
	if f.Has(yamldoc.Join(path, "event")) != f.Has(yamldoc.Join(path, "time")) {
		f.Fail(path, "want time and event together: a row that is an event has both")
	}
	return t
}

func (f columnsFile) owners(path string, n ast.Node) (t tableFile) {
	f.Mapping(path, n, map[string]yamldoc.Key{
		"files":   yamldoc.Scalar(f.Document, &t.files, yamldoc.Text),
		"row":     yamldoc.Scalar(f.Document, &t.row, yamldoc.Text),
		"columns": f.texts(&t.columns),
		"key":     f.column(&t.key),
		"user":    f.column(&t.user.column),
	})
	f.Require(path, "files", "key", "user")
	return t
}

// among returns a parser of words.
func among[T any](words map[string]T) func(string) (T, error) {
	return func(word string) (T, error) {
		value, ok := words[word]
		if !ok {
			return value, fmt.Errorf("want one of %s, got %q", strings.Join(slices.Sorted(maps.Keys(words)), ", "), word)
		}
		return value, nil
	}
}

func (f columnsFile) column(to *string) yamldoc.Key {
	return yamldoc.Scalar(f.Document, to, yamldoc.Text)
}

// texts decodes one text or a list of them.
func (f columnsFile) texts(to *[]string) yamldoc.Key {
	return func(path string, n ast.Node) {
		if _, many := n.(*ast.SequenceNode); many {
			f.NotEmpty(yamldoc.Scalars(f.Document, to, yamldoc.Text))(path, n)
			return
		}
		var one string
		f.column(&one)(path, n)
		*to = append(*to, one)
	}
}

// user decodes a column, or a name for all rows.
func (f columnsFile) user(to *userFile) yamldoc.Key {
	return func(path string, n ast.Node) {
		if _, several := n.(ast.MapNode); !several {
			f.column(&to.column)(path, n)
			return
		}
		f.Mapping(path, n, map[string]yamldoc.Key{"column": f.column(&to.column), "is": f.column(&to.is),
			"empty": yamldoc.Scalar(f.Document, &to.empty, among(map[string]string{"unknown": "unknown"}))})
		if (to.column == "") == (to.is == "") {
			f.Fail(path, "want either column or is")
		}
	}
}

func (f columnsFile) match(to *matchFile) yamldoc.Key {
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{"column": f.column(&to.column), "is": f.texts(&to.is)})
		f.Require(path, "column", "is")
	}
}

func (f columnsFile) amount(to *amountFile, units map[string]unit) yamldoc.Key {
	word := func(text string) (string, error) {
		_, err := among(units)(text)
		return text, err
	}
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{"column": f.column(&to.column), "unit": yamldoc.Scalar(f.Document, &to.unit, word)})
		f.Require(path, "column")
	}
}

func (f columnsFile) moment(to *momentFile, empty ...string) yamldoc.Key {
	meaning := map[string]string{}
	for _, word := range empty {
		meaning[word] = word
	}
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{"column": f.column(&to.column),
			"empty": yamldoc.Scalar(f.Document, &to.empty, among(meaning)),
			"zero":  yamldoc.Scalar(f.Document, &to.zero, among(map[string]string{"after": "after"}))})
		f.Require(path, "column")
	}
}

func (f columnsFile) event(to *eventFile) yamldoc.Key {
	return func(path string, n ast.Node) {
		f.Mapping(path, n, map[string]yamldoc.Key{"column": f.column(&to.column), "starts": f.texts(&to.starts), "ends": f.texts(&to.ends),
			"updates": f.texts(&to.updates), "others": f.texts(&to.others)})
		f.Require(path, "column", "ends")
	}
}
