package machines

import (
	"maps"
	"testing"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
)

// Machines of two releases have tools of two versions: a run records each version once.
func TestFoundTool(t *testing.T) {
	b := Set{facts: Facts{Tools: map[string]string{}}}
	for _, version := range []string{"1.6.20", "1.7.24", "1.6.20", "1.6.2"} {
		b.FoundTool("containerd", version)
	}
	b.FoundTool("runc", "1.1.5")
	if want := map[string]string{"containerd": "1.6.20, 1.7.24, 1.6.2", "runc": "1.1.5"}; !maps.Equal(b.facts.Tools, want) {
		t.Errorf("got %v, want %v", b.facts.Tools, want)
	}
}

// A tool that prints no version is no tool of version "".
func TestFindTool(t *testing.T) {
	b := New(&experiment.Spec{}, Options{})
	echo := place.Within{Place: place.Local{}, Enter: []string{"echo"}, Name: "vm"}
	if err := b.FindTool(t.Context(), echo, "runc"); err == nil || err.Error() != `find the version of runc on vm: its output has no version number: "runc --version\n"` || len(b.facts.Tools) != 0 {
		t.Errorf("got %v, and the tools %v", err, b.facts.Tools)
	}
	if err := b.FindTool(t.Context(), echo, "runc 1.1.5,"); err != nil || b.facts.Tools["runc 1.1.5,"] != "1.1.5" {
		t.Errorf("got %v, and the tools %v", err, b.facts.Tools)
	}
}

// A run asks one machine for each architecture, each release and each engine with packages of its own, and no host of the user's.
func TestOfEachRelease(t *testing.T) {
	vm, contained := stack.Stack{stack.VM}, stack.Stack{stack.VM, stack.Containerd}
	b := Set{Spec: &experiment.Spec{Configurations: []stack.Configuration{
		{Name: "remote", Stack: stack.Stack{stack.SSH}},
		{Name: "s390x", Stack: vm, Arch: stack.S390x},
		{Name: "vm", Stack: vm},
		{Name: "containerd", Stack: contained},
		{Name: "trixie", Stack: contained, Release: stack.Trixie},
		{Name: "docker", Stack: stack.Stack{stack.VM, stack.Docker}, Release: stack.Trixie},
		{Name: "docker again", Stack: stack.Stack{stack.VM, stack.Docker}, Release: stack.Trixie},
	}}}
	got := ""
	for _, c := range b.OfEachRelease() {
		got += c.Name + ";"
	}
	if want := "s390x;vm;trixie;docker;"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}
