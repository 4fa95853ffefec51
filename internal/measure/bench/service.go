package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
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

// service is a configuration whose servers run.
type service struct {
	machines machines
	place    place.Place    // of the servers
	client   place.Place    // the clients' container in the same pod; nil: they run outside
	address  string         // where the clients find the servers
	ports    map[string]int // server, as serverKey, -> port
	servers  []*server
	meter    *meter    // of the servers' CPU time; nil: not started yet
	login    io.Closer // of the servers on a machine that is reached over SSH; nil: none
}

// newService starts the container of c, if it has one.
func (s *services) newService(ctx context.Context, c stack.Configuration, all machines) (*service, error) {
	m := all.servers()
	listen := m.listen
	if c.Stack.Remote() {
		listen = listenAddress(ctx, m.place)
	}
	if c.Network != "" && c.Network != stack.HostNetwork {
		listen = ""
	}
	servers := s.assignPorts(listen)
	one := &service{machines: all, place: m.place, address: m.address, ports: servers.ports, servers: servers.list}
	var err error
	if c.Network != "" {
		if one.place, err = m.contain(ctx, c, path.Join(m.work, containerName(c)), networkArgs(c.Network, servers.published)); err != nil {
			return nil, err
		}
	}
	switch {
	case c.Network.Reached():
		one.address, err = podAddress(ctx, m, containerName(c))
	case c.Stack.Remote():
		err = one.logIn(ctx, c)
	}
	return one, err
}

// logIn logs in once more, for the commands in the place of the servers. Each server is a command, and sshd
// runs at most ten commands over a connection (MaxSessions in sshd_config).
func (s *service) logIn(ctx context.Context, c stack.Configuration) error {
	in, err := login(ctx, c)
	if err != nil {
		return err
	}
	s.login = in
	if inside, ok := s.place.(place.Container); ok {
		inside.Place = onRemote(in, c)
		s.place = inside
	} else {
		s.place = onRemote(in, c)
	}
	return nil
}

// leave ends the servers and the commands in their place.
func (s *service) leave() error {
	s.stopServers()
	if s.meter != nil {
		s.meter.stop()
	}
	if s.login == nil {
		return nil
	}
	return s.login.Close()
}

// networkArgs are the options of the engine's run command for a network. NAT is the
// engine's default network with published ports.
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
	case stack.OverlayNetwork: // joinOverlay makes it when the container runs
		return []string{"--network", "none"}
	}
	var args []string
	for _, p := range ports {
		args = append(args, "--publish", fmt.Sprintf("%d:%d/%s", p.Number, p.Number, p.Protocol))
	}
	return args
}

// podAddress returns the address of the container's own NIC.
func podAddress(ctx context.Context, m *machine, name string) (string, error) {
	out, err := place.Output(ctx, m.place, engine, "inspect", "--format", "{{.NetworkSettings.IPAddress}}", name)
	if err != nil {
		return "", err
	}
	address := strings.TrimSpace(string(out))
	if net.ParseIP(address) == nil {
		return "", fmt.Errorf("find the address of container %s: %s inspect prints %q", name, engine, address)
	}
	return address, nil
}

// servers are those that one configuration runs. Their ports are unique in the whole
// bench, because configurations can share the address of their machine.
type servers struct {
	ports     map[string]int
	published []workload.Port
	list      []*server
}

type serverCommand struct {
	args  []string
	ready string // what the server prints when it accepts clients
	name  string // for people; empty: the arguments
	alone bool   // it runs only while its client does
}

// firstPort is the lowest port of a server.
const firstPort = 5001

// assignPorts gives each server that the cases need a port of its own. The servers
// listen on an address; empty: on all.
func (s *services) assignPorts(listen string) servers {
	assigned := servers{ports: map[string]int{}}
	port := firstPort
	for _, one := range s.instances {
		port += len(one.ports)
	}
	for _, c := range s.spec.Cases {
		key, w := serverKey(c)
		if _, ok := assigned.ports[key]; ok {
			continue
		}
		assigned.ports[key] = port
		assigned.published = append(assigned.published, w.Ports(c.Params, port)...)
		command := serverCommand{args: w.Server(c.Params, workload.Endpoint{Address: listen, Port: port}), ready: w.Ready()}
		if len(w.Programs()) > 0 { // its arguments are a script
			command.name = fmt.Sprintf("%s on port %d", w.Name(), port)
		}
		one := &server{key: key, command: command, timeout: serverTimeout}
		if one.command.alone = workload.ExtraOf(w).Alone; one.command.alone {
			one.timeout = slowServerTimeout
		}
		assigned.list = append(assigned.list, one)
		port++
	}
	return assigned
}

// serverKey identifies the server that a case needs. Cases with the same key share
// the server.
func serverKey(c experiment.Case) (string, workload.Workload) {
	w := lookup(c)
	// Each protocol has its own server, even where one could serve both.
	return strings.Join(w.Server(c.Params, workload.Endpoint{}), " ") + " " + string(c.Params.Protocol), w
}

func (s *service) endpoint(c experiment.Case) workload.Endpoint {
	key, _ := serverKey(c)
	return workload.Endpoint{Address: s.address, Port: s.ports[key]}
}

func (e serverCommand) String() string {
	return cmp.Or(e.name, strconv.Quote(strings.Join(e.args, " ")))
}
