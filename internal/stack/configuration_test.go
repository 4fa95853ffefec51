package stack

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConfigurations(t *testing.T) {
	for _, test := range []struct {
		text string
		want Configuration
	}{
		{"vm", Configuration{Name: "vm", Stack: Stack{VM}}},
		{"NoCont=vm", Configuration{Name: "NoCont", Stack: Stack{VM}}},
		{"vm/containerd:network=nat", Configuration{Name: "vm/containerd:network=nat", Stack: Stack{VM, Containerd}, Network: NAT}},
		{"BrFusion=vm/containerd:network=brfusion", Configuration{Name: "BrFusion", Stack: Stack{VM, Containerd}, Network: BrFusion}},
		{"metal.mnt.host=metal/docker:network=host,storage=volume",
			Configuration{Name: "metal.mnt.host", Stack: Stack{Metal, Docker}, Network: HostNetwork, Storage: Volume}},
	} {
		got, err := ParseConfiguration(test.text)
		if err != nil {
			t.Fatalf("ParseConfiguration(%q): %v", test.text, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ParseConfiguration(%q) (-want +got):\n%s", test.text, diff)
		}
		if got.String() != test.text {
			t.Errorf("ParseConfiguration(%q).String() = %q", test.text, got.String())
		}
	}
}

func TestParseConfigurationOrdersOptions(t *testing.T) {
	got, err := ParseConfiguration("vm/docker:storage=image,network=nat")
	if err != nil {
		t.Fatal(err)
	}
	if want := "vm/docker:network=nat,storage=image"; got.Name != want || got.String() != want {
		t.Errorf("named %q, written %q; want %q", got.Name, got.String(), want)
	}
}

func TestConfigurationRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "stack is empty",
		"x=":                                     "stack is empty",
		"=vm":                                    "it has no name",
		"vm:network=nat":                         "needs a container: put one on top of the stack, as in vm/containerd",
		"vm:storage=volume":                      "needs a container",
		"metal/containerd:network=brfusion":      "network brfusion needs a container in a VM",
		"vm/containerd:network=bridge":           `unknown network "bridge": want host, nat, brfusion, brfusion-cold or brfusion-trunk`,
		"vm/containerd:storage=aufs":             `unknown storage "aufs": want image or volume`,
		"vm/containerd:colour=red":               `unknown option "colour"`,
		"vm/containerd:network":                  `option "network" has no value`,
		"vm/containerd:":                         `option "" has no value`,
		"vm/containerd:network=nat,network=host": "option network is given twice",
		"a b=vm":                                 `character ' ' in its name`,
		"vm/kvm":                                 `unknown layer "kvm"`,
	} {
		if c, err := ParseConfiguration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseConfiguration(%q) = %+v, %v; want an error with %q", text, c, err, want)
		}
	}
}

func TestDescribe(t *testing.T) {
	for text, want := range map[string]string{
		"NoCont":   "in a VM, no container",
		"NAT":      "in a containerd container in a VM, behind a bridge and NAT",
		"BrFusion": "in a containerd container in a VM, with a NIC of its own from the VMM",
		"metal/docker:network=host,storage=image": "in a docker container on the host, on its machine's network, files in its image's layers",
		"vm/docker:storage=volume":                "in a docker container in a VM, files in a mounted directory",
	} {
		c, err := ParseConfiguration(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Describe(); got != want {
			t.Errorf("%s: described as %q, want %q", text, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	for name, level := range map[string]int{"NoCont": 1, "NAT": 1, "BrFusion": 1, "L0": 0, "L1": 1, "L2": 2} {
		c, ok := Named(name)
		if !ok || c.Name != name || c.Level() != level {
			t.Errorf("Named(%q) = %+v, %v; want level %d", name, c, ok, level)
		}
		if err := c.Validate(); err != nil {
			t.Errorf("Named(%q): %v", name, err)
		}
		c.Stack[0] = "overwritten"
	}
	if c, ok := Named("L1"); !ok || c.Stack[0] != VM {
		t.Errorf("a caller changed L1 to %v", c.Stack)
	}
	if _, ok := Named("vm"); ok {
		t.Error("a notation is taken for a paper's name")
	}
}

func TestOptions(t *testing.T) {
	c := Configuration{Name: "x", Stack: Stack{VM, Docker}, Network: NAT, Storage: Volume}
	if diff := cmp.Diff(map[string]string{"network": "nat", "storage": "volume"}, c.Options()); diff != "" {
		t.Error(diff)
	}
	if got := (Configuration{Stack: Stack{VM}}).Options(); len(got) != 0 {
		t.Errorf("options %v of a configuration without any", got)
	}
}

func FuzzParseConfiguration(f *testing.F) {
	for _, text := range []string{"NoCont", "vm", "a=vm", "BrFusion=vm/containerd:network=brfusion",
		"metal/docker:storage=volume,network=host", "=", ":", "a=:", "vm:=", "L2=metal"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfiguration(text)
		if err != nil {
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("ParseConfiguration(%q) is not valid: %v", text, err)
		}
		again, err := ParseConfiguration(c.String())
		if err != nil {
			t.Fatalf("ParseConfiguration(%q), written by %q: %v", c.String(), text, err)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Fatalf("%q does not survive a round trip (-first +second):\n%s", text, diff)
		}
	})
}

// The 16 configurations of the paper that first measured the layers: local and
// remote differ in where the client runs, which belongs to the case.
func TestSixteenConfigurationsFit(t *testing.T) {
	machines := map[string]Layer{"metal": Metal, "vm": VM}
	storages := map[string]Storage{"aufs": Image, "mnt": Volume}
	networks := map[string]Network{"": "", ".nat": NAT, ".host": HostNetwork}
	seen := map[string]bool{}
	for machine, layer := range machines {
		for _, client := range []string{"local", "remote"} {
			c := Configuration{Name: machine + "." + client, Stack: Stack{layer}}
			if err := c.Validate(); err != nil {
				t.Error(err)
			}
			seen[c.String()] = true
		}
		for storage, s := range storages {
			for network, n := range networks {
				c := Configuration{Name: machine + "." + storage + network, Stack: Stack{layer, Docker}, Network: n, Storage: s}
				if err := c.Validate(); err != nil {
					t.Error(err)
				}
				seen[c.String()] = true
			}
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d configurations can be told apart, want 16", len(seen))
	}
}

// A container is reached at its own address on every network of BrFusion's.
func TestReached(t *testing.T) {
	for network, want := range map[Network]bool{
		"": false, HostNetwork: false, NAT: false, BrFusion: true, BrFusionCold: true, BrFusionTrunk: true,
	} {
		c := Configuration{Name: "x", Stack: Stack{Metal, Containerd}, Network: network}
		if network.Reached() != want || (c.Validate() != nil) != want {
			t.Errorf("network %q: reached %v, without a VM: %v", network, network.Reached(), c.Validate())
		}
	}
}
