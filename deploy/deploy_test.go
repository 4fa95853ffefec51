package deploy

import (
	"strings"
	"testing"
)

// The objects of split pods need only the functions that SplitPods has.
func TestSplitPods(t *testing.T) {
	text, err := SplitPods("unnest", "https://10.0.0.1:9443/split")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: MutatingWebhookConfiguration", "https://10.0.0.1:9443/split",
		"operations: [UPDATE], resources: [pods, pods/status]}", "operations: [CREATE, UPDATE], resources: [pods, pods/status]}", "resources: [pods/ephemeralcontainers]}"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the objects", want)
		}
	}
}
