package bench

import (
	"context"
	"fmt"
	"net"
	"path"
	"strconv"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/place"
)

// engine is the command line of the container engine.
const engine = "nerdctl"

// target is one configuration brought up: where its servers run and where its
// clients find them.
type target struct {
	machines machines
	place    place.Place
	client   place.Place // the clients' container in their pod; nil: they run outside
	address  string
	ports    map[string]int // server, as serverKey, -> port
	servers  []*server
}

// startTarget starts the container of c, if it has one, and in it, or in its
// machine, one server for each that the cases need.
func (b *Bench) startTarget(ctx context.Context, spec *experiment.Spec, c stack.Configuration) error {
	if c.Drive == stack.Pod {
		return b.startPod(ctx, spec, c)
	}
	all, err := b.machines(spec, c)
	if err != nil {
		return err
	}
	s := all.servers()
	listen := s.listen
	if c.Network != "" && c.Network != stack.HostNetwork {
		listen = ""
	}
	servers := b.assignPorts(spec, listen)
	t := &target{machines: all, place: s.place, address: s.address, ports: servers.ports, servers: servers.list}
	if c.Network != "" {
		if t.place, err = s.contain(ctx, c, path.Join(s.work, containerName(c)), networkArgs(c.Network, servers.published)); err != nil {
			return err
		}
		if c.Network.Reached() {
			if t.address, err = podAddress(ctx, s, containerName(c)); err != nil {
				return err
			}
		}
	}
	b.targets[c.Name] = t
	return t.startServers(ctx)
}

// networkArgs asks the engine for a network. NAT is its default network with
// published ports.
func networkArgs(n stack.Network, ports []workload.Port) []string {
	switch n {
	case stack.HostNetwork:
		return []string{"--network", "host"}
	case stack.BrFusion:
		return []string{"--network", fleet.Network}
	case stack.BrFusionCold:
		return []string{"--network", fleet.ColdNetwork}
	case stack.BrFusionTrunk:
		return []string{"--network", fleet.TrunkNetwork}
	case stack.Hostlo:
		return []string{"--network", fleet.HostloNetwork}
	case stack.HostloPlain:
		return []string{"--network", fleet.HostloPlainNetwork}
	case stack.OverlayNetwork: // it is made when the container is there
		return []string{"--network", "none"}
	}
	var args []string
	for _, p := range ports {
		args = append(args, "--publish", fmt.Sprintf("%d:%d/%s", p.Number, p.Number, p.Protocol))
	}
	return args
}

// podAddress returns the address of the container's own NIC.
func podAddress(ctx context.Context, s *system, name string) (string, error) {
	out, err := place.Output(ctx, s.place, engine, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
	if err != nil {
		return "", s.explain(err)
	}
	address := strings.TrimSpace(string(out))
	if net.ParseIP(address) == nil {
		return "", fmt.Errorf("find the address of container %s: %s inspect says %q", name, engine, address)
	}
	return address, nil
}

// servers is what one configuration has to run: its ports are its own, because
// configurations without a NIC of their own share their machine's address.
type servers struct {
	ports     map[string]int
	published []workload.Port
	list      []*server
}

type serverCommand struct {
	args  []string
	ready string
}

// firstPort is the first that servers get.
const firstPort = 5001

// assignPorts gives each server that the cases need a port that no other of the bench
// has. They listen on an address; empty: on every one.
func (b *Bench) assignPorts(spec *experiment.Spec, listen string) servers {
	s := servers{ports: map[string]int{}}
	port := firstPort
	for _, t := range b.targets {
		port += len(t.ports)
	}
	for _, c := range spec.Cases {
		key, w := serverKey(c)
		if _, ok := s.ports[key]; ok {
			continue
		}
		s.ports[key] = port
		s.published = append(s.published, w.Ports(c.Params, port)...)
		command := serverCommand{w.Server(c.Params, workload.Endpoint{Address: listen, Port: port}), w.Ready()}
		s.list = append(s.list, &server{command: command, patience: serverPatience})
		port++
	}
	return s
}

// serverKey tells apart the servers that cases need: cases with the same one
// share it.
func serverKey(c experiment.Case) (string, workload.Workload) {
	w := lookup(c)
	// Protocols have servers of their own also where one could serve both.
	return strings.Join(w.Server(c.Params, workload.Endpoint{}), " ") + " " + string(c.Params.Protocol), w
}

func (t *target) endpoint(c experiment.Case) workload.Endpoint {
	key, _ := serverKey(c)
	return workload.Endpoint{Address: t.address, Port: t.ports[key]}
}

func (e serverCommand) String() string { return strconv.Quote(strings.Join(e.args, " ")) }
