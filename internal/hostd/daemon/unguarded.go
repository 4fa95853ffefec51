package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/link"
)

const unguardedInterval = 10 * time.Second // between two looks for unguarded ports

// unguarded lists the TAPs on bridges of tenants that the packet filter does not limit. It
// looks at the host, so it also finds NICs of which the daemon knows nothing.
func (d *daemon) unguarded() (all []status.Port, err error) {
	links, err := link.List()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	guarded, err := d.host.Ports.Guarded()
	if err != nil {
		return nil, err
	}
	bridges := d.bridges(links)
	for _, l := range links {
		p, ok := bridges[l.Master]
		if !ok || !l.TAP || guarded[l.Name] || link.Bridge(l.Name) != p.Bridge {
			continue
		}
		p.Interface = l.Name
		d.explain(&p)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b status.Port) int { return strings.Compare(a.Interface, b.Interface) })
	return all, nil
}

// bridges returns the tenants' bridges by the index of their link.
func (d *daemon) bridges(links []link.Link) map[int]status.Port {
	owners := map[string]string{}
	for _, t := range d.quotas().Tenants {
		for _, b := range t.AllBridges() {
			owners[b] = t.Name
		}
	}
	bridges := map[int]status.Port{}
	for _, l := range links {
		if owner, ok := owners[l.Name]; ok {
			bridges[l.Index] = status.Port{Tenant: owner, Bridge: l.Name}
		}
	}
	return bridges
}

// explain says why a port is not guarded.
func (d *daemon) explain(p *status.Port) {
	p.Cause = "no guest of the configuration has it: add the keys tap and mac to its guest"
	if own, ok := d.host.Own.Of(p.Interface); ok {
		p.Guest, p.Intended, p.Cause = own.Guest, own.Intended, own.Unguarded
		p.Cause = cmp.Or(p.Cause, "its rules were removed from the host")
		return
	}
	for _, g := range d.quotas().Guests {
		if g.TAP == p.Interface {
			p.Guest, p.Cause = g.Name, "the daemon has not guarded it yet: see its log"
		}
	}
}

// unguardedLog says which ports are not guarded when the daemon starts, and later when that
// has been so for two looks: a guest that starts has its NIC before the daemon reaches it.
type unguardedLog struct {
	seen, logged map[string]string // causes, by port; nil before the first look
}

func (u *unguardedLog) look(d *daemon) {
	ports, err := d.unguarded()
	if err != nil {
		d.config.Logger.Warn("look for unguarded ports", "error", err)
		return
	}
	seen, logged := map[string]string{}, map[string]string{}
	for _, p := range ports {
		if p.Intended {
			continue
		}
		name := p.Interface
		seen[name] = p.Cause
		if _, before := u.seen[name]; u.seen != nil && !before {
			continue
		}
		logged[name] = p.Cause
		if u.logged[name] != p.Cause {
			d.config.Logger.Warn("a port is not guarded: its guest may send anything, such as other guests' addresses, "+
				"router advertisements and DHCP answers", "port", name, "bridge", p.Bridge, "tenant", p.Tenant, "guest", p.Guest, "cause", p.Cause)
		}
	}
	u.seen, u.logged = seen, logged
}
