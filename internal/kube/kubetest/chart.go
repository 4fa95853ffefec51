//go:build kubernetes

package kubetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"unnest.io/unnest/deploy"
)

// SplitObjects returns the objects by which the chart has pods split, for a controller that runs
// outside of the cluster, with its webhook at the URL.
func SplitObjects(t *testing.T, namespace, url string) (all []*unstructured.Unstructured) {
	t.Helper()
	content, err := deploy.SplitPods(namespace, url)
	if err != nil {
		t.Fatal(err)
	}
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		case o.GetKind() != "":
			all = append(all, o)
		}
	}
}
