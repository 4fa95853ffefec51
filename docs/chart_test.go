package docs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// flatten returns the values of a tree by their paths, and lists and empty maps as JSON. A map
// that Kubernetes reads as a whole is a value.
func flatten(t *testing.T, path string, v any, whole []string, into map[string]string) {
	t.Helper()
	m, ok := v.(map[string]any)
	if ok && len(m) > 0 && !slices.Contains(whole, path) {
		for key, value := range m {
			flatten(t, strings.TrimPrefix(path+"."+key, "."), value, whole, into)
		}
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	into[path] = string(text)
}

func chartValues(t *testing.T) (values map[string]string) {
	t.Helper()
	content, err := os.ReadFile("../deploy/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(content, &tree); err != nil {
		t.Fatal(err)
	}
	values = map[string]string{}
	flatten(t, "", tree, []string{"resources", "splitPods.resources"}, values)
	return values
}

// The reference of the chart lists every value with its default.
func TestChartValues(t *testing.T) {
	page, err := os.ReadFile("chart.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]*)` \\| .+ \\|$").FindAllStringSubmatch(string(page), -1) {
		listed[row[1]] = row[2]
	}
	if values := chartValues(t); !maps.Equal(listed, values) || len(values) < 10 {
		t.Errorf("chart.md lists\n%q\nthe chart has\n%q", listed, values)
	}
}

// The schema by which helm refuses unknown values knows every value.
func TestChartSchema(t *testing.T) {
	content, err := os.ReadFile("../deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Properties map[string]*schema
		Additional *bool `json:"additionalProperties"`
	}
	var root schema
	if err := json.Unmarshal(content, &root); err != nil {
		t.Fatal(err)
	}
	for path := range chartValues(t) {
		s := &root
		for _, key := range strings.Split(path, ".") {
			if s == nil || s.Additional == nil || *s.Additional || s.Properties[key] == nil {
				t.Errorf("the schema does not know %s, or allows unknown values next to it", path)
				break
			}
			s = s.Properties[key]
		}
	}
}

// The plain manifest was rendered from the chart as it is.
func TestManifestIsOfChart(t *testing.T) {
	var files []string
	err := filepath.WalkDir("../deploy/chart", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && e.Name() != "NOTES.txt" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(content)
	}
	manifest, err := os.ReadFile("../deploy/kubernetes/unnest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha256 %x\n", sum.Sum(nil)); !strings.Contains(string(manifest), want) {
		t.Errorf("deploy/kubernetes/unnest.yaml was not rendered from the present chart, with %s: run `make manifest`", want)
	}
}
