package experiment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// document walks a YAML document by its known keys. It remembers on which line
// each key stands, and collects everything that is wrong instead of stopping at
// the first error.
type document struct {
	file  string
	lines map[string]int // "cases[1].sizes" -> line
	wrong []mistake
}

type mistake struct {
	line int
	text string
}

// key decodes the value of one key; path names it in errors.
type key func(path string, value ast.Node)

// The bounds of an experiment file: a sensible one has a few kilobytes and some
// dozen lists, and the parser takes quadratic time for deep nesting.
const (
	maxFile     = 32 << 10
	maxBrackets = 4096
)

// parseYAML returns the only document in data.
func parseYAML(file string, data []byte) (root ast.Node, err error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: the file has %d bytes: an experiment file has at most %d", file, len(data), maxFile)
	}
	if n := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{")); n > maxBrackets {
		return nil, fmt.Errorf("%s: the file has %d opening brackets: an experiment file has at most %d", file, n, maxBrackets)
	}
	defer func() { // the parser is known to trip over some broken input
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("%s:1: parse YAML: broken beyond the parser's understanding (%v)", file, r)
		}
	}()
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	docs := slices.DeleteFunc(parsed.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil })
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s:1: the file is empty: an experiment has at least name, suite, configurations and cases", file)
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s:%d: a second document begins: write one experiment per file", file, line(docs[1].Body))
	}
	return docs[0].Body, nil
}

// syntaxError puts an error of the YAML parser on one line.
func syntaxError(file string, err error) error {
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		first, _, _ := strings.Cut(err.Error(), "\n")
		return fmt.Errorf("%s:1: parse YAML: %s", file, first)
	}
	message := strings.ReplaceAll(syntax.GetMessage(), "\n", " ")
	return fmt.Errorf("%s:%d: parse YAML: %s", file, syntax.GetToken().Position.Line, message)
}

func line(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return line(m.Values[0].Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// fail notes that what stands at path is wrong.
func (d *document) fail(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	d.wrong = append(d.wrong, mistake{d.line(path), text})
}

// line returns where path stands, or else the nearest thing that holds it.
func (d *document) line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return cmp.Or(d.lines[""], 1)
}

// err returns what is wrong, in the order of the lines, one line each.
func (d *document) err() error {
	slices.SortStableFunc(d.wrong, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, m := range d.wrong {
		errs = append(errs, fmt.Errorf("%s:%d: %s", d.file, m.line, m.text))
	}
	return errors.Join(errs...)
}

// mapping decodes the keys of n by their names; a key that is not among them
// is wrong.
func (d *document) mapping(path string, n ast.Node, keys map[string]key) {
	d.lines[path] = line(n)
	m, ok := n.(ast.MapNode)
	if !ok {
		d.fail(path, "want keys and values such as %s, got %s", example(keys), kind(n))
		return
	}
	for i := m.MapRange(); i.Next(); {
		name := i.Key().GetToken().Value
		at := join(path, name)
		d.lines[at] = line(i.Key())
		decode, known := keys[name]
		if !known {
			d.fail(at, "unknown key: %s", suggest(name, keys))
			continue
		}
		decode(at, i.Value())
	}
}

// list decodes each element of a sequence.
func (d *document) list(each func(path string, n ast.Node)) key {
	return func(path string, n ast.Node) {
		s, ok := n.(*ast.SequenceNode)
		if !ok {
			d.fail(path, "want a list, got %s", kind(n))
			return
		}
		if len(s.Values) == 0 {
			d.fail(path, "the list is empty")
		}
		for i, value := range s.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.lines[at] = line(value)
			each(at, value)
		}
	}
}

// scalar decodes one value by parse, whose error says what it wants.
func scalar[T any](d *document, to *T, parse func(string) (T, error)) key {
	return func(path string, n ast.Node) {
		text, ok := scalarText(n)
		if !ok {
			d.fail(path, "want a single value, got %s", kind(n))
			return
		}
		value, err := parse(text)
		if err != nil {
			d.fail(path, "%v", err)
			return
		}
		*to = value
	}
}

// scalars decodes a list of values.
func scalars[T any](d *document, to *[]T, parse func(string) (T, error)) key {
	return d.list(func(path string, n ast.Node) {
		var value T
		scalar(d, &value, parse)(path, n)
		*to = append(*to, value)
	})
}

// scalarText returns the text of a scalar as it was written, without quotes.
func scalarText(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.NullNode:
		return "", true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

// kind names what stands where something else was wanted.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "keys and values"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return "a YAML anchor, alias or tag, which experiment files do not have"
	}
	if text, ok := scalarText(n); ok && text != "" {
		return fmt.Sprintf("%q", text)
	}
	return "nothing"
}

// join appends a key to a path, quoted when it would garble an error.
func join(path, key string) string {
	if _, err := parseName(key); err != nil {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
