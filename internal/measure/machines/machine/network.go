package machine

import (
	"context"
	"fmt"
	"strings"

	"unnest/internal/measure/stack"
	"unnest/internal/testbed/place"
)

// makeNetwork makes network $2 of engine $1, unless it is there. Server, key and mode are those of the guest's CNI networks, which
// containerd and Podman 4 use as they are. The engine's driver for NICs of the host runs from now on.
const makeNetwork = `set -e
$1 network inspect $2 >/dev/null 2>&1 && exit
value() { sed -n 's/.*"'$1'": "\(.*\)".*/\1/p' /etc/cni/net.d/*-$2.conflist; }
server=$(value server $2)
case $1 in
docker)
	[ -S /run/docker/plugins/unnest.sock ] || setsid /usr/lib/cni/brfusion docker-driver -server $server -credentials /etc/unnest >/var/log/unnest-docker.log 2>&1 </dev/null &
	for i in $(seq 300); do [ ! -S /run/docker/plugins/unnest.sock ] || break; sleep 0.1; done
	case $2 in
	brfusion) docker network create -d unnest --ipam-driver unnest $2 ;;
	*) docker network create -d unnest --ipam-driver null -o segment=$2 -o key="$(value key $2)" -o mode=$(value mode $2) $2 ;;
	esac ;;
podman) podman network create -d unnest -o server=$server -o credentials=/etc/unnest $2 ;;
esac`

// dockerOverlay is the network of Docker's overlay driver.
const dockerOverlay = "docker-overlay"

// MakeNetworks makes the network of a configuration on its machines, if their engine needs that. gateway is that of Docker's overlay.
func (m List) MakeNetworks(ctx context.Context, c stack.Configuration, gateway string) error {
	engine, _ := c.Stack.Engine()
	switch {
	case c.Network == stack.DockerOverlay:
		return m.Explain(m.makeSwarm(ctx, gateway))
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

// makeSwarm makes a swarm of the machines, and the overlay network. The last machine, that of the servers, is its only node that manages it.
func (m List) makeSwarm(ctx context.Context, gateway string) error {
	manager := m.Servers()
	token, err := place.Output(ctx, manager.Place, "sh", "-c", `docker swarm init --advertise-addr "$1" >/dev/null && docker swarm join-token --quiet worker`, "swarm", manager.Address)
	if err != nil {
		return fmt.Errorf("make a swarm: %w", err)
	}
	for _, worker := range m[:len(m)-1] {
		if err := place.Run(ctx, worker.Place, "docker", "swarm", "join", "--advertise-addr", worker.Address, "--token", strings.TrimSpace(string(token)), manager.Address+":2377"); err != nil {
			return fmt.Errorf("join the swarm: %w", err)
		}
	}
	return place.Run(ctx, manager.Place, "docker", "network", "create", "--driver", "overlay", "--attachable", "--subnet", gateway+"/24", "--gateway", gateway, dockerOverlay)
}
