package clientserver

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// A configuration that is not supported is refused by name, and the error names an
// alternative.
func TestSupported(t *testing.T) {
	tests := []struct {
		name   string
		change func(*stack.Configuration)
		want   []string // in the error; none: it is supported
	}{
		{"VM", func(*stack.Configuration) {}, nil},
		{"container on its VM's network", func(c *stack.Configuration) {
			c.Stack, c.Network = stack.Stack{stack.VM, stack.Containerd}, stack.HostNetwork
		}, nil},
		{"container behind NAT", func(c *stack.Configuration) { c.Stack, c.Network = stack.Stack{stack.VM, stack.Containerd}, stack.NAT }, nil},
		{"container with a NIC", func(c *stack.Configuration) {
			c.Stack, c.Network = stack.Stack{stack.VM, stack.Containerd}, stack.BrFusion
		}, nil},
		{"pod on two VMs", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Drive = stack.Stack{stack.VM, stack.Containerd}, stack.Hostlo, stack.Pod
		}, nil},
		{"pod in a nested VM", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Drive = stack.Stack{stack.VM, stack.VM, stack.Containerd}, stack.Hostlo, stack.Pod
		}, []string{"stack vm/vm/containerd"}},
		{"container without a network", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.VM, stack.Containerd} },
			[]string{"host, nat or brfusion"}},
		{"this host", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.Metal} }, nil},
		{"container on this host", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Storage = stack.Stack{stack.Metal, stack.Containerd}, stack.NAT, stack.Overlay
		}, nil},
		{"container with a volume", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Storage = stack.Stack{stack.VM, stack.Containerd}, stack.NAT, stack.Volume
		}, nil},
		{"container on this host without a network", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.Metal, stack.Containerd} },
			[]string{"host, nat or brfusion"}},
		{"nested VM", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.VM, stack.VM} }, nil},
		{"container behind NAT in a nested VM", func(c *stack.Configuration) {
			c.Stack, c.Network = stack.Stack{stack.VM, stack.VM, stack.Containerd}, stack.NAT
		}, nil},
		{"container with a NIC in a nested VM", func(c *stack.Configuration) {
			c.Stack, c.Network = stack.Stack{stack.VM, stack.VM, stack.Containerd}, stack.BrFusion
		}, []string{"stack vm/vm/containerd", "use network host or nat"}},
		{"VM three levels deep", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.VM, stack.VM, stack.VM} },
			[]string{"stack vm/vm/vm", "use metal, vm, vm/vm or ssh"}},
		{"machine over SSH", func(c *stack.Configuration) { c.Stack, c.Host = stack.Stack{stack.SSH}, "ssh://192.0.2.1" }, nil},
		{"container on a machine over SSH", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Host = stack.Stack{stack.SSH, stack.Docker}, stack.NAT, "ssh://192.0.2.1"
		}, nil},
		{"another engine", func(c *stack.Configuration) { c.Stack, c.Network = stack.Stack{stack.VM, stack.Docker}, stack.NAT }, nil},
		{"another engine on this host", func(c *stack.Configuration) { c.Stack, c.Network = stack.Stack{stack.Metal, stack.Docker}, stack.NAT },
			[]string{"stack metal/docker"}},
		{"driven from outside", func(c *stack.Configuration) { c.Drive = stack.Remote }, nil},
		{"domain of Xen", func(c *stack.Configuration) { c.Stack = stack.Stack{stack.XenPV} }, nil},
		{"domain of Xen driven from inside", func(c *stack.Configuration) { c.Stack, c.Drive = stack.Stack{stack.XenPV}, stack.Local }, []string{"drive local", "leave it out"}},
		{"driven from inside", func(c *stack.Configuration) { c.Drive = stack.Local }, []string{"drive local", "leave it out"}},
		{"another architecture", func(c *stack.Configuration) { c.Arch = stack.S390x }, nil},
		{"container of another architecture", func(c *stack.Configuration) {
			c.Stack, c.Network, c.Arch = stack.Stack{stack.VM, stack.Containerd}, stack.NAT, stack.S390x
		}, []string{"arch s390x", "use stack vm"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := stack.Configuration{Name: "mine", Stack: stack.Stack{stack.VM}}
			tt.change(&c)
			err := New(&machines.Set{Spec: &experiment.Spec{}}).Check(c)
			if len(tt.want) == 0 && err != nil {
				t.Error(err)
			}
			if len(tt.want) > 0 && (err == nil || !benchtest.ContainsAll(err.Error(), tt.want...)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

const manyCases = `name: many
suite: network
configurations:
  - {name: NoCont, stack: vm}
  - {name: NAT, stack: vm/containerd, network: nat}
  - {name: BrFusion, stack: vm/containerd, network: brfusion}
cases:
  - {name: udp_rr,     workload: sockperf, protocol: udp, sizes: [64, 1280], duration: 1s}
  - {name: tcp_rr,     workload: sockperf, protocol: tcp, sizes: [64],       duration: 1s}
  - {name: tcp_stream, workload: iperf3,   protocol: tcp, sizes: [64, 1280], duration: 1s}
  - {name: udp_stream, workload: iperf3,   protocol: udp, sizes: [1280],     duration: 1s}
`

// Cases that differ in client parameters share a server. No two servers of the bench
// share a port.
func TestAssignPorts(t *testing.T) {
	spec := benchtest.Parse(t, manyCases)
	b := New(&machines.Set{Spec: spec})
	used := map[int]string{}
	for _, c := range spec.Configurations {
		s := b.assignPorts("")
		b.Instances[c.Name] = &server.Service{Address: "10.201.0.2", Ports: s.Ports}
		if len(s.Ports) != 4 || len(s.List) != 4 {
			t.Errorf("%s: %d ports for %d servers, want 4", c.Name, len(s.Ports), len(s.List))
		}
		for key, port := range s.Ports {
			if other, taken := used[port]; taken || port < server.FirstPort {
				t.Errorf("%s: port %d of %s is taken by %s", c.Name, port, key, other)
			}
			used[port] = c.Name + " " + key
		}
	}
	ends := map[string]int{}
	for _, c := range spec.Cases {
		e := b.Instances["NAT"].Endpoint(c)
		if e.Address != "10.201.0.2" || e.Port == 0 {
			t.Errorf("%s: got %+v", c.Name, e)
		}
		ends[c.Name] = e.Port
	}
	if ends["udp_rr/64"] != ends["udp_rr/1280"] || ends["tcp_stream/64"] != ends["tcp_stream/1280"] {
		t.Errorf("sizes do not share a server: %v", ends)
	}
	if ends["udp_rr/64"] == ends["tcp_rr/64"] || ends["tcp_stream/1280"] == ends["udp_stream/1280"] {
		t.Errorf("protocols share a server: %v", ends)
	}
}

// All ports on which the servers listen are published, so that clients reach them
// through NAT.
func TestAssignPortsPublishes(t *testing.T) {
	s := New(&machines.Set{Spec: benchtest.Parse(t, manyCases)}).assignPorts("")
	want := []workload.Port{
		{Protocol: workload.UDP, Number: 5001}, {Protocol: workload.TCP, Number: 5002}, {Protocol: workload.TCP, Number: 5003},
		{Protocol: workload.TCP, Number: 5004}, {Protocol: workload.UDP, Number: 5004}, // iperf3 controls a UDP test by TCP
	}
	if !slices.Equal(s.Published, want) {
		t.Errorf("got %v, want %v", s.Published, want)
	}
	var commands []string
	for _, server := range s.List {
		commands = append(commands, server.Command.String()+" "+server.Command.Ready)
	}
	if got, want := strings.Join(commands, "\n"), `"sockperf server -p 5001" to block on socket(s)
"sockperf server -p 5002 --tcp" to block on socket(s)
"iperf3 -s -p 5003 --forceflush" Server listening on
"iperf3 -s -p 5004 --forceflush" Server listening on`; got != want {
		t.Errorf("servers:\n%s\nwant:\n%s", got, want)
	}
}

// A server on a machine with several addresses listens on the one that clients use.
func TestAssignPortsListens(t *testing.T) {
	for _, server := range New(&machines.Set{Spec: benchtest.Parse(t, manyCases)}).assignPorts("10.201.0.1").List {
		if !strings.Contains(server.Command.String(), "10.201.0.1") {
			t.Errorf("%s listens on every address", server.Command)
		}
	}
}

// The provenance of a run has how many pairs of queues the guest uses of a container's NIC, whatever was asked for.
func TestQueuesInProvenance(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, machine.Nerdctl), []byte("#!/bin/sh\necho 10.0.0.2\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const enter = `mount -t sysfs sysfs /sys && ip link add eth0 numrxqueues 3 numtxqueues 3 type veth peer name peer && exec "$@"`
	m := &machine.Machine{
		Place: place.Local{},
		StartContainer: func(context.Context, string, ...string) (place.Place, error) {
			return place.Within{Place: place.Local{}, Enter: []string{"unshare", "--mount", "--net", "sh", "-c", enter, "sh"}}, nil
		},
	}
	s := New(&machines.Set{Spec: benchtest.Parse(t, manyCases)})
	c := stack.Configuration{Name: "BrFusion", Stack: stack.Stack{stack.VM, stack.Containerd}, Network: stack.BrFusion, Queues: 8}
	if _, err := s.newService(t.Context(), c, machine.List{m}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.Facts().Conditions, "Pairs of queues that the guest uses of the NIC of BrFusion: 3."; !slices.Equal(got, []string{want}) {
		t.Errorf("the conditions are %q, want %q", got, want)
	}
}
