package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/networkpolicy"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/nft"
)

// derive puts a configuration into force, at the daemon's start and at each reload: everything
// that the daemon takes from a configuration and keeps follows from here. It changes nothing of
// the daemon if it fails. The scan then takes over guests that are new or have changed, and
// removes those that are gone.
func (d *daemon) derive(next quota.Config) error {
	if err := checkPolling(next); err != nil {
		return err
	}
	made, err := d.makeTenants(next)
	if err != nil {
		return err
	}
	if err := d.deriveNetworks(next); err != nil {
		return err
	}
	opened, err := d.host.Ports.Policies.Configure(next.Tenants)
	if err != nil {
		return errors.Join(err, d.deriveNetworks(d.quotas()))
	}
	if opened {
		d.opened(metrics.Isolation, d.host.Ports.Policies.Filter().Watch)
	}
	before := d.quotas()
	d.use(made, next)
	for _, p := range next.Tenants {
		d.host.Ports.Policies.NodesChanged(p.Name)
	}
	d.restartRuns(before, next)
	d.warnOfConfiguration()
	return nil
}

// makeTenants returns the tenants of a configuration: those that are there, and new ones.
func (d *daemon) makeTenants(next quota.Config) (map[string]*tenant.Tenant, error) {
	made := map[string]*tenant.Tenant{}
	for _, p := range next.Tenants {
		t := d.tenant(p.Name)
		if t == nil {
			var err error
			if t, err = tenant.New(p, d.config.StateDir, d.config.Logger, d.host.Panics.Try); err != nil {
				return nil, err
			}
		}
		made[p.Name] = t
	}
	return made, nil
}

// use makes a configuration the present one.
func (d *daemon) use(tenants map[string]*tenant.Tenant, next quota.Config) {
	for _, p := range next.Tenants {
		tenants[p.Name].Change(p)
	}
	reserve(tenants, d.quotas().Guests, next.Guests)
	d.setTenants(tenants)
	d.current.Store(&next)
}

// reserve keeps the addresses of the guests of a configuration from the pods, whether or not the
// guests are enrolled, and no longer those of guests that are gone.
func reserve(tenants map[string]*tenant.Tenant, before, next []quota.Guest) {
	addresses := map[[2]string][]netip.Addr{}
	for _, g := range before {
		addresses[[2]string{g.Tenant, g.Name}] = nil
	}
	for _, g := range next {
		addresses[[2]string{g.Tenant, g.Name}] = g.Addresses
	}
	for key, all := range addresses {
		if t := tenants[key[0]]; t != nil {
			t.Reserve(key[1], all...)
		}
	}
}

// restartRuns ends the runs of guests whose ports are as earlier settings of the tenant say. The
// next scan takes the guests over, as a daemon that starts does.
func (d *daemon) restartRuns(before, next quota.Config) {
	for _, g := range d.all() {
		was, err := before.Tenant(g.Record.Tenant)
		now, failed := next.Tenant(g.Record.Tenant)
		if errors.Join(err, failed) == nil && (was.Limits.Multicasts != now.Limits.Multicasts || !slices.Equal(was.Bridges, now.Bridges)) {
			g.Stop(guestrun.ErrChanged)
		}
	}
}

// deriveNetworks makes the bridges that have gateways, and separates the tenants' bridges. They
// stay when the daemon ends, because the pods' NICs are on them.
func (d *daemon) deriveNetworks(next quota.Config) error {
	all, f := networks(next), d.networks.Load()
	switch {
	case f != nil:
		return f.Ensure(all)
	case all == nil:
		return bridge.Drop(bridge.Tenants) // what an earlier daemon has left
	}
	f, err := bridge.Open(bridge.Tenants)
	if err != nil {
		return err
	}
	f.Lost = func(err error) {
		d.config.Logger.Warn("the tenants' connections are counted anew: the packet filter could not be changed in part", "error", err)
	}
	if err := f.Ensure(all); err != nil {
		return errors.Join(err, f.Close())
	}
	d.networks.Store(f)
	d.opened(metrics.Tenants, f.Watch)
	return nil
}

// watched is a packet filter that has been opened and is to be watched.
type watched struct {
	name  string
	watch func(context.Context, func(nft.Generation, error)) error
}

func (d *daemon) opened(name string, watch func(context.Context, func(nft.Generation, error)) error) {
	d.unwatched = append(d.unwatched, watched{name, watch})
}

// watchOpened begins to watch the packet filters that were opened since the last call.
func (d *daemon) watchOpened(ctx context.Context, wg *sync.WaitGroup) {
	for _, f := range d.unwatched {
		wg.Go(func() { d.watchFilter(ctx, f.name, f.watch) })
	}
	d.unwatched = nil
}

// newPolicies returns the policies of a daemon, which derive configures.
func (d *daemon) newPolicies(owner string) *networkpolicy.Policies {
	p := networkpolicy.New(owner, d.config.Logger)
	p.Nodes, p.NodeNames, p.Turns = d.guestAddresses, d.nodeNames, d.host.Turns
	return p
}
