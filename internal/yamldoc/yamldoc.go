// Package yamldoc decodes a YAML document by its known keys. It reports all errors
// instead of the first, as "file:line: key: want X, got Y", and suggests a known key in
// place of an unknown one.
//
// The meaning of the keys belongs to the package that defines the file.
package yamldoc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Document is a document that is being decoded.
type Document struct {
	file   string
	lines  map[string]int // "cases[1].sizes" -> line
	errors []lineError
}

type lineError struct {
	line int
	text string
}

// bytesPerBracket limits the opening brackets of a file, because the parser takes
// quadratic time for deep nesting.
const bytesPerBracket = 8

// Parse parses a file of at most limit bytes with one document, and returns the
// document and its root. Errors begin with the name file.
func Parse(file string, data []byte, limit int) (*Document, ast.Node, error) {
	if len(data) > limit {
		return nil, nil, fmt.Errorf("%s: the file has %d bytes: want at most %d", file, len(data), limit)
	}
	brackets := bytes.Count(data, []byte("[")) + bytes.Count(data, []byte("{"))
	if limit /= bytesPerBracket; brackets > limit {
		return nil, nil, fmt.Errorf("%s: the file has %d opening brackets: want at most %d", file, brackets, limit)
	}
	root, err := parse(file, data)
	if err != nil {
		return nil, nil, err
	}
	return &Document{file: file, lines: map[string]int{}}, root, nil
}

func parse(file string, data []byte) (root ast.Node, err error) {
	defer func() { // the parser panics on some invalid input
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("%s:1: parse YAML: invalid document (%v)", file, r)
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

// syntaxError writes an error of the YAML parser in one line.
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

// Fail records an error at path.
func (d *Document) Fail(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	d.errors = append(d.errors, lineError{d.line(path), text})
}

// line returns the line of path, or of its nearest known parent.
func (d *Document) line(path string) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return cmp.Or(d.lines[""], 1)
}

// Failed reports whether there are errors.
func (d *Document) Failed() bool { return len(d.errors) > 0 }

// Err returns the errors, sorted by line, one line each.
func (d *Document) Err() error {
	slices.SortStableFunc(d.errors, func(a, b lineError) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, e := range d.errors {
		errs = append(errs, fmt.Errorf("%s:%d: %s", d.file, e.line, e.text))
	}
	return errors.Join(errs...)
}
