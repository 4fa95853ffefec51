// Package deploy has parts of the chart, as files.
package deploy

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"text/template"
)

//go:embed chart/templates/splitpods.yaml
var splitPods string

// SplitPods returns the chart's objects, in YAML, by which pods are split by controllers that run outside
// of the cluster: with their Secret and lease in the namespace, and their webhook at the URL.
func SplitPods(namespace, url string) ([]byte, error) {
	toJSON := func(v any) (string, error) { text, err := json.Marshal(v); return string(text), err }
	t, err := template.New("splitpods.yaml").Funcs(template.FuncMap{"toJson": toJSON}).Parse(splitPods)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Values": map[string]any{
		"namespace": map[string]any{"name": namespace}, "splitPods": map[string]any{"enabled": true, "url": url},
	}})
	return out.Bytes(), err
}
