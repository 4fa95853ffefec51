package yamldoc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"

	"unnest.io/unnest/internal/yamldoc"
)

// zoo is a file with every kind of value.
type zoo struct {
	name    string
	wait    time.Duration
	rest    time.Duration
	open    bool
	animals []string
	keepers []keeper
}

type keeper struct {
	name string
	age  int
}

func read(text string) (z zoo, err error) {
	d, root, err := yamldoc.Parse("x.yaml", []byte(text), 1024)
	if err != nil {
		return z, err
	}
	d.Mapping("", root, map[string]yamldoc.Key{
		"name":    yamldoc.Scalar(d, &z.name, yamldoc.Name),
		"wait":    yamldoc.Scalar(d, &z.wait, yamldoc.Duration),
		"rest":    yamldoc.Scalar(d, &z.rest, yamldoc.DurationOrZero),
		"open":    yamldoc.Scalar(d, &z.open, yamldoc.Bool),
		"animals": yamldoc.Scalars(d, &z.animals, yamldoc.Text),
		"keepers": d.NotEmpty(d.List(func(path string, n ast.Node) {
			var k keeper
			d.Mapping(path, n, map[string]yamldoc.Key{
				"name": yamldoc.Scalar(d, &k.name, yamldoc.Name),
				"age":  yamldoc.Scalar(d, &k.age, yamldoc.Count(0, 120)),
			})
			d.Require(path, "name", "age")
			z.keepers = append(z.keepers, k)
		})),
	})
	if d.Failed() != (d.Err() != nil) {
		panic("Failed and Err contradict each other")
	}
	return z, d.Err()
}

func TestDecode(t *testing.T) {
	z, err := read(`
name: "z-1"
wait: 1m30s
rest: 0
open: true
animals: [yak, 7, 'a: b', 1.5]
keepers:
  - name: a
    age: 40
  - {name: b, age: 0}
`)
	if err != nil || z.name != "z-1" || z.wait != 90*time.Second || z.rest != 0 || !z.open ||
		!slices.Equal(z.animals, []string{"yak", "7", "a: b", "1.5"}) || !slices.Equal(z.keepers, []keeper{{"a", 40}, {"b", 0}}) {
		t.Errorf("got %+v, %v", z, err)
	}
	if z, err := read("animals: []"); err != nil || len(z.animals) > 0 {
		t.Errorf("got %+v, %v, want no animals", z, err)
	}
}

// Files and command lines have one syntax for memory.
func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1280": 1280, "64KiB": 64 << 10, "64Ki": 64 << 10, "1536MiB": 1536 << 20, "2GiB": 2 << 30, "2 GiB": 2 << 30, "2Gi": 2 << 30, "1.5GiB": 3 << 29, "1TiB": 1 << 40, "1.7 GiB": 1825361100, "1.0000000001GiB": 1 << 30,
	} {
		if got, err := yamldoc.Bytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "-1", "1GB", "GiB", "0.3", "1.5", "500m", "1000m", "1e3", "2G", "1M", "64 128", "1 0 GiB", "2  GiB", "9223372036854775807GiB", "9223372036854775808"} {
		if n, err := yamldoc.Bytes(text); err == nil || !strings.HasPrefix(err.Error(), "want a positive number of bytes") {
			t.Errorf("%q: got %d, %v", text, n, err)
		}
	}
}

func TestWrong(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "x.yaml:1: the file is empty"},
		{"# nothing", "x.yaml:1: the file is empty"},
		{"a: [", "x.yaml:1: parse YAML: "},
		{"name: a\nname: b", "x.yaml:2: parse YAML: "},
		{"name: a\n---\nname: b", "x.yaml:3: a second document begins: want one in a file"},
		{strings.Repeat("#", 1025), "x.yaml: the file has 1025 bytes: want at most 1024"},
		{strings.Repeat("[", 129), "x.yaml: the file has 129 opening brackets: want at most 128"},
		{"[a]", "x.yaml:1: want keys and values such as animals, keepers, name, got a list"},
		{"nam: a", "x.yaml:1: nam: unknown key: did you mean name?"},
		{"colour: a", "x.yaml:1: colour: unknown key: want one of animals, keepers, name, open, rest, wait"},
		{`"na\nme": a`, `x.yaml:1: "na\nme": unknown key: `},
		{"name: a b", `x.yaml:1: name: want letters, digits, _, - and . only, got "a b"`},
		{"name:", "x.yaml:1: name: want a text, got nothing"},
		{"name: [a]", "x.yaml:1: name: want a single value, got a list"},
		{"name: {a: b}", "x.yaml:1: name: want a single value, got keys and values"},
		{"name: &a b", "x.yaml:1: name: want a single value, got a YAML anchor, alias or tag, which is not supported"},
		{"wait: 0", `x.yaml:1: wait: want a duration such as 200ms, 1s or 2m, got "0"`},
		{"wait: 25h", `x.yaml:1: wait: want a duration`},
		{"open: yes", `x.yaml:1: open: want true or false, got "yes"`},
		{"animals: yak", `x.yaml:1: animals: want a list, got "yak"`},
		{strings.Repeat("yak ", 100), `x.yaml:1: want keys and values such as animals, keepers, name, got "` + strings.Repeat("yak ", 20) + "\"\n"},
		{"name: " + strings.Repeat("a b ", 100), `only, got "` + strings.Repeat("a b ", 20) + "\"\n"},
		{"'" + strings.Repeat("!", 200) + "': a", `x.yaml:1: "` + strings.Repeat("!", 80) + "\": unknown key: "},
		{"animals:", `x.yaml:1: animals: want a list, got nothing`},
		{"animals:\n  - a\n  - []", "x.yaml:3: animals[1]: want a single value, got a list"},
		{"keepers: []", "x.yaml:1: keepers: the list is empty"},
		{"keepers:\n  - name: a\n    age: 121", `x.yaml:3: keepers[0].age: want a whole number from 0 to 120, got "121"`},
		{"keepers:\n  - age: 1", "x.yaml:2: keepers[0]: key name is missing"},
		{"keepers:\n  - age: x\n    nam: a\nopen: 1", "x.yaml:2: keepers[0]: key name is missing\n"},
	} {
		_, err := read(tt.text)
		all := ""
		if err != nil {
			all = err.Error() + "\n"
		}
		if !strings.Contains(all, tt.want) {
			t.Errorf("%q:\n got %v\nwant %s", tt.text, err, tt.want)
		}
	}
	_, err := read("open: 1\nkeepers:\n  - age: x\n    nam: a")
	want := `x.yaml:1: open: want true or false, got "1"
x.yaml:3: keepers[0].age: want a whole number from 0 to 120, got "x"
x.yaml:3: keepers[0]: key name is missing
x.yaml:4: keepers[0].nam: unknown key: did you mean name?`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}
