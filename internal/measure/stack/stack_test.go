package stack

import (
	"strings"
	"testing"
)

func TestStacks(t *testing.T) {
	for _, test := range []struct {
		text     string
		level    int
		engine   Layer
		describe string
	}{
		{"metal", 0, "", "on the host, no container"},
		{"metal/containerd", 0, Containerd, "in a containerd container on the host"},
		{"vm", 1, "", "in a VM, no container"},
		{"vm/containerd", 1, Containerd, "in a containerd container in a VM"},
		{"vm/docker", 1, Docker, "in a docker container in a VM"},
		{"vm/podman", 1, Podman, "in a podman container in a VM"},
		{"vm/vm", 2, "", "in a VM in a VM, no container"},
		{"vm/vm/containerd", 2, Containerd, "in a containerd container in a VM in a VM"},
		{"vm/vm/vm/vm", 4, "", "in a VM in a VM in a VM in a VM, no container"},
		{"ssh", 0, "", "on a machine reached over SSH, no container"},
		{"kubernetes", 0, "", "in a pod of a Kubernetes cluster"},
		{"ssh/containerd", 0, Containerd, "in a containerd container on a machine reached over SSH"},
	} {
		s, err := Parse(test.text)
		if err != nil {
			t.Fatalf("Parse(%q): %v", test.text, err)
		}
		if got := s.String(); got != test.text {
			t.Errorf("Parse(%q).String() = %q", test.text, got)
		}
		if got := s.Level(); got != test.level {
			t.Errorf("%s: level %d, want %d", test.text, got, test.level)
		}
		engine, ok := s.Engine()
		if engine != test.engine || ok != (test.engine != "") {
			t.Errorf("%s: engine %q %v, want %q", test.text, engine, ok, test.engine)
		}
		if got := s.Describe(); got != test.describe {
			t.Errorf("%s: described as %q, want %q", test.text, got, test.describe)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "stack is empty",
		"kvm":                     `unknown layer "kvm": want metal, vm, ssh, xen-pv, xen-pvh, xen-hvm, kubernetes, containerd, docker or podman`,
		"vm/":                     `unknown layer ""`,
		"VM":                      `unknown layer "VM"`,
		"containerd":              "want one below it, such as vm/containerd",
		"metal/vm":                "leave out metal",
		"vm/metal":                "layer metal is above another",
		"vm/ssh":                  "layer ssh is above another",
		"vm/kubernetes":           "layer kubernetes is a pod with all layers below it: it can only stand alone",
		"kubernetes/containerd":   "it can only stand alone",
		"ssh/vm":                  "unnest starts no VM on a machine reached over SSH",
		"metal/podman":            "want vm/podman",
		"ssh/podman":              "want vm/podman",
		"vm/vm/docker":            "want vm/vm/containerd, or vm/docker",
		"vm/vm/podman":            "want vm/vm/containerd, or vm/podman",
		"podman":                  "such as vm/podman",
		"vm/docker/vm":            "layer vm is above a container",
		"vm/docker/vm/x":          "layer vm is above a container",
		"metal/docker/containerd": "layer containerd is above a container",
	} {
		if s, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v; want an error with %q", text, s, err, want)
		}
	}
	if err := (Stack{}).Validate(); err == nil {
		t.Error("the empty stack is valid")
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"metal", "vm", "vm/vm", "vm/containerd", "metal/docker", "metal/vm", "ssh", "ssh/docker", "ssh/vm", "", "/", "vm//"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		if s.String() != text {
			t.Fatalf("Parse(%q).String() = %q", text, s.String())
		}
		if err := s.Validate(); err != nil {
			t.Fatalf("Parse(%q) is not valid: %v", text, err)
		}
	})
}
