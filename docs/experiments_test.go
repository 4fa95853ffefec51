package docs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pages of keys")

// key is a property in a JSON schema.
type key struct {
	Description string
	Type        any
	Enum        []any
	Minimum     *int
	Maximum     *int
	Examples    []string
	Required    []string
	Properties  keys
	Items       *key
}

// keys are properties in the order of the file.
type keys []namedKey

type namedKey struct {
	name string
	key
}

func (k *keys) UnmarshalJSON(data []byte) error {
	all := json.NewDecoder(strings.NewReader(string(data)))
	if _, err := all.Token(); err != nil {
		return err
	}
	for all.More() {
		name, err := all.Token()
		if err != nil {
			return err
		}
		one := namedKey{name: name.(string)}
		if err := all.Decode(&one.key); err != nil {
			return err
		}
		*k = append(*k, one)
	}
	return nil
}

// values says in a few words what a key takes.
func (k key) values() string {
	switch {
	case k.Items != nil && len(k.Items.Properties) > 0:
		return "a list, see below"
	case k.Items != nil:
		return "a list, each: " + k.Items.values()
	case len(k.Properties) > 0:
		return "see below"
	case len(k.Enum) > 0:
		var words []string
		for _, w := range k.Enum {
			if word := fmt.Sprintf("`%v`", w); !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
		return strings.Join(words, ", ")
	case k.Type == "boolean":
		return "`true`, `false`"
	case k.Minimum != nil && k.Maximum != nil:
		return fmt.Sprintf("%d to %d", *k.Minimum, *k.Maximum)
	case k.Minimum != nil:
		return fmt.Sprintf("a whole number from %d", *k.Minimum)
	case len(k.Examples) > 0:
		return "such as `" + strings.Join(k.Examples, "`, `") + "`"
	}
	return "text"
}

// tables writes a table of the keys of k, and of those that are below them.
func (k key) tables(w *strings.Builder, title string) {
	fmt.Fprintf(w, "\n## %s\n\n| key | value | meaning |\n|---|---|---|\n", title)
	for _, one := range k.Properties {
		name := "`" + one.name + "`"
		if slices.Contains(k.Required, one.name) {
			name += ", required"
		}
		fmt.Fprintf(w, "| %s | %s | %s |\n", name, one.values(), one.Description)
	}
	for _, one := range k.Properties {
		below := one.key
		if below.Items != nil {
			below = *below.Items
		}
		if len(below.Properties) > 0 {
			below.tables(w, "`"+one.name+"`")
		}
	}
}

// The pages of keys say what the schemas do.
func TestKeys(t *testing.T) {
	for name, p := range map[string]struct{ schema, title string }{
		"experiments.md": {"experiments/schema.json", "Experiment"},
		"hostd.md":       {"deploy/hostd.schema.json", "Configuration"},
	} {
		text, err := os.ReadFile("../" + p.schema)
		var schema key
		if err == nil {
			err = json.Unmarshal(text, &schema)
		}
		if err != nil {
			t.Fatal(err)
		}
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		mark := "<!-- generated from " + p.schema + " by go test ./docs -update -->\n"
		head, _, _ := strings.Cut(string(page), mark)
		var want strings.Builder
		want.WriteString(head + mark)
		schema.tables(&want, p.title)
		if *update {
			if err := os.WriteFile(name, []byte(want.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(page) != want.String() {
			t.Errorf("docs/%s is not what go test ./docs -update writes", name)
		}
	}
}
