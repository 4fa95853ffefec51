package daemon

import (
	"fmt"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/netdev/tap"
)

// warnOfConfiguration logs what an operator may not expect of a configuration: a state
// directory that others can replace, an HTTP address that they can reach, volumes that
// could fill the host's disk, bridges that do not exist, and bridges from which pods reach
// the host.
func (d *daemon) warnOfConfiguration() {
	p := d.quotas()
	if err := share.CheckPath(d.config.StateDir); err != nil {
		d.config.Logger.Warn("another user can replace the state directory, and with it the authority of the guests' certificates", "error", err)
	}
	if a := p.HTTP.Addr(); p.HTTP.IsValid() && !a.IsLoopback() {
		d.config.Logger.Warn("the HTTP address is not loopback: /metrics shows the names of guests and pods of all tenants, "+
			"without a password, to whoever can reach it; use 127.0.0.1, or restrict the port by a firewall",
			"http", p.HTTP)
	}
	for _, t := range p.Tenants {
		if t.Volumes != "" && !t.VolumesUnbounded {
			if err := share.CheckFileSystem(t.Volumes); err != nil {
				d.config.Logger.Warn("refuse volumes of a tenant", "tenant", t.Name, "error", err)
			}
		}
		if len(guardedBridges(t)) < 1+len(t.Bridges) {
			d.config.Logger.Warn("pods reach every port of this host from bridges that the daemon has not made; "+
				"list the ports that they need in the key hostPorts of the tenant, or none", "tenant", t.Name)
		}
	}
	d.warnOfBridges()
}

// checkPolling refuses a policy by which vhost-net polls if the host has none.
func checkPolling(p quota.Config) error {
	for _, t := range p.Tenants {
		if err := tap.CheckPoll(t.VHostPoll); err != nil {
			return fmt.Errorf("tenant %s: vhostPoll: %w", t.Name, err)
		}
	}
	return nil
}

func (d *daemon) warnOfBridges() {
	for _, t := range d.quotas().Tenants {
		for _, name := range t.AllBridges() {
			if _, err := link.Find(name); link.IsGone(err) {
				d.config.Logger.Warn("a tenant's bridge does not exist: its pods get no NIC until you create it; "+
					"with the key gateways the daemon creates the tenant's bridge", "tenant", t.Name, "bridge", name)
			}
		}
	}
}
