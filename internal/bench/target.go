package bench

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"unnest/internal/experiment"
	"unnest/internal/fleet"
	"unnest/internal/guest"
	"unnest/internal/place"
	"unnest/internal/stack"
	"unnest/internal/workload"
)

// engine is the command line of the container engine in the guest.
const engine = "nerdctl"

// target is one configuration brought up: where its servers run and where its
// clients find them.
type target struct {
	place   place.Place
	address string
	ports   map[string]int // server, as serverKey, -> port
}

// startTarget starts the container of c, if it has one, and in it, or in the
// guest, one server for each that the cases need. The servers live until
// serving ends.
func (b *Bench) startTarget(ctx, serving context.Context, spec *experiment.Spec, c stack.Configuration) error {
	servers := b.assignPorts(spec)
	t := &target{place: b.ssh, address: b.node.TenantIP, ports: servers.ports}
	if c.Network != "" {
		name := strings.ToLower(c.Name)
		args := append([]string{engine, "run", "--detach", "--name", name}, networkArgs(c.Network, servers.published)...)
		if err := place.Run(ctx, b.ssh, append(args, guest.ContainerImage)...); err != nil {
			return b.explain(err)
		}
		t.place = place.Container{Place: b.ssh, Engine: engine, Name: name}
		if c.Network.Reached() {
			address, err := b.podAddress(ctx, name)
			if err != nil {
				return err
			}
			t.address = address
		}
	}
	b.targets[c.Name] = t
	return b.startServers(ctx, serving, t, servers.commands)
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
	}
	var args []string
	for _, p := range ports {
		args = append(args, "--publish", fmt.Sprintf("%d:%d/%s", p.Number, p.Number, p.Protocol))
	}
	return args
}

// podAddress returns the address of the container's own NIC.
func (b *Bench) podAddress(ctx context.Context, name string) (string, error) {
	out, err := place.Output(ctx, b.ssh, engine, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
	if err != nil {
		return "", b.explain(err)
	}
	address := strings.TrimSpace(string(out))
	if net.ParseIP(address) == nil {
		return "", fmt.Errorf("find the address of container %s: %s inspect says %q", name, engine, address)
	}
	return address, nil
}

// servers is what one configuration has to run: its ports are its own, because
// configurations without a container of their own share the guest's address.
type servers struct {
	ports     map[string]int
	published []workload.Port
	commands  []serverCommand
}

type serverCommand struct {
	args  []string
	ready string
}

// firstPort is the first that servers get.
const firstPort = 5001

func (b *Bench) assignPorts(spec *experiment.Spec) servers {
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
		s.commands = append(s.commands, serverCommand{w.Server(c.Params, workload.Endpoint{Port: port}), w.Ready()})
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
