package report

import (
	"strings"
	"testing"

	"unnest/internal/measure/result"
)

// Only runs with guests are emulated.
func TestEmulationWarning(t *testing.T) {
	for _, tt := range []struct {
		stacks string
		warned bool
	}{{"metal", false}, {"metal metal/containerd", false}, {"metal vm/containerd", true}, {"xen-pv", true}} {
		run := result.Run{Accelerator: "tcg"}
		for _, s := range strings.Fields(tt.stacks) {
			run.Configurations = append(run.Configurations, result.Configuration{Name: s, Stack: s})
		}
		if got := strings.Contains(strings.Join(runWarnings(run, nil), "\n"), "under TCG"); got != tt.warned {
			t.Errorf("%s: warned %v", tt.stacks, got)
		}
	}
}
