// Package stack names what a measurement runs in: the layers of virtualization
// from the host up, and the configurations that experiments compare.
//
// It only names and checks. How a guest boots or a container starts belongs to
// the packages that do it.
package stack

import (
	"fmt"
	"strings"
)

// Layer is one virtualization step.
type Layer string

// The known layers.
const (
	Metal      Layer = "metal"      // the host's operating system itself
	VM         Layer = "vm"         // a virtual machine of the layer below
	SSH        Layer = "ssh"        // a machine that is there already, reached over SSH
	Containerd Layer = "containerd" // a container run by containerd
	Docker     Layer = "docker"     // a container run by Docker
)

const knownLayers = "metal, vm, ssh, containerd or docker"

// Container reports whether the layer is a container engine.
func (l Layer) Container() bool { return l == Containerd || l == Docker }

func (l Layer) known() bool { return l == Metal || l == VM || l == SSH || l.Container() }

// Stack is an ordered list of layers from the host up. The host itself is
// written only when no virtual machine stands on it: "metal",
// "metal/containerd", but "vm", "vm/vm", "vm/containerd". A machine that is
// reached over SSH stands for whatever it runs in: "ssh", "ssh/containerd".
type Stack []Layer

// Parse reads the notation that String writes: layers from the host up, joined
// by "/".
func Parse(text string) (Stack, error) {
	if text == "" {
		return nil, fmt.Errorf("stack is empty: write one such as vm or vm/containerd")
	}
	var s Stack
	for name := range strings.SplitSeq(text, "/") {
		s = append(s, Layer(name))
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return s, nil
}

// String returns the notation of the stack: "vm/containerd".
func (s Stack) String() string {
	names := make([]string, len(s))
	for i, l := range s {
		names[i] = string(l)
	}
	return strings.Join(names, "/")
}

// Validate returns an error unless every layer is known and can stand where it
// does: metal only at the bottom and with no virtual machine on it (which is
// plain "vm"), ssh only at the bottom and with no virtual machine either, a
// container only on top. Virtual machines may be nested to any depth.
func (s Stack) Validate() error {
	if len(s) == 0 {
		return fmt.Errorf("stack has no layer: write one such as vm or vm/containerd")
	}
	for i, l := range s {
		if err := s.validateLayer(i, l); err != nil {
			return fmt.Errorf("stack %q: %w", s.String(), err)
		}
	}
	return nil
}

func (s Stack) validateLayer(i int, l Layer) error {
	switch {
	case !l.known():
		return fmt.Errorf("unknown layer %q: want %s", string(l), knownLayers)
	case (l == Metal || l == SSH) && i > 0:
		return fmt.Errorf("layer %s stands on another: it can only be the first", l)
	case i == 0 && l.Container():
		return fmt.Errorf("the container stands on nothing: write metal/%s or vm/%s", l, l)
	case l == VM && i > 0 && s[i-1] == Metal:
		return fmt.Errorf("leave out metal: a stack that begins with vm stands on the host")
	case l == VM && i > 0 && s[i-1] == SSH:
		return fmt.Errorf("no VM is started on a machine reached over SSH: start it by hand, and write stack ssh with its address")
	case i > 0 && s[i-1].Container():
		return fmt.Errorf("layer %s stands on a container: a container can only be the last", l)
	}
	return nil
}

// Level returns the degree of virtualization: how many hypervisors are under
// the running operating system. Containers do not count, nor does what a machine
// reached over SSH runs in, which is not known.
func (s Stack) Level() int {
	level := 0
	for _, l := range s {
		if l == VM {
			level++
		}
	}
	return level
}

// Engine returns the container engine on top of the stack, and whether there
// is one.
func (s Stack) Engine() (Layer, bool) {
	if len(s) == 0 || !s[len(s)-1].Container() {
		return "", false
	}
	return s[len(s)-1], true
}

// Remote reports whether the stack stands on a machine that is reached over SSH.
func (s Stack) Remote() bool { return len(s) > 0 && s[0] == SSH }

// Describe says the stack in plain words: "in a containerd container in a VM".
func (s Stack) Describe() string {
	machine := "on the host"
	if s.Remote() {
		machine = "on a machine reached over SSH"
	}
	if level := s.Level(); level > 0 {
		machine = "in a VM" + strings.Repeat(" in a VM", level-1)
	}
	if engine, ok := s.Engine(); ok {
		return "in a " + string(engine) + " container " + machine
	}
	return machine + ", no container"
}
