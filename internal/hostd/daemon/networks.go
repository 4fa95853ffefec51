package daemon

import (
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/bridge"
)

// networks returns the networks of all tenants, or nil when there is nothing to do: for a
// single tenant without gateways and ports of the host.
func networks(p quota.Config) []bridge.Network {
	var all []bridge.Network
	ours := len(p.Tenants) > 1
	for _, t := range p.Tenants {
		n := bridge.Network{Bridge: t.Bridge, Further: t.Bridges, MTU: t.MTU, Gateways: t.Gateways, NAT: t.NAT}
		if bridges := guardedBridges(t); bridges != nil {
			n.Guard = &bridge.Guard{Bridges: bridges, Daemon: p.Listen, Metadata: t.Metadata, Connections: t.Limits.Flows}
			n.Guard.Ports, n.Guard.AllPorts = hostPorts(t.HostPorts)
			ours = true
		}
		all = append(all, n)
	}
	if !ours {
		return nil
	}
	return all
}

// guardedBridges lists the bridges of a tenant that only pods and guests are on: that
// of the daemon, and all if the operator says so by hostPorts. An operator's bridge may have
// the host's own uplink.
func guardedBridges(t quota.Tenant) []string {
	switch {
	case len(t.HostPorts) > 0:
		return t.AllBridges()
	case len(t.Gateways) > 0:
		return []string{t.Bridge}
	}
	return nil
}

func hostPorts(all []quota.HostPort) (ports []bridge.HostPort, anyPort bool) {
	for _, p := range all {
		protocol, number, ok := p.Port()
		switch {
		case p == quota.AnyPort:
			anyPort = true
		case ok && protocol == "tcp":
			ports = append(ports, bridge.HostPort{Protocol: unix.IPPROTO_TCP, Number: number})
		case ok:
			ports = append(ports, bridge.HostPort{Protocol: unix.IPPROTO_UDP, Number: number})
		}
	}
	return ports, anyPort
}
