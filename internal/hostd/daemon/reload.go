package daemon

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"unnest/internal/hostd/metrics"
	"unnest/internal/hostd/quota"
	"unnest/internal/hostd/status"
	"unnest/internal/hostd/tenant"
)

// Change is what the configuration file says by now, or why it cannot be used.
type Change struct {
	Quotas quota.Config
	Err    error
}

// followChanges changes the daemon as the configuration does, until ctx ends. A nil
// channel never changes it.
func (d *daemon) followChanges(ctx context.Context) {
	var wg sync.WaitGroup // watchers of packet filters
	defer wg.Wait()
	for {
		select {
		case c := <-d.config.Changes:
			d.host.Panics.Try("reload", func() { d.reload(ctx, &wg, c) })
		case <-ctx.Done():
			return
		}
	}
}

// reload changes the daemon to another configuration, or changes nothing. It logs one
// line.
func (d *daemon) reload(ctx context.Context, wg *sync.WaitGroup, c Change) {
	var next quota.Config
	var restart []string
	err := c.Err
	if err == nil {
		if next, restart, err = d.quotas().Reload(c.Quotas); err != nil {
			err = fmt.Errorf("%s need a restart, and the rest of the file conflicts with their present values: %w", strings.Join(restart, ", "), err)
		}
	}
	if err == nil {
		err = d.change(ctx, wg, next)
	}
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "\n", "; ")
		d.setReloaded(status.Configuration{Loaded: d.configuration().Loaded, Error: text, Restart: d.configuration().Restart})
		d.config.Logger.Error("the configuration is not reloaded: the earlier one stays", "error", text)
		return
	}
	d.setReloaded(status.Configuration{Loaded: time.Now(), Restart: restart})
	if len(restart) > 0 {
		d.config.Logger.Warn("reload the configuration: some keys take effect when the daemon starts again", "restart", strings.Join(restart, ", "))
		return
	}
	d.config.Logger.Info("reload the configuration", "tenants", len(next.Tenants), "guests", len(next.Guests))
}

// change changes the daemon to a policy that quota.Config.Reload has made. The scan then
// takes over guests that are new or have changed, and removes those that are gone.
func (d *daemon) change(ctx context.Context, wg *sync.WaitGroup, next quota.Config) error {
	if err := checkPolling(next); err != nil {
		return err
	}
	made := map[string]*tenant.Tenant{}
	for _, p := range next.Tenants {
		t := d.tenant(p.Name)
		if t == nil {
			var err error
			if t, err = tenant.New(p, d.config.StateDir, d.config.Logger, d.host.Panics.Try); err != nil {
				return err
			}
		}
		made[p.Name] = t
	}
	if err := d.changeNetworks(ctx, wg, next); err != nil {
		return err
	}
	opened, err := d.host.Ports.Policies.Configure(next.Tenants)
	if err != nil {
		return err
	}
	if opened {
		t := d.host.Ports.Policies.Filter()
		wg.Go(func() { d.watchFilter(ctx, metrics.Isolation, t.Watch) })
	}
	for _, p := range next.Tenants {
		made[p.Name].Change(p)
	}
	d.setTenants(made)
	d.current.Store(&next)
	d.api.ResetRates() // the limits may have changed
	d.warnOfBridges()
	return nil
}

func (d *daemon) changeNetworks(ctx context.Context, wg *sync.WaitGroup, next quota.Config) error {
	all := networks(next)
	if all == nil || reflect.DeepEqual(all, networks(d.quotas())) {
		return nil
	}
	if f := d.networks.Load(); f != nil {
		return f.Ensure(all)
	}
	f, err := d.openNetworks(all)
	if err != nil {
		return err
	}
	wg.Go(func() { d.watchFilter(ctx, metrics.Tenants, f.Watch) })
	return nil
}

// quotas returns the present configuration.
func (d *daemon) quotas() quota.Config {
	if p := d.current.Load(); p != nil {
		return *p
	}
	return d.config.Quotas
}

func (d *daemon) configuration() status.Configuration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reloaded
}

func (d *daemon) setReloaded(c status.Configuration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reloaded = c
}

// tenant returns the tenant with a name, nil if there is none.
func (d *daemon) tenant(name string) *tenant.Tenant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tenants[name]
}

func (d *daemon) allTenants() (all []*tenant.Tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tenants {
		all = append(all, t)
	}
	return all
}

func (d *daemon) setTenants(all map[string]*tenant.Tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenants = all
}
