package quota

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
)

const schemaFile = "../../../deploy/hostd.schema.json"

// property is a part of the schema.
type property struct {
	Description string
	Maximum     int
	Properties  map[string]property
	Items       *property
}

func readSchema(t *testing.T) (root property, text string) {
	t.Helper()
	content, err := os.ReadFile(schemaFile)
	if err == nil {
		err = json.Unmarshal(content, &root)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root, string(content)
}

// The schema has the keys that the parser knows, at every place.
func TestSchemaHasTheKeys(t *testing.T) {
	root, _ := readSchema(t)
	tenant, guest := root.Properties["tenants"].Items.Properties, root.Properties["guests"].Items.Properties
	const unknown = "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: 1"
	for place, tt := range map[string]struct {
		text string
		keys map[string]property
	}{
		"file":      {"%s", root.Properties},
		"tenant":    {"tenants: [{%s}]", tenant},
		"range":     {"tenants: [{ranges: [{%s}]}]", tenant["ranges"].Items.Properties},
		"limits":    {"tenants: [{limits: {%s}}]", tenant["limits"].Properties},
		"bandwidth": {"tenants: [{limits: {bandwidth: {%s}}}]", tenant["limits"].Properties["bandwidth"].Properties},
		"segments":  {"tenants: [{segments: {%s}}]", tenant["segments"].Properties},
		"guest":     {"guests: [{%s}]", guest},
		"libvirt":   {"guests: [{libvirt: {%s}}]", guest["libvirt"].Properties},
	} {
		_, err := Parse("x.yaml", fmt.Appendf(nil, tt.text, unknown))
		if err == nil {
			t.Fatalf("%s: no error", place)
		}
		_, known, _ := strings.Cut(err.Error(), "unknown key: want one of ")
		known, _, _ = strings.Cut(known, "\n")
		if diff := cmp.Diff(strings.Split(known, ", "), slices.Sorted(maps.Keys(tt.keys))); diff != "" {
			t.Errorf("%s: keys (-parser +schema):\n%s", place, diff)
		}
	}
	if most := guest["index"].Maximum; most != MaxIndex {
		t.Errorf("index: at most %d, want %d", most, MaxIndex)
	}
}

// The schema names the defaults of the limits.
func TestSchemaHasTheDefaults(t *testing.T) {
	root, _ := readSchema(t)
	text, err := yaml.Marshal(DefaultLimits)
	defaults := map[string]any{}
	if err == nil {
		err = yaml.Unmarshal(text, &defaults)
	}
	if err != nil {
		t.Fatal(err)
	}
	said, n := regexp.MustCompile(`Default ([0-9]+)[.]`), 0
	for name, p := range root.Properties["tenants"].Items.Properties["limits"].Properties {
		m := said.FindStringSubmatch(p.Description)
		if m == nil {
			continue
		}
		if n++; m[1] != fmt.Sprint(defaults[name]) {
			t.Errorf("limit %s: default %s, want %v", name, m[1], defaults[name])
		}
	}
	if want := len(defaults) - 2; n != want { // addresses follows nics, bandwidth has two
		t.Errorf("%d limits have a default, want %d", n, want)
	}
}

// The schema accepts what the parser accepts, such as the example with all of its examples, and refuses
// mistakes that the parser refuses.
func TestSchemaAccepts(t *testing.T) {
	_, text := readSchema(t)
	var document jsonschema.Schema
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		t.Fatal(err)
	}
	compiled, err := document.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../../deploy/hostd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const tenant = "tenants: [{name: a, bridge: br0}]\n"
	for _, tt := range []struct {
		text  string
		valid bool
	}{
		{string(example), true},
		{regexp.MustCompile(`(?m)^( *)#(\S)`).ReplaceAllString(string(example), "$1$2"), true},
		{tenant, true},
		{"pool: 1", false},
		{tenant + "pool: -1", false},
		{tenant + "pool: 256", false},
		{tenant + "trunk: maybe", false},
		{tenant + "logLevel: loud", false},
		{tenant + "tenant: a", false},
		{"tenants: []", false},
		{"tenants: [{name: A, bridge: br0}]", false},
		{"tenants: [{name: a, bridge: br0, mtu: 20}]", false},
		{"tenants: [{name: a, bridge: br0, cooldown: 1m30s}]", true},
		{"tenants: [{name: a, bridge: br0, cooldown: soon}]", false},
		{"tenants: [{name: a, bridge: br0, cooldown: 60}]", false},
		{"tenants: [{name: a, bridge: br0, cooldown: 0, vhostPoll: 0}]", true},
		{"tenants: [{name: a, bridge: br0, vhostPoll: 50}]", false},
		{"tenants: [{name: a, bridge: br0, queues: 16}]", true},
		{"tenants: [{name: a, bridge: br0, queues: 17}]", false},
		{"tenants: [{name: a, bridge: br0, limits: {bandwidth: {egress: 500M, ingress: 0}}}]", true},
		{"tenants: [{name: a, bridge: br0, hostPorts: [icmp/1]}]", false},
		{"tenants: [{name: a, bridge: br0, limits: {endpoints: 17}}]", false},
		{"tenants: [{name: a, bridge: br0, limits: {bandwidth: {egress: 1T}}}]", false},
		{"tenants: [{name: a, bridge: br0, segments: {span: hosts}}]", false},
		{tenant + "guests: [{name: a, tenant: a, index: 1, qmp: /run/a}]", true},
		{tenant + "guests: [{name: a, tenant: a, index: 0, qmp: /run/a}]", false},
		{tenant + "guests: [{name: a, tenant: a, index: 1, qmp: run/a}]", false},
		{tenant + "guests: [{name: a, tenant: a, index: 1, libvirt: {}}]", false},
	} {
		var value any
		if err := yaml.Unmarshal([]byte(tt.text), &value); err != nil {
			t.Fatalf("%s: %v", tt.text, err)
		}
		_, parserErr := Parse("x.yaml", []byte(tt.text))
		if schemaErr := compiled.Validate(value); (parserErr == nil) != tt.valid || (schemaErr == nil) != tt.valid {
			t.Errorf("%.60s: parser %v, schema %v, want valid %t", tt.text, parserErr, schemaErr, tt.valid)
		}
	}
}
