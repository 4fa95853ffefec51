package machine

import (
	"context"
	_ "embed"
	"fmt"
	"net/netip"
	"strings"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/place"
)

// makeNetwork makes network $2 of engine $1, unless it is there. Server, key and mode are those of the guest's CNI networks, which
// containerd and Podman 4 use as they are. The engine's driver for NICs of the host runs from now on.
//
//go:embed network.sh
var makeNetwork string

//go:embed join.sh
var joinSwarm string

// dockerOverlay is the network of Docker's overlay driver.
const dockerOverlay = "docker-overlay"

// MakeNetworks makes the network of a configuration on its machines, if their engine needs that. gateway is that of Docker's overlay.
func (m List) MakeNetworks(ctx context.Context, c stack.Configuration, gateway string) error {
	engine, _ := c.Stack.Engine()
	switch {
	case c.Network == stack.DockerOverlay:
		return m.Explain(m.makeSwarm(ctx, gateway))
	case c.Network == stack.DockerBridge:
		for _, one := range m {
			if err := place.Run(ctx, one.Place, "sh", "-c", `docker network inspect "$1" >/dev/null 2>&1 || docker network create "$1"`, "network", string(c.Network)); err != nil {
				return one.Explain(err)
			}
		}
	case engine != stack.Docker && engine != stack.Podman:
		return nil
	case c.Network == stack.BrFusion, c.Network == stack.Hostlo, c.Network == stack.HostloPlain:
		for _, one := range m {
			if err := place.Run(ctx, one.Place, "sh", "-c", makeNetwork, "network", one.Engine(), NetworkArgs(c.Network, nil)[1]); err != nil {
				return one.Explain(fmt.Errorf("make network %s of %s: %w", c.Network, engine, err))
			}
		}
	}
	return nil
}

// makeSwarm makes a swarm of the machines, and the overlay network, unless they are there. The last machine, that of the servers, is its only node that manages it.
func (m List) makeSwarm(ctx context.Context, gateway string) error {
	worker, manager := m[0], m.Servers()
	if place.Run(ctx, manager.Place, "docker", "network", "inspect", dockerOverlay) == nil {
		return nil
	}
	token, err := place.Output(ctx, manager.Place, "sh", "-c", `docker swarm init --advertise-addr "$1" >/dev/null && docker swarm join-token --quiet worker`, "swarm", manager.Address)
	if err != nil {
		return fmt.Errorf("make a swarm: %w", err)
	}
	if err := place.Run(ctx, worker.Place, "sh", "-c", joinSwarm, "join", worker.Address, strings.TrimSpace(string(token)), manager.Address+":2377"); err != nil {
		return fmt.Errorf("join the swarm: %w", err)
	}
	// Docker takes an address for each node, by default the first ones, which the containers ask for.
	subnet := netip.MustParsePrefix(gateway + "/24").Masked()
	upper := subnet.Addr().As4()
	upper[3] = 128
	return place.Run(ctx, manager.Place, "docker", "network", "create", "--driver", "overlay", "--attachable", "--subnet", subnet.String(), "--gateway", gateway,
		"--ip-range", netip.PrefixFrom(netip.AddrFrom4(upper), 25).String(), dockerOverlay)
}
