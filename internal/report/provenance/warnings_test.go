package provenance

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
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
		if got := strings.Contains(strings.Join(Warnings(run, nil), "\n"), "under TCG"); got != tt.warned {
			t.Errorf("%s: warned %v", tt.stacks, got)
		}
	}
}

func TestCrowded(t *testing.T) {
	of := func(name, stack, vcpus string) result.Configuration {
		return result.Configuration{Name: name, Stack: stack, Options: map[string]string{"vcpus": vcpus}}
	}
	run := result.Run{Host: result.Machine{VCPUs: 2}, Configurations: []result.Configuration{
		of("L0", "metal", "4"), of("L1", "vm", "3"), of("L2", "vm/vm", "2"), of("esxi", "ssh", "8"), {Name: "untold", Stack: "vm"},
	}}
	if got := overcommitted(run); !slices.Equal(got, []string{"L0 has 4", "L1 has 3"}) {
		t.Errorf("got %q", got)
	}
	run.Host.VCPUs = 0 // as in runs that say nothing of their host
	if got := overcommitted(run); len(got) > 0 {
		t.Errorf("of an unknown host: %q", got)
	}
}
