package bench

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// A pod has two containers: the clients run in one, the servers in the other, as in
// Bacou et al. 2019, §5.3. Both are in one guest, or each is in a guest of its own. The
// traffic between two guests goes over the tenant's bridge on the host or, with Hostlo,
// through the segment on the host.

// loopback is the address at which containers reach each other on a shared loopback.
const loopback = "127.0.0.1"

// podAddresses returns the address that the servers of a pod listen on, empty for all,
// and the address at which the clients find them. guest is the address of the servers'
// guest.
func podAddresses(n stack.Network, guest string) (listen, address string) {
	switch n {
	case stack.Localhost, stack.Hostlo, stack.HostloPlain:
		return loopback, loopback
	case stack.OverlayNetwork:
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
	return networkArgs(n, ports), networkArgs(n, nil)
}

// newPod starts the containers of a pod and connects them.
func (s *services) newPod(ctx context.Context, c stack.Configuration, all machines) (_ *service, err error) {
	near, far := all[0], all.servers()
	listen, address := podAddresses(c.Network, far.address)
	servers := s.assignPorts(listen)
	one := &service{machines: all, address: address, ports: servers.ports, servers: servers.list}
	server, client := containerName(c), containerName(c)+"-client"
	serverArgs, clientArgs := podArgs(c.Network, server, servers.published)
	if _, err := far.contain(ctx, c, path.Join(far.work, server), serverArgs); err != nil {
		return nil, err
	}
	if _, err := near.container(ctx, client, clientArgs...); err != nil {
		return nil, err
	}
	if c.Network == stack.OverlayNetwork {
		if err := joinOverlay(ctx, near, client, far, server); err != nil {
			return nil, err
		}
	}
	if one.place, err = enter(ctx, far, server); err != nil {
		return nil, err
	}
	one.client, err = enter(ctx, near, client)
	return one, err
}

// enter returns the container called name as a place whose commands start at once.
// The engine's exec command costs an emulated guest a second or more of CPU time, for
// clients while they are measured.
//
// A command runs in the namespaces and control groups of the container. It differs in
// two things from a command that the engine starts: it has no seccomp filter, and it
// keeps all of root's capabilities. This holds for the servers and the clients of every
// pod, so the cost of the filter is in no figure of a pod. Containers that are loaded
// from outside are entered by the engine, with the filter.
func enter(ctx context.Context, m *machine, name string) (place.Place, error) {
	const find = `pid=$(` + engine + ` inspect --format '{{.State.Pid}}' "$1") && echo "$pid" && while IFS=: read -r _ hierarchy path; do
	for root in "/sys/fs/cgroup/${hierarchy#name=}" /sys/fs/cgroup/unified; do
		[ ! -e "$root$path/cgroup.procs" ] || { echo "$root$path"; break; }
	done
done <"/proc/$pid/cgroup"`
	out, err := place.Output(ctx, m.place, "sh", "-c", find, "find", name)
	if err != nil {
		return nil, fmt.Errorf("find container %s: %w", name, err)
	}
	found := strings.Fields(string(out)) // its process ID, then its control group in each hierarchy
	if len(found) < 2 || found[0] == "0" {
		return nil, fmt.Errorf("find container %s: its process and control groups are %q", name, out)
	}
	const join = `set -e; pid=$1; shift; while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; exec nsenter --all --target "$pid" "$@"`
	return place.Within{
		Place: m.place, Enter: slices.Concat([]string{"sh", "-c", join, "enter"}, found, []string{"--"}),
		Name: fmt.Sprintf("container %s in %s", name, m.place),
	}, nil
}
