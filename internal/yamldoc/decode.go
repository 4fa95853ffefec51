package yamldoc

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Key decodes the value of one key; path names it in errors.
type Key func(path string, value ast.Node)

// Has reports whether the document has the key at path.
func (d *Document) Has(path string) bool {
	_, ok := d.lines[path]
	return ok
}

// Require records an error for each key that is missing below path, and reports whether
// the document has all.
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

// Mapping decodes a mapping, in which other keys than these are errors.
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
			d.Fail(at, "unknown key: %s", Suggest(name, slices.Sorted(maps.Keys(keys))))
			continue
		}
		decode(at, i.Value())
	}
}

// Object is Mapping as a Key.
func (d *Document) Object(keys map[string]Key) Key {
	return func(path string, n ast.Node) { d.Mapping(path, n, keys) }
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

// Scalar decodes a single value by parse, whose error says what it wants.
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

// Scalars decodes a list of single values, which may be empty.
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

// scalarText returns the text of a scalar as in the file, without quotes.
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

// kind describes a node of a wrong kind.
func kind(n ast.Node) string {
	switch n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "keys and values"
	case *ast.AnchorNode, *ast.AliasNode, *ast.TagNode, *ast.MergeKeyNode:
		return "a YAML anchor, alias or tag, which is not supported"
	}
	if text, ok := scalarText(n); ok && text != "" {
		return fmt.Sprintf("%.80q", text)
	}
	return "nothing"
}

// Join appends a key to a path, and quotes it if it has special characters.
func Join(path, key string) string {
	if _, err := Name(key); err != nil {
		key = fmt.Sprintf("%.80q", key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// Suggest returns a hint: the most similar known name, or all known names if none is similar.
// known has at least one name.
func Suggest(unknown string, known []string) string {
	nearest := slices.MinFunc(known, func(a, b string) int { return distance(unknown, a) - distance(unknown, b) })
	if d := distance(unknown, nearest); d > max(2, len(unknown)/3) || d >= len(unknown) {
		return "want one of " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("did you mean %s?", nearest)
}

// example lists the first keys in alphabetical order.
func example(keys map[string]Key) string {
	known := slices.Sorted(maps.Keys(keys))
	return strings.Join(known[:min(3, len(known))], ", ")
}

// distance returns the number of bytes to insert, delete or replace to turn a into b
// (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Parser returns a parser of single values. Its errors say what it wants.
func Parser[T any](want string, parse func(string) (T, error), valid func(T) bool) func(string) (T, error) {
	return func(text string) (T, error) {
		value, err := parse(text)
		if err != nil || !valid(value) {
			var none T
			return none, fmt.Errorf("want %s, got %.80q", want, text)
		}
		return value, nil
	}
}

// Or returns a parser that also accepts these texts for the zero value.
func Or[T any](parse func(string) (T, error), texts ...string) func(string) (T, error) {
	return func(text string) (T, error) {
		if slices.Contains(texts, text) {
			var zero T
			return zero, nil
		}
		return parse(text)
	}
}

// Text accepts any text except the empty one.
func Text(text string) (string, error) {
	if text == "" {
		return "", errors.New("want a text, got nothing")
	}
	return text, nil
}

var special = regexp.MustCompile(`[^-_.a-zA-Z0-9]`)

// Name accepts texts that can be part of file names and of paths of keys.
func Name(text string) (string, error) {
	if special.MatchString(text) {
		return "", fmt.Errorf("want letters, digits, _, - and . only, got %.80q", text)
	}
	return Text(text)
}

// Bool accepts true and false.
func Bool(text string) (bool, error) {
	if text != "true" && text != "false" {
		return false, fmt.Errorf("want true or false, got %.80q", text)
	}
	return text == "true", nil
}

// Count returns a parser of whole numbers from low to high.
func Count(low, high int) func(string) (int, error) {
	return Parser(fmt.Sprintf("a whole number from %d to %d", low, high), strconv.Atoi,
		func(n int) bool { return low <= n && n <= high })
}

var memory = regexp.MustCompile(`^(\d+|\d+(\.\d+)? ?[KMGT]i)B?$`)

// Bytes returns a positive amount of memory in bytes. It accepts a whole number of bytes, or a number with a unit such as KiB,
// GiB, Ki or Gi. It rounds down to a byte.
func Bytes(text string) (int64, error) {
	var q resource.Quantity
	var err error
	if memory.MatchString(text) {
		q, err = resource.ParseQuantity(strings.TrimSuffix(strings.ReplaceAll(text, " ", ""), "B"))
	}
	n := q.Value() // rounded up
	if q.CmpInt64(n) < 0 {
		n--
	}
	if err != nil || n <= 0 || q.CmpInt64(math.MaxInt64) >= 0 {
		return 0, fmt.Errorf("want a positive number of bytes such as 1280, 64KiB or 2GiB, got %.80q", text)
	}
	return n, nil
}

// MachineMemory accepts what Bytes does if it is whole MiB: hypervisors give a machine nothing else.
var MachineMemory = Parser("whole MiB such as 512MiB or 2GiB", Bytes, func(n int64) bool { return n%(1<<20) == 0 })

// Parsers of durations.
var (
	// Duration accepts durations above 0, up to a day.
	Duration = Parser("a duration such as 200ms, 1s or 2m", time.ParseDuration,
		func(d time.Duration) bool { return 0 < d && d <= 24*time.Hour })
	// DurationOrZero is like Duration, but also accepts 0.
	DurationOrZero = Or(Duration, "0", "0s")
)

// Microseconds returns a parser of whole microseconds from 0 to most.
func Microseconds(most time.Duration) func(string) (time.Duration, error) {
	return Parser(fmt.Sprintf("whole microseconds from 0 to %v, such as 50us", most), time.ParseDuration,
		func(d time.Duration) bool { return 0 <= d && d <= most && d%time.Microsecond == 0 })
}
