package daemon

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/status"
)

// statusTime bounds the wait for one guest's part.
const statusTime = 2 * time.Second

// reporter is the daemon as its operator sees it.
type reporter struct{ *daemon }

// Status describes the daemon and what it serves. It is empty after a panic, because
// Prometheus' collectors run in goroutines of their own.
func (r reporter) Status(ctx context.Context) (s status.Status) {
	_ = r.host.Panics.Contain("status", func() error { s = r.status(ctx); return nil })
	return s
}

func (d *daemon) status(ctx context.Context) status.Status {
	s := status.Status{Version: d.config.Build.Version, Revision: d.config.Build.Revision, Protocol: api.Protocol, Since: d.since, Listen: d.address(), Configuration: d.configuration()}
	guests := d.all()
	s.Guests = make([]status.Guest, len(guests))
	var asking sync.WaitGroup
	for i, g := range guests { // at once, as each may take its time
		asking.Go(func() {
			s.Guests[i] = status.Guest{Name: g.Record.Name, Tenant: g.Record.Tenant, Error: contain.ErrPanic.Error()}
			_ = d.host.Panics.Contain("status of guest "+g.Record.Name, func() error { s.Guests[i] = guestStatus(ctx, g); return nil })
		})
	}
	asking.Wait()
	for i, g := range guests {
		described := &s.Guests[i]
		described.Certificates, described.CertificateExpires = d.credentials.DescribeCertificates(g.Record)
	}
	s.Segments = d.host.Segments.Status()
	for _, t := range d.allTenants() {
		stats, owned := t.Stats()
		ts := status.Tenant{Name: t.Name, Bridge: t.Now().Bridge, Attachments: owned, AddressesInUse: stats.InUse, AddressesCooling: stats.Cooling, Policies: d.host.Ports.Policies.Status(t.Name), PolicyClientExpires: d.credentials.PolicyClientExpires(t.Name)}
		for _, p := range s.Segments {
			if p.Tenant == t.Name {
				ts.Segments++
			}
		}
		s.Tenants = append(s.Tenants, ts)
	}
	var err error
	if s.Unguarded, err = d.unguarded(); err != nil {
		d.config.Logger.Warn("look for unguarded ports", "error", err)
	}
	if p := d.problems.Load(); p != nil {
		s.Problems = *p
	}
	slices.SortFunc(s.Tenants, func(a, b status.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Drops returns how many frames the packet filters have dropped, by reason.
func (r reporter) Drops() map[string]uint64 {
	all := r.host.Ports.Drops()
	if f := r.networks.Load(); f != nil {
		drops, err := f.Drops()
		if err != nil {
			r.config.Logger.Warn("count dropped packets", "error", err)
			return all
		}
		maps.Copy(drops, all)
		return drops
	}
	return all
}

func guestStatus(ctx context.Context, g *guestrun.Guest) status.Guest {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	s, err := g.DescribeStatus(ctx)
	if err != nil {
		return status.Guest{Name: g.Record.Name, Tenant: g.Tenant.Name, Error: err.Error()}
	}
	return s
}
