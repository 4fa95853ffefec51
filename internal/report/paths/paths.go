// Package paths pictures what is between client and server in each configuration of a run, or
// what is under a benchmark.
package paths

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
)

// Path is what is between client and server in one configuration, or what is under a
// benchmark: from the client, or the benchmark, on.
type Path struct {
	Configuration string  `json:"configuration"`
	Hops          []Hop   `json:"hops"`
	Value         string  `json:"value,omitempty"` // of the reference case: "243 µs"
	Badge         string  `json:"badge,omitempty"` // against the main baseline
	Spent         []Spent `json:"spent,omitempty"` // CPU time, where it was measured
}

// Hop is one station of a path.
type Hop struct {
	Name    string  `json:"name"`
	Place   Place   `json:"place"`
	Machine machine `json:"machine"` // whose kernel runs it
}

// Place is the kind of a hop. A nested hop exists only because containers are nested in a
// virtual machine, or machines in each other.
type Place string

// The places.
const (
	onHost Place = "host"
	inVM   Place = "vm"
	inNest Place = "nested"
	ends   Place = "end"
)

// machine names the operating system that runs a hop.
type machine string

// The machines of a path.
const (
	host     machine = "host"
	vm       machine = "VM"
	vm1      machine = "VM 1"
	vm2      machine = "VM 2"
	innerVM  machine = "VM in the VM"
	deeperVM machine = "innermost VM"
	podsVMs  machine = "VM 1 and VM 2" // together
)

// Spent is CPU time per unit of work, the mean at the reference case: on a machine, for all
// its hops.
type Spent struct {
	Machine machine         `json:"machine"`
	What    string          `json:"what"` // "interrupts"
	Value   document.Number `json:"value"`
	Unit    string          `json:"unit"`
}

// amount prints the value with its unit, which is per unit of work.
func (s Spent) amount() string {
	unit, _ := strings.CutSuffix(naming.Unit(s.Unit), "/op")
	return document.Decimal(s.Value, max(0, document.Decimals(s.Value)-2)) + " " + unit
}

// nestedIn returns the hops between the kernel of a VM and a container in it, from the
// outside in; ok is false for an unknown network.
func nestedIn(network stack.Network, in machine) (hops []Hop, ok bool) {
	switch network {
	case "", stack.HostNetwork:
		return nil, true
	case stack.NAT, stack.DockerBridge:
		return []Hop{{"NAT", inNest, in}, {"bridge", inNest, in}, {"veth", inNest, in}}, true
	case stack.OverlayNetwork, stack.DockerOverlay:
		return []Hop{{"VXLAN", inNest, in}, {"bridge", inNest, in}, {"veth", inNest, in}}, true
	case stack.HostloNetwork:
		return []Hop{{"VXLAN", inNest, in}, {"loopback", inVM, in}}, true
	}
	return nil, false
}

// packet returns the hops between client and server in a configuration, none if they are not
// known.
func packet(c result.Configuration) []Hop {
	s, err := stack.Parse(c.Stack)
	if err != nil || s.Remote() || s.Xen() || s.Level() > 1 {
		return nil
	}
	network, drive := stack.Network(c.Options["network"]), stack.Drive(c.Options["drive"])
	if drive == stack.Pod {
		return podPath(network)
	}
	in := vm
	if s.Level() == 0 {
		in = host
	}
	server := Hop{"server", ends, in}
	if _, contained := s.Engine(); contained {
		server.Name = "server in its container"
	}
	hops := []Hop{{"client", ends, host}, {"host's bridge", onHost, host}}
	if s.Level() == 0 { // the client has a network namespace of its own
		hops = []Hop{{"client", ends, host}, {"veth", onHost, host}}
	}
	if network.Reached() {
		return append(hops, Hop{"the pod's own NIC", onHost, host}, server)
	}
	inner, ok := nestedIn(network, in)
	if !ok {
		return nil
	}
	if s.Level() > 0 {
		hops = append(hops, Hop{"NIC of the VM", onHost, host}, Hop{"kernel of the VM", inVM, vm})
	}
	return append(append(hops, inner...), server)
}

// podPath is the path between two containers of a pod, client and server.
func podPath(network stack.Network) []Hop {
	client, server := Hop{"client", ends, vm1}, Hop{"server", ends, vm2}
	switch network {
	case stack.Localhost:
		client.Machine, server.Machine = vm, vm
		return []Hop{client, {"loopback", inVM, vm}, server}
	case stack.Hostlo, stack.HostloPlain:
		return []Hop{client, {"loopback", inVM, vm1}, {"reflector", onHost, host}, {"loopback", inVM, vm2}, server}
	}
	out, _ := nestedIn(network, vm1)
	inner, ok := nestedIn(network, vm2)
	if !ok {
		return nil
	}
	slices.Reverse(out)
	hops := append([]Hop{client}, out...)
	hops = append(hops, Hop{"NIC", onHost, host}, Hop{"host's bridge", onHost, host}, Hop{"NIC", onHost, host})
	return append(append(hops, inner...), server)
}

// Packets returns the paths of packets in every configuration of a run, with the value of the reference case
// among estimates. There are none unless all paths are known.
func Packets(set *estimate.Set, estimates []estimate.Estimate) []Path {
	all := estimates
	estimates = estimate.Primaries(estimates)
	if len(estimates) == 0 || !slices.Contains(networkSuites, estimates[0].Suite) {
		return nil
	}
	return pathsOf(set.Run, packet, func(p *Path) {
		e := estimate.Find(estimates, estimate.Reference(estimates).Case, p.Configuration)
		if e.N == 0 {
			return
		}
		p.Value = document.Rounded(e.Center) + " " + naming.Unit(e.Unit)
		if main := set.Baselines(); len(main) > 0 {
			if against := e.Against(main[0]); against != nil {
				p.Badge = against.Badge
			}
		}
		p.Spent = cpuSpent(p.Hops, estimate.At(all, e.Case), p.Configuration)
	})
}

