package report

import (
	"slices"
	"testing"

	"unnest/internal/measure/result"
)

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

func TestSettingOfARunThatWentOn(t *testing.T) {
	run, samples := synthetic(6)
	if got := Build(run, samples, Options{}).Setting; got != "6 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
	further := samples[0]
	further.Block = 11
	if got := Build(run, append(samples, further), Options{}).Setting; got != "6 to 12 repetitions, tcg" {
		t.Errorf("got %q", got)
	}
}
