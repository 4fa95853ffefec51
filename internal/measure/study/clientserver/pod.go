package clientserver

import (
	"context"
	_ "embed"
	"fmt"
	"path"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// A pod has two containers: the clients run in one, the servers in the other, as in
// Bacou et al. 2019, §5.3. Both are in one guest, or each is in a guest of its own. The
// traffic between two guests goes over the tenant's bridge on the host or, with Hostlo,
// through the segment on the host.

// podAddresses returns the address that the servers of a pod listen on, empty for all,
// and the address at which the clients find them. guest is the address of the servers'
// guest.
func podAddresses(n stack.Network, guest string) (listen, address string) {
	switch n {
	case stack.Localhost, stack.Hostlo, stack.HostloPlain, stack.HostloNetwork:
		return machine.Loopback, machine.Loopback
	case stack.OverlayNetwork, stack.DockerOverlay:
		return "", serverVTEP.address
	}
	return "", guest
}

// podArgs are the options of the engine's run command for the networks of a pod's two
// containers. The one with the servers is called server and starts first.
func podArgs(n stack.Network, server string, ports []workload.Port) (servers, clients []string) {
	if n == stack.Localhost { // the second container joins the network of the first
		return nil, []string{"--network", "container:" + server}
	}
	servers, clients = machine.NetworkArgs(n, ports), machine.NetworkArgs(n, nil)
	if n == stack.DockerOverlay { // the containers have the addresses that they have on our overlay
		servers, clients = append(servers, "--ip", serverVTEP.address), append(clients, "--ip", clientVTEP.address)
	}
	return servers, clients
}

// newPod starts the containers of a pod and connects them.
func (s *Study) newPod(ctx context.Context, c stack.Configuration, all machine.List) (_ *server.Service, err error) {
	near, far := all[0], all.Servers()
	if err := all.MakeNetworks(ctx, c, overlayGateway); err != nil {
		return nil, err
	}
	listen, address := podAddresses(c.Network, far.Address)
	servers := s.assignPorts(listen)
	one := &server.Service{Machines: all, Address: address, Ports: servers.Ports, Servers: servers.List}
	server, client := machine.ContainerName(c), machine.ContainerName(c)+"-client"
	serverArgs, clientArgs := podArgs(c.Network, server, servers.Published)
	contained, err := far.Contain(ctx, c, path.Join(far.Work, server), serverArgs)
	if err != nil {
		return nil, err
	}
	one.Container = machine.ContainerOf(contained)
	if _, err := near.StartContainer(ctx, client, clientArgs...); err != nil {
		return nil, err
	}
	switch c.Network {
	case stack.OverlayNetwork:
		err = joinOverlay(ctx, near, client, far, server)
	case stack.HostloNetwork:
		err = joinTunnel(ctx, near, client, far, server)
	}
	if err != nil {
		return nil, err
	}
	if one.Place, err = machine.Enter(ctx, far, server); err != nil {
		return nil, err
	}
	one.Client, err = machine.Enter(ctx, near, client)
	return one, err
}

// overlayScript makes one node of the network that Docker's overlay driver makes in
// swarm mode without encryption: a network namespace with a bridge, which has the
// gateway address of the network and no VLANs; a VXLAN device, made in the node's own
// namespace so that its UDP socket stays there, then moved to the bridge, with ARP
// proxy, learning and miss notifications on; and a pair of veths from the bridge to
// each container. Nothing is left to learning: for each container of another node there
// is a permanent neighbour entry, from which the proxy answers ARP, and a permanent
// forwarding entry with the node's address (moby, libnetwork/drivers/overlay:
// setupSubnetSandbox, createVxlan, Join, peerAdd). Identifier, port, MTU and MACs are
// those of Docker's first network.
//
// Docker itself is not used, unlike with network docker-overlay, so that the compared containers have the same engine and
// differ in their network only. Docker's containers also have a NIC on docker_gwbridge;
// it is not on the path between two containers. The datagrams go between the tenant
// NICs of the guests, over the tenant's bridge on the host.
//
//go:embed overlay.sh
var overlayScript string

// overlayGateway is the first address of Docker's first overlay network.
const overlayGateway = "10.0.1.1"

// vtep is the endpoint of a container on the overlay.
type vtep struct{ address, mac string }

// The MACs are derived from the addresses, as Docker does.
var (
	clientVTEP = vtep{"10.0.1.2", "02:42:0a:00:01:02"}
	serverVTEP = vtep{"10.0.1.3", "02:42:0a:00:01:03"}
)

// joinOverlay makes the overlay between two guests and connects a container of each.
// The containers have no other network.
func joinOverlay(ctx context.Context, near *machine.Machine, client string, far *machine.Machine, server string) error {
	for _, end := range []struct {
		in        *machine.Machine
		container string
		own, peer vtep
		node      string // where the peer is
	}{
		{near, client, clientVTEP, serverVTEP, far.Address},
		{far, server, serverVTEP, clientVTEP, near.Address},
	} {
		err := place.Run(ctx, end.in.Place, "sh", "-c", overlayScript, "overlay", end.container,
			overlayGateway, end.own.address, end.own.mac, end.peer.address, end.peer.mac, end.node, end.in.Engine())
		if err != nil {
			return fmt.Errorf("put container %s on the overlay: %w", end.container, err)
		}
	}
	return nil
}

// tunnelScript makes a container a fraction of a segment with span network. The container has no other network, and takes
// the tunnel with it when it ends.
const tunnelScript = `pid=$($1 inspect --format '{{.State.Pid}}' "$2")
export CNI_COMMAND=ADD CNI_CONTAINERID="$2" CNI_NETNS="/proc/$pid/ns/net" CNI_IFNAME=hostlo0 CNI_PATH=/usr/lib/cni
echo '{"cniVersion": "1.0.0", "name": "tunnel", "type": "hostlo", "span": "network", "network": {"vni": 1, "fraction": '"$3"', "nodes": ["'"$4"'", "'"$5"'"]}}' |
	/usr/lib/cni/hostlo`

// joinTunnel connects the loopbacks of a container of each of two guests by a tunnel.
func joinTunnel(ctx context.Context, near *machine.Machine, client string, far *machine.Machine, server string) error {
	for fraction, end := range map[string]struct {
		in        *machine.Machine
		container string
	}{"1": {near, client}, "2": {far, server}} {
		err := place.Run(ctx, end.in.Place, "sh", "-c", tunnelScript, "tunnel", end.in.Engine(), end.container, fraction, near.Address, far.Address)
		if err != nil {
			return fmt.Errorf("connect the loopback of container %s by a tunnel: %w", end.container, err)
		}
	}
	return nil
}
