package quota

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/yamldoc"
)

// ErrGuest is wrapped when the configuration has a guest already, or does not have it.
var ErrGuest = errors.New("guest")

// errLayout is wrapped when the file's layout is one that edits do not know.
var errLayout = errors.New("edit the file by hand: want the list guests with each guest on lines of its own")

// AddGuest returns a configuration file with one more guest, at the end of the list. All
// other lines stay as they are. The error is that of Parse if the guest conflicts with the
// file.
func AddGuest(name string, content []byte, g Guest) ([]byte, error) {
	p, err := Parse(name, content)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(p.Guests, func(o Guest) bool { return o.Name == g.Name }) {
		return nil, fmt.Errorf("%w %s is in %s already", ErrGuest, g.Name, name)
	}
	f, err := findGuests(name, content)
	if err != nil {
		return nil, err
	}
	text, err := f.describe(g, p.Pool)
	if err != nil {
		return nil, err
	}
	p.Guests = append(p.Guests, g)
	return f.check(name, p, f.insert(text))
}

// RemoveGuest returns a configuration file without a guest. All other lines stay as they
// are, also comments before the guest.
func RemoveGuest(name string, content []byte, guest string) ([]byte, error) {
	p, err := Parse(name, content)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(p.Guests, func(g Guest) bool { return g.Name == guest })
	if i < 0 {
		return nil, fmt.Errorf("%w %s is not in %s", ErrGuest, guest, name)
	}
	f, err := findGuests(name, content)
	if err != nil {
		return nil, err
	}
	if p.Guests = slices.Delete(p.Guests, i, i+1); len(p.Guests) == 0 {
		p.Guests = nil
	}
	return f.check(name, p, f.remove(i))
}

// guestLines are the lines of a file, of which some are the list guests.
type guestLines struct {
	lines  []string
	key    int   // index of the line "guests:", -1 if there is none
	starts []int // indexes of the lines on which guests begin
}

func findGuests(name string, content []byte) (f guestLines, err error) {
	f = guestLines{lines: strings.SplitAfter(string(content), "\n"), key: -1}
	if last := len(f.lines) - 1; f.lines[last] == "" {
		f.lines = f.lines[:last]
	}
	_, root, err := yamldoc.Parse(name, content, maxFile)
	if err != nil {
		return f, err
	}
	m, ok := root.(*ast.MappingNode)
	if !ok || m.IsFlowStyle {
		return f, fmt.Errorf("%s:1: %w", name, errLayout)
	}
	for i := m.MapRange(); i.Next(); {
		if i.Key().GetToken().Value != "guests" {
			continue
		}
		f.key = i.Key().GetToken().Position.Line - 1
		list, ok := i.Value().(*ast.SequenceNode)
		if !ok || list.IsFlowStyle && len(list.Values) > 0 {
			return f, fmt.Errorf("%s:%d: %w", name, f.key+1, errLayout)
		}
		for _, e := range list.Entries {
			f.starts = append(f.starts, e.Start.Position.Line-1)
		}
	}
	return f, nil
}

// indent returns the blanks at the beginning of a line; ok is false for an empty line.
func indent(line string) (blanks int, ok bool) {
	rest := strings.TrimLeft(line, " ")
	return len(line) - len(rest), strings.TrimSpace(rest) != ""
}

// end returns the index of the line after a guest: its lines are indented deeper than the
// dash.
func (f guestLines) end(start int) int {
	dash, _ := indent(f.lines[start])
	end := start + 1
	for i := end; i < len(f.lines); i++ {
		blanks, text := indent(f.lines[i])
		if text && blanks <= dash {
			break
		}
		if text {
			end = i + 1
		}
	}
	return end
}

var emptyList = regexp.MustCompile(`^(\s*guests:)(\s*\[\s*\])?`)

func (f guestLines) insert(text []string) []string {
	lines := slices.Clone(f.lines)
	if last := len(lines) - 1; !strings.HasSuffix(lines[last], "\n") {
		lines[last] += "\n"
	}
	switch {
	case f.key < 0:
		return slices.Concat(lines, []string{"guests:\n"}, text)
	case len(f.starts) == 0:
		lines[f.key] = emptyList.ReplaceAllString(lines[f.key], "$1")
		return slices.Insert(lines, f.key+1, text...)
	}
	return slices.Insert(lines, f.end(f.starts[len(f.starts)-1]), text...)
}

func (f guestLines) remove(i int) []string {
	lines := slices.Clone(f.lines)
	if len(f.starts) == 1 {
		lines[f.key] = emptyList.ReplaceAllString(lines[f.key], "$1 []")
	}
	return slices.Delete(lines, f.starts[i], f.end(f.starts[i]))
}

// describe returns the lines of a guest, indented as the others are. It leaves out what
// Parse adds.
func (f guestLines) describe(g Guest, pool int) ([]string, error) {
	content, err := yaml.Marshal([]Guest{g})
	if err != nil {
		return nil, fmt.Errorf("describe guest %s: %w", g.Name, err)
	}
	blanks := 2
	if len(f.starts) > 0 {
		blanks, _ = indent(f.lines[f.starts[0]])
	}
	var lines []string
	for line := range strings.Lines(string(content)) {
		if g.Pool == pool && strings.TrimSpace(line) == fmt.Sprintf("pool: %d", pool) {
			continue
		}
		lines = append(lines, strings.Repeat(" ", blanks)+line)
	}
	return lines, nil
}

// check returns the lines if they mean want.
func (f guestLines) check(name string, want Config, lines []string) ([]byte, error) {
	content := []byte(strings.Join(lines, ""))
	got, err := Parse(name, content)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(got, want) {
		return nil, fmt.Errorf("%s: %w", name, errLayout)
	}
	return content, nil
}
