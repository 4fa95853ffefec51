package machines

import (
	"maps"
	"testing"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
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

// A run asks one machine for each release and each engine with packages of its own, and no host of the user's.
func TestOfEachRelease(t *testing.T) {
	vm, contained := stack.Stack{stack.VM}, stack.Stack{stack.VM, stack.Containerd}
	b := Set{Spec: &experiment.Spec{Configurations: []stack.Configuration{
		{Name: "remote", Stack: stack.Stack{stack.SSH}},
		{Name: "vm", Stack: vm, Release: stack.Bookworm},
		{Name: "containerd", Stack: contained, Release: stack.Bookworm},
		{Name: "trixie", Stack: contained, Release: stack.Trixie},
		{Name: "docker", Stack: stack.Stack{stack.VM, stack.Docker}, Release: stack.Trixie},
		{Name: "docker again", Stack: stack.Stack{stack.VM, stack.Docker}, Release: stack.Trixie},
	}}}
	got := ""
	for _, c := range b.OfEachRelease() {
		got += c.Name + ";"
	}
	if want := "vm;trixie;docker;"; got != want {
		t.Errorf("got %s want %s", got, want)
	}
}
