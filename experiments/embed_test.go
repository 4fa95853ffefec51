package experiments

import (
	"slices"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	if want := []string{"brfusion", "harness", "latency", "network", "quickstart", "selftest"}; !slices.Equal(List(), want) {
		t.Errorf("List() = %q, want %q", List(), want)
	}
	for _, name := range List() {
		file, data, err := Open(name)
		if err != nil || !strings.Contains(string(data), "name: "+name+"\n") || file != "experiments/"+name+".yaml" {
			t.Errorf("Open(%q) = %q, %d bytes, %v", name, file, len(data), err)
		}
	}
	_, _, err := Open("quickstar")
	if err == nil || !strings.Contains(err.Error(), "brfusion, harness, latency, network, quickstart, selftest") {
		t.Errorf("Open(quickstar): %v; want an error that lists the experiments", err)
	}
}
