package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/hostd/tenant"
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
		err = d.derive(next)
	}
	d.watchOpened(ctx, wg)
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

func (d *daemon) allTenants() []*tenant.Tenant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.tenants))
}

func (d *daemon) setTenants(all map[string]*tenant.Tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tenants = all
}
