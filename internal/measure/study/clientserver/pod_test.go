package clientserver

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

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
		{stack.DockerOverlay, "--network docker-overlay --ip 10.0.1.3", "--network docker-overlay --ip 10.0.1.2", "", "10.0.1.3"},
		{stack.Hostlo, "--network hostlo", "--network hostlo", "127.0.0.1", "127.0.0.1"},
		{stack.HostloPlain, "--network hostlo-plain", "--network hostlo-plain", "127.0.0.1", "127.0.0.1"},
		{stack.HostloNetwork, "--network none", "--network none", "127.0.0.1", "127.0.0.1"},
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

// answering is a place whose commands all print the same.
type answering struct {
	place.Local
	answer string
}

func (a answering) Start(_ context.Context, c place.Command) (place.Process, error) {
	return benchtest.Process(func() error {
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
		got, err := machine.Enter(t.Context(), &machine.Machine{Place: answering{answer: answer}}, "web")
		if err != nil {
			t.Fatal(err)
		}
		inside, ok := got.(place.Within)
		if !ok || !slices.Equal(inside.Enter[4:], want) || !strings.Contains(got.String(), "container web in ") {
			t.Errorf("%q: got %+v", answer, got)
		}
	}
	for _, answer := range []string{"", "412\n", "412 \n", "0\n/sys/fs/cgroup\n"} {
		if got, err := machine.Enter(t.Context(), &machine.Machine{Place: answering{answer: answer}}, "web"); err == nil || !strings.Contains(err.Error(), "container web") {
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
		if err := cgroup.Remove(group); err != nil {
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
	web, err := machine.Enter(t.Context(), s, "web")
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
	served := &server.Service{Place: web, Servers: []*server.Server{newServer("echo Server listening on 5001; exec sleep 61.25")}}
	defer func() { _ = served.Leave() }()
	for range 2 {
		if err := served.StartServers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
