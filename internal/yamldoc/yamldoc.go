// Package yamldoc walks a YAML document by its known keys. It remembers on which
// line each key stands, and collects everything that is wrong, as
// "file:line: key: what is wanted, and what was found", instead of stopping at
// the first error. An unknown key is wrong, and the nearest known one is
// suggested.
//
// What the keys mean belongs to the package whose file it is.
package yamldoc

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

// Document is what is known of a document while its keys are decoded.
type Document struct {
	file  string
	lines map[string]int // "cases[1].sizes" -> line
	wrong []mistake
}

type mistake struct {
	line int
	text string
}

// Key decodes the value of one key; path names it in errors.
type Key func(path string, value ast.Node)

// bytesPerBracket bounds how many lists and mappings a file of so many bytes may
// have: a sensible one has fewer, and the parser takes quadratic time for deep
// nesting.
const bytesPerBracket = 8

// Parse returns the only document in data, of at most so many bytes, and its
// root. The name file stands for it in errors.
func Parse(file string, data []byte, most int) (*Document, ast.Node, error) {
	if len(data) > most {
		return nil, nil, fmt.Errorf("%s: the file has %d bytes: want at most %d", file, len(data), most)
	}
	brackets := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{"))
	if most := most / bytesPerBracket; brackets > most {
		return nil, nil, fmt.Errorf("%s: the file has %d opening brackets: want at most %d", file, brackets, most)
	}
	root, err := parse(file, data)
	if err != nil {
		return nil, nil, err
	}
	return &Document{file: file, lines: map[string]int{}}, root, nil
}

func parse(file string, data []byte) (root ast.Node, err error) {
	defer func() { // the parser is known to trip over some broken input
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("%s:1: parse YAML: broken beyond the parser's understanding (%v)", file, r)
		}
	}()
	parsed, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, syntaxError(file, err)
	}
	docs := slices.DeleteFunc(parsed.Docs, func(d *ast.DocumentNode) bool { return d.Body == nil || d.Body.Type() == ast.CommentType })
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s:1: the file is empty", file)
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s:%d: a second document begins: want one in a file", file, line(docs[1].Body))
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

// Fail notes that what stands at path is wrong.
func (d *Document) Fail(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	d.wrong = append(d.wrong, mistake{d.line(path), text})
}

// line returns where path stands, or else the nearest thing that holds it.
func (d *Document) line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return cmp.Or(d.lines[""], 1)
}

// Failed reports whether anything was found to be wrong.
func (d *Document) Failed() bool { return len(d.wrong) > 0 }

// Err returns what is wrong, in the order of the lines, one line each.
func (d *Document) Err() error {
	slices.SortStableFunc(d.wrong, func(a, b mistake) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, m := range d.wrong {
		errs = append(errs, fmt.Errorf("%s:%d: %s", d.file, m.line, m.text))
	}
	return errors.Join(errs...)
}

// Has reports whether the document has the key at path.
func (d *Document) Has(path string) bool {
	_, ok := d.lines[path]
	return ok
}

// Require notes each key that the document lacks below path, and reports whether
// there are all.
func (d *Document) Require(path string, keys ...string) bool {
	complete := true
	for _, k := range keys {
		if !d.Has(Join(path, k)) {
			d.Fail(path, "key %s is missing", k)
			complete = false
		}
	}
	return complete
}

// Mapping decodes the keys of n by their names; a key that is not among them is
// wrong.
func (d *Document) Mapping(path string, n ast.Node, keys map[string]Key) {
	d.lines[path] = line(n)
	m, ok := n.(ast.MapNode)
	if !ok {
		d.Fail(path, "want keys and values such as %s, got %s", example(keys), kind(n))
		return
	}
	for i := m.MapRange(); i.Next(); {
		name := i.Key().GetToken().Value
		at := Join(path, name)
		d.lines[at] = line(i.Key())
		decode, known := keys[name]
		if !known {
			d.Fail(at, "unknown key: %s", suggest(name, keys))
			continue
		}
		decode(at, i.Value())
	}
}

// List decodes each element of a sequence, which may be empty.
func (d *Document) List(each func(path string, n ast.Node)) Key {
	return func(path string, n ast.Node) {
		s, ok := n.(*ast.SequenceNode)
		if !ok {
			d.Fail(path, "want a list, got %s", kind(n))
			return
		}
		for i, value := range s.Values {
			at := fmt.Sprintf("%s[%d]", path, i)
			d.lines[at] = line(value)
			each(at, value)
		}
	}
}

// Scalar decodes one value by parse, whose error says what it wants.
func Scalar[T any](d *Document, to *T, parse func(string) (T, error)) Key {
	return func(path string, n ast.Node) {
		text, ok := scalarText(n)
		if !ok {
			d.Fail(path, "want a single value, got %s", kind(n))
			return
		}
		value, err := parse(text)
		if err != nil {
			d.Fail(path, "%v", err)
			return
		}
		*to = value
	}
}

// Scalars decodes a list of values, which may be empty.
func Scalars[T any](d *Document, to *[]T, parse func(string) (T, error)) Key {
	return d.List(func(path string, n ast.Node) {
		var value T
		Scalar(d, &value, parse)(path, n)
		*to = append(*to, value)
	})
}

// NotEmpty refuses an empty list.
func (d *Document) NotEmpty(list Key) Key {
	return func(path string, n ast.Node) {
		if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
			d.Fail(path, "the list is empty")
		}
		list(path, n)
	}
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
		return "a YAML anchor, alias or tag, which is not read here"
	}
	if text, ok := scalarText(n); ok && text != "" {
		return fmt.Sprintf("%q", text)
	}
	return "nothing"
}

// Join appends a key to a path, quoted when it would garble an error.
func Join(path, key string) string {
	if _, err := Name(key); err != nil {
		key = strconv.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}
