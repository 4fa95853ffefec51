package experiment

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/stack"
)

// property is a part of experiments/schema.json.
type property struct {
	Enum       []any
	Maximum    int
	Properties map[string]property
	Items      *property
}

func schema(t *testing.T) (p property, text []byte) {
	t.Helper()
	text, err := os.ReadFile("../../../experiments/schema.json")
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, text
}

// The schema has the keys that the parser knows, at every place.
func TestSchemaHasTheKeys(t *testing.T) {
	root, _ := schema(t)
	configuration, aCase := root.Properties["configurations"].Items, root.Properties["cases"].Items
	const unknown = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: 1"
	for place, tt := range map[string]struct {
		text string
		keys map[string]property
	}{
		"experiment":    {unknown, root.Properties},
		"guest":         {"guest: {" + unknown + "}", root.Properties["guest"].Properties},
		"configuration": {"configurations: [{" + unknown + "}]", configuration.Properties},
		"domain":        {"configurations: [{domains: [{" + unknown + "}]}]", configuration.Properties["domains"].Items.Properties},
		"case":          {"cases: [{" + unknown + "}]", aCase.Properties},
		"options":       {"cases: [{options: {" + unknown + "}}]", aCase.Properties["options"].Properties},
	} {
		_, err := Parse("x.yaml", []byte(tt.text))
		if err == nil {
			t.Fatalf("%s: no error", place)
		}
		_, known, _ := strings.Cut(err.Error(), "unknown key: want one of ")
		known, _, _ = strings.Cut(known, "\n")
		want := strings.Split(known, ", ")
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(tt.keys))); diff != "" {
			t.Errorf("%s: keys (-parser +schema):\n%s", place, diff)
		}
	}
	if n := root.Properties["guest"].Properties["vcpus"].Maximum; n != stack.MaxVCPUs {
		t.Errorf("at most %d vCPUs, want %d", n, stack.MaxVCPUs)
	}
	var types []any
	for _, d := range stack.DomainTypes() {
		types = append(types, string(d))
	}
	if diff := cmp.Diff(types, configuration.Properties["domains"].Items.Properties["type"].Enum); diff != "" {
		t.Errorf("types of domains (-parser +schema):\n%s", diff)
	}
}

// The schema accepts every experiment of the program, and refuses mistakes.
func TestSchemaAccepts(t *testing.T) {
	_, text := schema(t)
	var document jsonschema.Schema
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	compiled, err := document.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text []byte) error {
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		return compiled.Validate(value)
	}
	for _, name := range experiments.List() {
		_, data, err := experiments.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, wrong := range []string{
		"name: x", "{name: x, configurations: [], cases: [{name: a}]}", "{name: x y, configurations: [{name: a}], cases: [{name: a}]}",
		"{name: x, configurations: [{name: a, network: nats}], cases: [{name: a}]}", "{name: x, configurations: [{name: a}], cases: [{name: a, size: 1}]}",
	} {
		if validate([]byte(wrong)) == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}