// pathsOf returns the path of every configuration, after fill has seen it; none unless all are
// known.
func pathsOf(run result.Run, hops func(result.Configuration) []Hop, fill func(*Path)) []Path {
	var all []Path
	for _, c := range run.Configurations {
		p := Path{Configuration: c.Name, Hops: hops(c)}
		if p.Hops == nil {
			return nil
		}
		fill(&p)
		all = append(all, p)
	}
	return all
}

// cpuSpent is the CPU time of the machines on a path among the estimates of a case. The metrics
// of a guest are the sum over the VMs of a pod. On the host only its kernel's work is on the
// path: its user time includes an emulated guest.
func cpuSpent(hops []Hop, estimates []estimate.Estimate, configuration string) []Spent {
	var all []Spent
	guest := host
	for _, h := range hops {
		switch {
		case h.Machine == vm1 || h.Machine == vm2:
			guest = podsVMs
		case h.Machine != host:
			guest = h.Machine
		}
	}
	for _, m := range []struct {
		machine      machine
		what, metric string
	}{{guest, "user", "guest_usr"}, {guest, "kernel", "guest_sys"}, {guest, "interrupts", "guest_soft"},
		{host, "kernel", "host_sys"}, {host, "interrupts", "host_soft"}} {
		if m.machine == host && strings.HasPrefix(m.metric, "guest") {
			continue // there is no VM
		}
		for _, e := range estimates {
			if e.Metric == m.metric && e.Configuration == configuration && e.N > 0 {
				all = append(all, Spent{m.machine, m.what, e.Mean, e.Unit})
			}
		}
	}
	return all
}

// networkSuites are the suites whose cases cross a network.
var networkSuites = []string{"network", "applications"}

// layers returns what is under a benchmark of a suite, none if it is not known.
func layers(c result.Configuration) []Hop {
	s, err := stack.Parse(c.Stack)
	if err != nil || s.Remote() || s.Xen() || s.Level() > 3 || c.Options["arch"] != "" {
		return nil
	}
	level := s.Level()
	machines := []machine{host, vm, innerVM, deeperVM}
	on := machines[level]
	hops := []Hop{{"benchmark", ends, on}}
	if _, contained := s.Engine(); contained {
		files := "layers of its image"
		if stack.Storage(c.Options["storage"]) == stack.Volume {
			files = "mounted directory"
		}
		hops = []Hop{{"benchmark in its container", ends, on}, {files, inNest, on}}
	}
	for ; level > 0; level-- {
		place := inVM
		if level > 1 {
			place = inNest
		}
		hops = append(hops, Hop{"kernel", place, machines[level]}, Hop{"QEMU", place, machines[level-1]})
	}
	return append(hops, Hop{"kernel", onHost, host})
}

// Layers is what is under a benchmark in every configuration of a run, with its badge. There
// is nothing unless all are known.
func Layers(run result.Run, badges map[string]string) []Path {
	return pathsOf(run, layers, func(p *Path) { p.Badge = badges[p.Configuration] })
}

// PacketDiagram pictures what a packet crosses.
func PacketDiagram(all []Path, baselines []string) document.Diagram {
	return diagramOf("What a packet crosses", "only because of nesting", all, baselines)
}

// LayerDiagram pictures what is under a benchmark.
func LayerDiagram(all []Path, baselines []string) document.Diagram {
	return diagramOf("What is under the benchmark", "added by a container or a nested VM", all, baselines)
}

// diagramOf pictures paths. marked says what nested hops are.
func diagramOf(title, marked string, all []Path, baselines []string) document.Diagram {
	if len(all) == 0 {
		return document.Diagram{}
	}
	d, spent := document.Diagram{Title: title}, false
	for _, p := range all {
		if slices.ContainsFunc(p.Hops, func(h Hop) bool { return h.Place == inNest }) {
			d.Marked = marked
		}
		spent = spent || len(p.Spent) > 0
		d.Rows = append(d.Rows, document.DiagramRow{Series: p.Configuration, Value: p.Value, Badge: p.Badge, Frames: p.frames()})
	}
	if len(baselines) > 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("Verdicts against %s.", baselines[0]))
	}
	if spent {
		d.Notes = append(d.Notes, "On machines: CPU time per unit of work, mean.")
	}
	return d
}

// frames splits p by machine. What was spent on a machine is said once.
func (p Path) frames() []document.Frame {
	var all []document.Frame
	for _, h := range p.Hops {
		if len(all) == 0 || all[len(all)-1].Name != string(h.Machine) {
			all = append(all, document.Frame{Name: string(h.Machine), Note: p.spentOn(h.Machine, all)})
		}
		last := &all[len(all)-1]
		last.Boxes = append(last.Boxes, document.Box{Name: h.Name, Kind: string(h.Place)})
	}
	return all
}

// spentOn says what was spent on a machine, unless one of before is of it.
func (p Path) spentOn(m machine, before []document.Frame) string {
	if slices.ContainsFunc(before, func(f document.Frame) bool { return f.Name == string(m) }) {
		return ""
	}
	var parts []string
	for _, s := range p.Spent {
		if s.Machine == m || m == vm1 && s.Machine == podsVMs {
			parts = append(parts, fmt.Sprintf("%s %s", s.What, s.amount()))
		}
	}
	text := strings.Join(parts, ", ")
	if m == vm1 && len(parts) > 0 {
		text = "both VMs: " + text
	}
	return text
}
