//go:build kubernetes

package kubetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"text/template"

	"github.com/goccy/go-yaml"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// SplitObjects returns the objects by which the chart in the directory has pods split, for a controller
// that runs outside of the cluster: they have no Deployment, and the webhook has the URL.
func SplitObjects(t *testing.T, chart, url string) (all []*unstructured.Unstructured) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join(chart, name))
		check(err)
		return string(content)
	}
	var values map[string]any
	check(yaml.Unmarshal([]byte(read("values.yaml")), &values))
	values["splitPods"].(map[string]any)["enabled"] = true
	toJSON := func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err }
	parsed, err := template.New("").Funcs(template.FuncMap{"toJson": toJSON}).Parse(read("templates/splitpods.yaml"))
	check(err)
	var out bytes.Buffer
	check(parsed.Execute(&out, map[string]any{"Values": values}))
	for decoder := utilyaml.NewYAMLOrJSONDecoder(&out, 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return all
		} else {
			check(err)
		}
		switch o.GetKind() {
		case "", "Deployment":
			continue
		case "MutatingWebhookConfiguration":
			o.Object["webhooks"].([]any)[0].(map[string]any)["clientConfig"] = map[string]any{"url": url}
		}
		all = append(all, o)
	}
}
