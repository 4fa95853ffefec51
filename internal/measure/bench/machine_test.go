package bench

import (
	"regexp"
	"testing"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
)

// Names of containers follow the rules of the engines (Docker's daemon/names,
// containerd's identifiers) for every name of a configuration.
func TestContainerName(t *testing.T) {
	taken := regexp.MustCompile(`^[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*$`)
	for name, want := range map[string]string{
		"metal.aufs.nat": "metal-aufs-nat", "BrFusion": "brfusion", "a--b_c (2)": "a-b-c-2",
		"ssh/containerd:storage=volume,host=ssh://root@10.0.0.5:2222": "ssh-containerd-storage-volume-host-ssh-root-10-0-0-5-2222",
	} {
		if got := containerName(stack.Configuration{Name: name}); got != want || !taken.MatchString(got) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// Configurations on one host share its machine, unless they need different engines.
func TestMachineKeyOfRemotes(t *testing.T) {
	key := func(host string, layers ...stack.Layer) string {
		t.Helper()
		k, err := machineKey(&experiment.Spec{}, stack.Configuration{Stack: layers, Host: host})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	plain := key("ssh://h", stack.SSH)
	if k := key("ssh://h", stack.SSH, stack.Containerd); k != plain {
		t.Errorf("without and with a container: %q and %q, want the same", plain, k)
	}
	if k := key("ssh://h", stack.SSH, stack.Docker); k == plain {
		t.Errorf("by two engines: %q for both", k)
	}
	if k := key("ssh://i", stack.SSH); k == plain {
		t.Errorf("two hosts: %q for both", k)
	}
}
