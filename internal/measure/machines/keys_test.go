package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

// All guests of a set are restored by one Snapshots, which remembers a freeze that failed.
func TestSetHasOneSnapshots(t *testing.T) {
	set := New(&experiment.Spec{}, Options{Progress: &benchtest.Phases{}})
	if first := set.Snapshots(); first != set.Snapshots() {
		t.Error("two calls return different ones")
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
	trixie := stack.Configuration{Name: "a", Stack: stack.Stack{stack.VM}, Release: stack.Trixie}
	also := stack.Configuration{Name: "b", Stack: stack.Stack{stack.VM, stack.Containerd}, Release: stack.Trixie}
	a, err := machineKey(spec, trixie)
	b, other := machineKey(spec, also)
	if err := errors.Join(err, other); err != nil || a != b || own[a] {
		t.Errorf("two of one release: %q and %q, %v; want a guest of their own", a, b, err)
	}
	for _, c := range []stack.Configuration{{Name: "polls", VHostPoll: time.Microsecond}, {Name: "queues", Queues: 4}, {Name: "one queue", Queues: 1}} {
		c.Stack = stack.Stack{stack.VM}
		k, err := machineKey(spec, c)
		if err != nil || own[k] {
			t.Errorf("%s: got %q, %v; want a guest of its own", c.Name, k, err)
		}
		own[k] = true
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
	if k := key("", stack.VM, stack.Docker); k == key("", stack.VM, stack.Containerd) || k == key("", stack.VM, stack.Podman) {
		t.Errorf("guests by several engines: %q for them", k)
	}
	if k := key("ssh://i", stack.SSH); k == plain {
		t.Errorf("two hosts: %q for both", k)
	}
}

// Machines start their engines at the same time, each once. An error names the configuration.
func TestStartEngines(t *testing.T) {
	spec := benchtest.Parse(t, `name: x
suite: network
guest: {vcpus: 1, memory: 1GiB}
configurations:
  - {name: NoCont, stack: vm}
  - {name: NAT, stack: vm/containerd, network: nat}
  - {name: Host, stack: vm/containerd, network: host}
  - {name: a, stack: vm/containerd, network: nat, start: booted}
cases: [{name: rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}]
`)
	b := &Set{Spec: spec, running: map[string]*machine.Machine{}}
	begun, all := make(chan string, 3), make(chan struct{})
	broken := errors.New("no containerd")
	for _, c := range spec.Configurations {
		keys, err := machineKeys(spec, c)
		if err != nil {
			t.Fatal(err)
		}
		b.running[keys[0]] = &machine.Machine{StartEngine: func(context.Context) error {
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
	if err := b.StartEngines(t.Context()); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "configuration a: ") {
		t.Errorf("got %v", err)
	}
	if len(begun) > 0 {
		t.Errorf("%s starts its engine again", <-begun)
	}
}

// printing is a place whose commands print their names and a version.
type printing struct{ place.Local }

func (printing) Start(_ context.Context, c place.Command) (place.Process, error) {
	return benchtest.Process(func() error {
		_, err := fmt.Fprintf(c.Stdout, "%s version 1.%d", c.Args[0], len(c.Args[0]))
		return err
	}), nil
}

// A run with guests of two engines records the versions of both.
func TestFindEngine(t *testing.T) {
	b := New(benchtest.Open(t, "brfusion-docker"), Options{})
	for _, c := range b.Spec.Configurations {
		keys, err := machineKeys(b.Spec, c)
		if err != nil {
			t.Fatal(err)
		}
		b.running[keys[0]] = &machine.Machine{Place: printing{}}
		b.running[keys[0]].Runs, _ = c.Stack.Engine()
	}
	err := b.FindEngine(t.Context())
	want := map[string]string{"nerdctl": "1.7", "docker": "1.6", "containerd": "1.10", "runc": "1.4"}
	if err != nil || !maps.Equal(b.facts.Tools, want) {
		t.Errorf("got %v, %v, want %v", b.facts.Tools, err, want)
	}
}

const manyPods = `name: pods
suite: network
configurations:
  - {name: NoCont, stack: vm}
  - {name: small, stack: vm/containerd, network: overlay, drive: pod, memory: 512MiB}
  - {name: SameNode, stack: vm/containerd, network: localhost, drive: pod}
  - {name: NAT, stack: vm/containerd, network: nat, drive: pod}
  - {name: Overlay, stack: vm/containerd, network: overlay, drive: pod}
  - {name: Hostlo}
  - {name: metal, stack: metal}
cases:
  - {name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}
`

// The clients of a split pod share the machine of other configurations of that size;
// its servers have another. Guests of other sizes are not shared.
func TestMachineKeys(t *testing.T) {
	spec := benchtest.Parse(t, manyPods)
	keys := map[string][]string{}
	for _, c := range spec.Configurations {
		var err error
		if keys[c.Name], err = machineKeys(spec, c); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range map[string]int{"NoCont": 1, "SameNode": 1, "metal": 1, "NAT": 2, "Overlay": 2, "Hostlo": 2, "small": 2} {
		if len(keys[name]) != n {
			t.Errorf("%s stands on %q, want %d machines", name, keys[name], n)
		}
	}
	if !slices.Equal(keys["NAT"], keys["Overlay"]) || !slices.Equal(keys["NAT"], keys["Hostlo"]) {
		t.Errorf("pods of the same size stand on different machines: %q", keys)
	}
	if !slices.Equal(keys["NAT"][:1], keys["SameNode"]) || !slices.Equal(keys["NoCont"], keys["SameNode"]) {
		t.Errorf("the first machine is not shared: %q", keys)
	}
	for _, key := range append(keys["small"], keys["metal"]...) {
		if slices.Contains(keys["NAT"], key) {
			t.Errorf("machine %q is of two sizes: %q", key, keys)
		}
	}
}
