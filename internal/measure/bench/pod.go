package bench

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// A pod of two containers: clients run in one, servers in the other, as Bacou et al.
// 2019, §5.3 measure what connects the fractions of a pod. Both are in one guest, or
// each is in one of two, whose traffic then goes over the tenant's bridge on the host
// or, with Hostlo, through the segment there.

// loopback is where both containers of a pod find each other when they share one.
const loopback = "127.0.0.1"

// podAddresses returns the address that the servers of a pod take, empty for every
// one, and that at which the clients find them, when their guest has the address
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

// podArgs asks the engine for the network of a pod's two containers, of which the one
// with the servers is called server and starts first.
func podArgs(n stack.Network, server string, ports []workload.Port) (servers, clients []string) {
	if n == stack.Localhost { // the first has a network like any other's, the second joins it
		return nil, []string{"--network", "container:" + server}
	}
	return networkArgs(n, ports), networkArgs(n, nil)
}

// startPod starts the containers of a pod, connects them, and starts the servers in
// one of them.
func (b *Bench) startPod(ctx context.Context, spec *experiment.Spec, c stack.Configuration) error {
	all, err := b.machines(spec, c)
	if err != nil {
		return err
	}
	near, far := all[0], all.servers()
	listen, address := podAddresses(c.Network, far.address)
	servers := b.assignPorts(spec, listen)
	t := &target{machines: all, address: address, ports: servers.ports, servers: servers.list}
	server, client := containerName(c), containerName(c)+"-client"
	serverArgs, clientArgs := podArgs(c.Network, server, servers.published)
	if _, err = far.contain(ctx, c, path.Join(far.work, server), serverArgs); err != nil {
		return err
	}
	if _, err := near.container(ctx, client, clientArgs...); err != nil {
		return all.explain(err)
	}
	if c.Network == stack.OverlayNetwork {
		if err := joinOverlay(ctx, near, client, far, server); err != nil {
			return all.explain(err)
		}
	}
	if t.place, err = enter(ctx, far, server); err != nil {
		return all.explain(err)
	}
	if t.client, err = enter(ctx, near, client); err != nil {
		return all.explain(err)
	}
	b.targets[c.Name] = t
	return t.startServers(ctx)
}

// enter returns the container called name of a machine as a place whose commands
// start at once, for the server and the clients of a pod alike. The engine's own way
// in takes an emulated guest a second or more of CPU time, for clients just while they
// are measured.
//
// A command is in the namespaces and in the control groups of the container. In two
// things it is not as one that the engine starts: no seccomp filter looks at its
// system calls, and it keeps all of root's capabilities. So it is in both containers
// of every pod, and what a filter costs each system call is in no figure of theirs.
// Containers that are loaded from outside are entered by the engine, filter and all.
func enter(ctx context.Context, s *system, name string) (place.Place, error) {
	const find = `pid=$(` + engine + ` inspect --format '{{.State.Pid}}' "$1") && echo "$pid" && while IFS=: read -r _ hierarchy path; do
	for root in "/sys/fs/cgroup/${hierarchy#name=}" /sys/fs/cgroup/unified; do
		[ ! -e "$root$path/cgroup.procs" ] || { echo "$root$path"; break; }
	done
done <"/proc/$pid/cgroup"`
	out, err := place.Output(ctx, s.place, "sh", "-c", find, "find", name)
	if err != nil {
		return nil, fmt.Errorf("find container %s: %w", name, err)
	}
	found := strings.Fields(string(out)) // its process, and its control group in each hierarchy
	if len(found) < 2 || found[0] == "0" {
		return nil, fmt.Errorf("find container %s: its process and control groups are %q", name, out)
	}
	const join = `set -e; pid=$1; shift; while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; exec nsenter --all --target "$pid" "$@"`
	return place.Within{
		Place: s.place, Enter: slices.Concat([]string{"sh", "-c", join, "enter"}, found, []string{"--"}),
		Name: fmt.Sprintf("container %s in %s", name, s.place),
	}, nil
}
