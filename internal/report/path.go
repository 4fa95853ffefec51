package report

import (
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
)

// Path is what a packet crosses in one configuration, from the client to the server.
type Path struct {
	Configuration string `json:"configuration"`
	Hops          []Hop  `json:"hops"`
	Value         string `json:"value,omitempty"` // of the reference case: "243 µs"
	Badge         string `json:"badge,omitempty"` // against the main baseline
}

// Hop is one station of a path.
type Hop struct {
	Name  string `json:"name"`
	Place Place  `json:"place"`
}

// Place is where a hop is. A nested hop exists only because containers are nested in a
// virtual machine.
type Place string

// The places.
const (
	onHost Place = "host"
	inVM   Place = "vm"
	inNest Place = "nested"
	ends   Place = "end"
)

// nestedIn returns the hops between the kernel of a VM and a container in it, from the
// outside in; ok is false for an unknown network.
func nestedIn(network stack.Network) (hops []Hop, ok bool) {
	switch network {
	case "", stack.HostNetwork:
		return nil, true
	case stack.NAT:
		return []Hop{{"NAT", inNest}, {"bridge", inNest}, {"veth", inNest}}, true
	case stack.OverlayNetwork:
		return []Hop{{"VXLAN", inNest}, {"bridge", inNest}, {"veth", inNest}}, true
	}
	return nil, false
}

// pathOf returns the hops of a configuration of the suite network, none if they are not
// known.
func pathOf(c result.Configuration) []Hop {
	s, err := stack.Parse(c.Stack)
	if err != nil || s.Remote() || s.Level() > 1 {
		return nil
	}
	network, drive := stack.Network(c.Options["network"]), stack.Drive(c.Options["drive"])
	server := Hop{"server", ends}
	if _, contained := s.Engine(); contained {
		server.Name = "server in its container"
	}
	if drive == stack.Pod {
		return podPath(network, server)
	}
	hops := []Hop{{"client", ends}, {"host's bridge", onHost}}
	if s.Level() == 0 { // the client has a network namespace of its own
		hops = []Hop{{"client", ends}, {"veth", onHost}}
	}
	if network.Reached() {
		return append(hops, Hop{"the pod's own NIC", onHost}, server)
	}
	inner, ok := nestedIn(network)
	if !ok {
		return nil
	}
	if s.Level() > 0 {
		hops = append(hops, Hop{"NIC of the VM", onHost}, Hop{"kernel of the VM", inVM})
	}
	return append(append(hops, inner...), server)
}

// podPath is the path between two containers of a pod.
func podPath(network stack.Network, server Hop) []Hop {
	client := Hop{"client in its container", ends}
	switch network {
	case stack.Localhost:
		return []Hop{client, {"loopback of the VM", inVM}, server}
	case stack.Hostlo, stack.HostloPlain:
		return []Hop{client, {"loopback of VM 1", inVM}, {"reflector on the host", onHost}, {"loopback of VM 2", inVM}, server}
	}
	inner, ok := nestedIn(network)
	if !ok {
		return nil
	}
	out := slices.Clone(inner)
	slices.Reverse(out)
	hops := append([]Hop{client}, out...)
	hops = append(hops, Hop{"NIC of VM 1", onHost}, Hop{"host's bridge", onHost}, Hop{"NIC of VM 2", onHost})
	return append(append(hops, inner...), server)
}

// paths pictures every configuration with the value of the reference case among estimates.
// It is nil unless all paths are known.
func (b *builder) paths(estimates []Estimate) []Path {
	estimates = primaries(estimates)
	if len(estimates) == 0 || estimates[0].Suite != networkSuite {
		return nil
	}
	var all []Path
	for _, c := range b.run.Configurations {
		p := Path{Configuration: c.Name, Hops: pathOf(c)}
		if p.Hops == nil {
			return nil
		}
		if e := find(estimates, reference(estimates).Case, c.Name); e.N > 0 {
			p.Value = number(e.Center) + " " + shown(e.Unit)
			if main := b.baselines(); len(main) > 0 {
				if against := e.against(main[0]); against != nil {
					p.Badge = against.Badge
				}
			}
		}
		all = append(all, p)
	}
	return all
}

// networkSuite is the suite whose cases cross a network.
const networkSuite = "network"
