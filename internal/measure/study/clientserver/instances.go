package clientserver

import (
	"context"
	"fmt"
	"path"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/server"
)

// newService starts the container of c, if it has one.
func (s *Study) newService(ctx context.Context, c stack.Configuration, all machine.List) (*server.Service, error) {
	if err := all.MakeNetworks(ctx, c, ""); err != nil {
		return nil, err
	}
	m := all.Servers()
	listen := m.Listen
	if c.Stack.Remote() {
		listen = sshhost.ListenAddress(ctx, m.Place)
	}
	if c.Network != "" && c.Network != stack.HostNetwork {
		listen = ""
	}
	servers := s.assignPorts(listen)
	one := &server.Service{Machines: all, Place: m.Place, Address: m.Address, Ports: servers.Ports, Servers: servers.List}
	var err error
	if c.Network != "" {
		if one.Place, err = m.Contain(ctx, c, path.Join(m.Work, machine.ContainerName(c)), machine.NetworkArgs(c.Network, servers.Published)); err != nil {
			return nil, err
		}
		one.Container = machine.ContainerOf(one.Place)
	}
	switch {
	case c.Network.Reached():
		if n, err := machine.NICQueues(ctx, one.Place); err == nil {
			s.Holds(fmt.Sprintf("Pairs of queues that the guest uses of the NIC of %s: %d.", c.Name, n))
		}
		one.Address, err = machine.PodAddress(ctx, m, machine.ContainerName(c))
	case c.Stack.Remote():
		err = one.LogIn(ctx, c)
	}
	return one, err
}

// assignPorts gives each server of the next configuration a port that no other has, see server.Assign.
func (s *Study) assignPorts(listen string) server.Assigned {
	port := server.FirstPort
	for _, one := range s.Instances {
		port += len(one.Ports)
	}
	return server.Assign(s.Spec.Cases, port, listen)
}
