// Package stack defines the layers of virtualization that a measurement runs in, and the
// configurations that experiments compare: their names, notation and validity.
//
// Booting guests and starting containers do not belong here.
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
	SSH        Layer = "ssh"        // an existing machine, reached over SSH
	XenPV      Layer = "xen-pv"     // a paravirtual domain of a Xen host
	XenPVH     Layer = "xen-pvh"    // a domain of a Xen host with hardware virtualization and without emulated devices
	XenHVM     Layer = "xen-hvm"    // a domain of a Xen host with hardware virtualization and emulated devices
	Containerd Layer = "containerd" // a container run by containerd
	Docker     Layer = "docker"     // a container run by Docker
	Podman     Layer = "podman"     // a container run by Podman, in a VM only
	Kubernetes Layer = "kubernetes" // a pod of an existing cluster
)

const knownLayers = "metal, vm, ssh, xen-pv, xen-pvh, xen-hvm, kubernetes, containerd, docker or podman"

// Container reports whether the layer is a container engine.
func (l Layer) Container() bool { return l == Containerd || l == Docker || l == Podman }

// ParseEngine accepts the name of a layer that is a container engine.
func ParseEngine(name string) (Layer, error) {
	if l := Layer(name); l.Container() {
		return l, nil
	}
	return "", fmt.Errorf("unknown engine %q: want containerd, docker or podman", name)
}

// Xen reports whether the layer is a domain of a Xen host.
func (l Layer) Xen() bool { return l == XenPV || l == XenPVH || l == XenHVM }

func (l Layer) known() bool {
	return l == Metal || l == VM || l == SSH || l == Kubernetes || l.Xen() || l.Container()
}

// Stack is an ordered list of layers from the host up. The host itself is included only
// without a virtual machine: "metal", "metal/containerd", but "vm", "vm/vm",
// "vm/containerd". A machine reached over SSH includes the layers below it: "ssh",
// "ssh/containerd". A pod of a cluster includes everything below it: "kubernetes".
// A domain of a Xen host is a stack of its own: "xen-pv".
type Stack []Layer

// Parse parses the notation of a stack: layers from the host up, joined by "/".
func Parse(text string) (Stack, error) {
	var s Stack
	if text == "" {
		return nil, s.Validate()
	}
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

// Validate returns an error unless every layer is known and in a valid position: metal and
// ssh only at the bottom and without a virtual machine above, a container only on top.
// Virtual machines may be nested to any depth.
func (s Stack) Validate() error {
	if len(s) == 0 {
		return fmt.Errorf("stack is empty: want one such as vm or vm/containerd")
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
	case l == Kubernetes && len(s) > 1:
		return fmt.Errorf("layer kubernetes is a pod with all layers below it: it can only stand alone")
	case (l == Metal || l == SSH || l.Xen()) && i > 0:
		return fmt.Errorf("layer %s is above another one: it can only be the first", l)
	case i == 0 && l.Container():
		return fmt.Errorf("the container has no machine: want one below it, such as vm/%s", l)
	case (l == Docker || l == Podman) && i > 1 && s[i-1] == VM:
		return fmt.Errorf("a nested guest has containerd only: want vm/vm/containerd, or vm/%s", l)
	case l == Podman && s[i-1] != VM:
		return fmt.Errorf("podman runs containers in a VM of this host only: want vm/podman")
	case l == VM && i > 0 && s[i-1] == Metal:
		return fmt.Errorf("leave out metal: vm is on the host")
	case l == VM && i > 0 && s[i-1] == SSH:
		return fmt.Errorf("unnest starts no VM on a machine reached over SSH: start it by hand, and use stack ssh with its address")
	case i > 0 && s[i-1].Xen():
		return fmt.Errorf("layer %s is above a domain of Xen: a domain can only be the last", l)
	case i > 0 && s[i-1].Container():
		return fmt.Errorf("layer %s is above a container: a container can only be the last", l)
	}
	return nil
}

// Level returns the degree of virtualization, the number of hypervisors under the running
// operating system. Containers do not count, nor do the unknown layers below a machine
// reached over SSH, or below a Xen host.
func (s Stack) Level() int {
	level := 0
	for _, l := range s {
		if l == VM || l.Xen() {
			level++
		}
	}
	return level
}

// Engine returns the container engine on top of the stack; ok reports whether there is
// one.
func (s Stack) Engine() (engine Layer, ok bool) {
	if len(s) == 0 || !s[len(s)-1].Container() {
		return "", false
	}
	return s[len(s)-1], true
}

// Remote reports whether the stack is on a machine reached over SSH.
func (s Stack) Remote() bool { return len(s) > 0 && s[0] == SSH }

// Pod reports whether the stack is a pod of an existing cluster.
func (s Stack) Pod() bool { return len(s) > 0 && s[0] == Kubernetes }

// Xen reports whether the stack is a domain of a Xen host.
func (s Stack) Xen() bool { return len(s) > 0 && s[0].Xen() }

var xenKinds = map[Layer]string{XenPV: "PV", XenPVH: "PVH", XenHVM: "HVM"}

// Describe describes the stack: "in a containerd container in a VM".
func (s Stack) Describe() string {
	machine := "on the host"
	if s.Pod() {
		return "in a pod of a Kubernetes cluster"
	}
	if s.Remote() {
		machine = "on a machine reached over SSH"
	}
	if s.Xen() {
		machine = "in a " + xenKinds[s[0]] + " domain of Xen"
	} else if level := s.Level(); level > 0 {
		machine = "in a VM" + strings.Repeat(" in a VM", level-1)
	}
	if engine, ok := s.Engine(); ok {
		return "in a " + string(engine) + " container " + machine
	}
	return machine + ", no container"
}
