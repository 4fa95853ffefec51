package clientserver

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// On this host the load generator is next to unnest, in a pod where the guest's image has it.
func TestClientCommand(t *testing.T) {
	key := server.Key(cache)
	pod := place.Within{Name: "pod"}
	s := &Study{Set: &machines.Set{Options: machines.Options{Binaries: "/opt/unnest"}}, Client: place.Local{}, Instances: map[string]*server.Service{
		"NAT": {Address: "10.201.0.2", Ports: map[string]int{key: 5001}}, "SameNode": {Address: machine.Loopback, Ports: map[string]int{key: 5002}, Client: pod},
	}}
	for name, want := range map[string]string{
		"NAT": "/opt/unnest/unnest-load memcached -target 10.201.0.2:5001 ", "SameNode": "/usr/local/bin/unnest-load memcached -target 127.0.0.1:5002 ",
	} {
		p, args := s.clientCommand(benchtest.Execution(name, cache, 0))
		if !strings.HasPrefix(strings.Join(args, " "), want) || (p.String() == "pod") != (name == "SameNode") {
			t.Errorf("%s: %q in %s, want %s", name, args, p, want)
		}
	}
	s.Client = place.Within{Name: "clients of the lab"}
	e := benchtest.Execution("NAT", cache, 0)
	if p, _ := s.clientCommand(e); p.String() != "clients of the lab" {
		t.Errorf("a VM is loaded from %s", p)
	}
	e.Configuration.Host = "ssh://192.0.2.1"
	if p, _ := s.clientCommand(e); p.String() != "this host" {
		t.Errorf("a machine over SSH is loaded from %s, want the network of this process", p)
	}
}

// Clients of Kafka have Java and Kafka's jars. Other clients run as before.
func TestExtraClients(t *testing.T) {
	spec := benchtest.Parse(t, benchtest.KafkaCases)
	b := &machines.Set{Spec: spec, Options: machines.Options{Binaries: "/bin"}}
	s := New(b)
	s.Client, s.programs = place.Local{}, &thishost.Host{Inside: place.Within{Name: "programs"}}
	outside, inside := &server.Service{}, &server.Service{Client: place.Within{Name: "pod"}}
	s.Instances = map[string]*server.Service{"NoCont": outside, "pod": inside}
	for _, tt := range []struct {
		configuration string
		at            int
		place, first  string
	}{
		{"NoCont", 0, "programs", workload.Generator}, {"NoCont", 1, "this host", "/bin/unnest-load"}, {"pod", 0, "pod", workload.Generator},
	} {
		p, command := s.clientCommand(benchtest.Execution(tt.configuration, spec.Cases[tt.at], 0))
		if p.String() != tt.place || command[0] != tt.first {
			t.Errorf("%+v: got %s on %s", tt, command[0], p)
		}
	}
	servers := s.assignPorts("").List
	if len(servers) != 2 || !servers[0].Command.Alone || servers[0].Timeout != server.SlowTimeout || servers[1].Command.Alone {
		t.Errorf("servers %+v", servers)
	}
}
