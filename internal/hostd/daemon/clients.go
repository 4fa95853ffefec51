package daemon

import (
	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/record"
)

// Client returns the guest with a name.
func (d *daemon) Client(name string) (api.Client, error) {
	r, err := record.Read(d.config.StateDir, name, d.quotas().Guests)
	if err != nil {
		return api.Client{Record: r}, err
	}
	t := d.tenant(r.Tenant)
	if t == nil {
		_, err = d.quotas().Tenant(r.Tenant)
		return api.Client{Record: r}, err
	}
	return api.Client{Record: r, Tenant: t}, nil
}
