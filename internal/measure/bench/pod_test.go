package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

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
	spec := mustParse(t, manyPods)
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

// Servers on a shared loopback listen on it only, and publish no port.
func TestPodNetworks(t *testing.T) {
	ports := []workload.Port{{Protocol: workload.UDP, Number: 5001}}
	tests := []struct {
		network          stack.Network
		servers, clients string
		listen, address  string
	}{
		{stack.Localhost, "", "--network container:web", "127.0.0.1", "127.0.0.1"},
		{stack.NAT, "--publish 5001:5001/udp", "", "", "10.201.0.3"},
		{stack.OverlayNetwork, "--network none", "--network none", "", "10.0.1.3"},
		{stack.Hostlo, "--network hostlo", "--network hostlo", "127.0.0.1", "127.0.0.1"},
		{stack.HostloPlain, "--network hostlo-plain", "--network hostlo-plain", "127.0.0.1", "127.0.0.1"},
	}
	for _, tt := range tests {
		servers, clients := podArgs(tt.network, "web", ports)
		if got := strings.Join(servers, " "); got != tt.servers {
			t.Errorf("%s: servers' container: got %q, want %q", tt.network, got, tt.servers)
		}
		if got := strings.Join(clients, " "); got != tt.clients {
			t.Errorf("%s: clients' container: got %q, want %q", tt.network, got, tt.clients)
		}
		if listen, address := podAddresses(tt.network, "10.201.0.3"); listen != tt.listen || address != tt.address {
			t.Errorf("%s: servers on %q, found at %q; want %q, %q", tt.network, listen, address, tt.listen, tt.address)
		}
	}
}

// If any machine of a pod has ended, that is the error of the execution.
func TestMachinesExplain(t *testing.T) {
	died, symptom := errors.New("out of memory"), errors.New("connection refused")
	alive := &machine{died: func() error { return nil }}
	dead := &machine{died: func() error { return died }}
	for _, m := range []machines{{alive, dead}, {dead, alive}, {dead}} {
		if err := m.explain(symptom); !errors.Is(err, died) || !errors.Is(err, experiment.ErrFatal) {
			t.Errorf("got %v, want what the machine died of", err)
		}
		if err := m.explain(nil); err != nil {
			t.Errorf("without an error: got %v", err)
		}
	}
	if err := (machines{alive, &machine{}}).explain(symptom); !errors.Is(err, symptom) || errors.Is(err, experiment.ErrFatal) {
		t.Errorf("all alive: got %v", err)
	}
}

// answering is a place whose commands all print the same.
type answering struct {
	place.Local
	answer string
}

func (a answering) Start(_ context.Context, c place.Command) (place.Process, error) {
	return process(func() error {
		_, err := io.WriteString(c.Stdout, a.answer)
		return err
	}), nil
}

// A client joins the control groups and namespaces of its container, and those of no
// other process if the container is gone.
func TestEnter(t *testing.T) {
	for answer, want := range map[string][]string{
		"412\n/sys/fs/cgroup/default/4f\n":                         {"412", "/sys/fs/cgroup/default/4f", "--"},
		"412\n/sys/fs/cgroup/pids/4f\n/sys/fs/cgroup/unified/4f\n": {"412", "/sys/fs/cgroup/pids/4f", "/sys/fs/cgroup/unified/4f", "--"},
	} {
		got, err := enter(t.Context(), &machine{place: answering{answer: answer}}, "web")
		if err != nil {
			t.Fatal(err)
		}
		inside, ok := got.(place.Within)
		if !ok || !slices.Equal(inside.Enter[4:], want) || !strings.Contains(got.String(), "container web in ") {
			t.Errorf("%q: got %+v", answer, got)
		}
	}
	for _, answer := range []string{"", "412\n", "412 \n", "0\n/sys/fs/cgroup\n"} {
		if got, err := enter(t.Context(), &machine{place: answering{answer: answer}}, "web"); err == nil || !strings.Contains(err.Error(), "container web") {
			t.Errorf("%q: got %v, %v; want an error that names the container", answer, got, err)
		}
	}
}

// A command that enters runs in all namespaces of the container's process, and in its
// control group of each hierarchy.
func TestEnterJoins(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, namespaces and control groups: set UNNEST_PRIVILEGED=1")
	}
	var roots []string // of hierarchies: the one of version 2, or some of the many
	for _, root := range []string{"", "pids", "freezer", "unified"} {
		if root = filepath.Join("/sys/fs/cgroup", root); exists(filepath.Join(root, "cgroup.procs")) {
			roots = append(roots, root)
		}
	}
	const group = "unnest-test-enter"
	t.Cleanup(func() {
		if err := removeGroups(group); err != nil {
			t.Error(err)
		}
	})
	s, _, pid := overlayGuest(t, "10.201.0.2", "web")
	for _, root := range roots {
		dir := filepath.Join(root, group)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	web, err := enter(t.Context(), s, "web")
	if err != nil {
		t.Fatal(err)
	}
	const where = `cat "/proc/$1/cgroup"; for kind in net mnt; do readlink "/proc/$1/ns/$kind"; done`
	got, err := place.Output(t.Context(), web, "sh", "-c", where, "where", "self")
	if err != nil {
		t.Fatal(err)
	}
	want, err := place.Output(t.Context(), place.Local{}, "sh", "-c", where, "where", strconv.Itoa(pid))
	if err != nil {
		t.Fatal(err)
	}
	if len(roots) == 0 || string(got) != string(want) || strings.Count(string(got), group) != len(roots) {
		t.Errorf("it is in\n%s\nwant\n%s", got, want)
	}
	// What is started there lives there, and its end is told.
	server := newServer(t, "echo Server listening on 5001; exec sleep 61.25")
	for range 2 {
		if err := server.start(t.Context(), web); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
