package bench

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/guest"
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

// Configurations share a guest of the right size, unless they say how it begins.
func TestMachineKeyOfGuests(t *testing.T) {
	spec := &experiment.Spec{Guest: experiment.Guest{VCPUs: 1, Memory: 1 << 30}}
	key := func(name string, start stack.Start) string {
		t.Helper()
		k, err := machineKey(spec, stack.Configuration{Name: name, Stack: stack.Stack{stack.VM}, Start: start})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if a, b := key("NoCont", ""), key("NAT", ""); a != b {
		t.Errorf("without a start: %q and %q, want the same", a, b)
	}
	own := map[string]bool{key("NoCont", ""): true}
	for name, start := range map[string]stack.Start{"booted-a": stack.Booted, "booted-b": stack.Booted, "restored-a": stack.Restored, "restored-b": stack.Restored} {
		k := key(name, start)
		if own[k] {
			t.Errorf("%s shares the guest %q", name, k)
		}
		own[k] = true
	}
	k, err := machineKey(spec, stack.Configuration{Name: "polls", Stack: stack.Stack{stack.VM}, VHostPoll: time.Microsecond})
	if err != nil || own[k] {
		t.Errorf("a guest whose vhost-net polls: got %q, %v; want one of its own", k, err)
	}
}

// A guest that has booted is not measured as a restored one.
func TestCheckStart(t *testing.T) {
	full := errors.New("no space")
	booted := &guest.Guest{Config: guest.Config{Name: "node1", NotRestored: full}}
	if err := checkStart(stack.Configuration{Start: stack.Restored}, booted); !errors.Is(err, full) || err.Error() != "restore guest node1: no space" {
		t.Errorf("got %v", err)
	}
	for _, start := range []stack.Start{"", stack.Booted} {
		if err := checkStart(stack.Configuration{Start: start}, booted); err != nil {
			t.Errorf("start %q: %v", start, err)
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

// Machines start their engines at the same time, each once. An error names the configuration.
func TestStartEngines(t *testing.T) {
	spec := mustParse(t, `name: x
suite: network
guest: {vcpus: 1, memory: 1GiB}
configurations:
  - {name: NoCont, stack: vm}
  - {name: NAT, stack: vm/containerd, network: nat}
  - {name: Host, stack: vm/containerd, network: host}
  - {name: a, stack: vm/containerd, network: nat, start: booted}
cases: [{name: rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}]
`)
	b := &Bench{spec: spec, running: map[string]*machine{}}
	begun, all := make(chan string, 3), make(chan struct{})
	broken := errors.New("no containerd")
	for _, c := range spec.Configurations {
		keys, err := machineKeys(spec, c)
		if err != nil {
			t.Fatal(err)
		}
		b.running[keys[0]] = &machine{startEngine: func(context.Context) error {
			begun <- c.Name
			<-all
			if c.Name == "a" {
				return broken
			}
			return nil
		}}
	}
	go func() { // none ends before both have begun
		for range 2 {
			<-begun
		}
		close(all)
	}()
	if err := b.startEngines(t.Context()); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "configuration a: ") {
		t.Errorf("got %v", err)
	}
	if len(begun) > 0 {
		t.Errorf("%s starts its engine again", <-begun)
	}
}
