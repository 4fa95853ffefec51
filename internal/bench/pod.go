package bench

import (
	"context"
	"fmt"
	"path"
	"strings"

	"unnest/internal/experiment"
	"unnest/internal/place"
	"unnest/internal/stack"
	"unnest/internal/workload"
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
// one of them. Those live until serving ends.
func (b *Bench) startPod(ctx, serving context.Context, spec *experiment.Spec, c stack.Configuration) error {
	all, err := b.machines(spec, c)
	if err != nil {
		return err
	}
	near, far := all[0], all.servers()
	listen, address := podAddresses(c.Network, far.address)
	servers := b.assignPorts(spec, listen)
	t := &target{machines: all, address: address, ports: servers.ports}
	server, client := containerName(c), containerName(c)+"-client"
	serverArgs, clientArgs := podArgs(c.Network, server, servers.published)
	if t.place, err = far.contain(ctx, c, path.Join(far.work, server), serverArgs); err != nil {
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
	if t.client, err = enter(ctx, near, client); err != nil {
		return all.explain(err)
	}
	b.targets[c.Name] = t
	return startServers(ctx, serving, t, servers.commands)
}

// enter returns the container called name of a guest as a place whose commands start
// at once. The engine's own way in takes an emulated guest a second or more of CPU
// time, just while a client is measured. A command is in the namespaces and in the
// control group of the container, as one that the engine starts.
func enter(ctx context.Context, s *system, name string) (place.Place, error) {
	const find = `pid=$(` + engine + ` inspect --format '{{.State.Pid}}' "$1") && group=$(sed -n 's/^0:://p' "/proc/$pid/cgroup") && echo "$pid $group"`
	out, err := place.Output(ctx, s.place, "sh", "-c", find, "find", name)
	if err != nil {
		return nil, fmt.Errorf("find container %s: %w", name, err)
	}
	pid, group, found := strings.Cut(strings.TrimSpace(string(out)), " ")
	if !found || pid == "0" || !strings.HasPrefix(group, "/") {
		return nil, fmt.Errorf("find container %s: its process and control group are %q", name, out)
	}
	const join = `echo $$ >"/sys/fs/cgroup$1/cgroup.procs" && pid=$2 && shift 2 && exec nsenter --all --target "$pid" -- "$@"`
	return place.Within{
		Place: s.place, Enter: []string{"sh", "-c", join, "enter", group, pid},
		Name: fmt.Sprintf("container %s in %s", name, s.place),
	}, nil
}
