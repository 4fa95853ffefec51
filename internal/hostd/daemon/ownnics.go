package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest/internal/hostd/status"
)

const (
	// ownNICInterval is how long a NIC on a TAP that was put on a bridge of the tenant
	// after the guest's start is not guarded.
	ownNICInterval    = time.Second
	unguardedInterval = 10 * time.Second // between two looks for unguarded ports
)

// ownNICs are the NICs of guests of the configuration that have no key tap: the daemon has
// found them through the VMM.
type ownNICs struct {
	ports *ports

	mu    sync.Mutex
	found map[string]ownNIC // by TAP
}

type ownNIC struct {
	guest     string
	unguarded string // why it is not guarded; empty: it is, or is on no bridge of the tenant
	intended  bool   // that it is not
}

// forget forgets the NICs of a guest that is gone, and ends their guard.
func (o *ownNICs) forget(guest string) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for tap, n := range o.found {
		if n.guest != guest {
			continue
		}
		delete(o.found, tap)
		if n.unguarded == "" {
			err = errors.Join(err, o.ports.unguard(tap))
		}
	}
	return err
}

func (o *ownNICs) set(tap string, n ownNIC) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found[tap] = n
}

func (o *ownNICs) of(tap string) (ownNIC, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ok := o.found[tap]
	return n, ok
}

// findOwnNICs asks the VMM for the guest's own NICs, unless the record names their TAPs,
// and guards those on a bridge of the tenant. Others may be for the operator.
func (g *guest) findOwnNICs(ctx context.Context) {
	for _, n := range g.record.NICs {
		if n.TAP != "" {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, vmmTime)
		defer cancel()
		own, err := g.vmm.OwnNICs(bound)
		if err != nil {
			g.log.Warn("find the guest's own NICs: they may send anything; add the keys tap and mac to the guest", "error", err)
		}
		g.own = own
		g.guardOwnNICs(ctx, n.Addresses, map[string]bool{})
		return
	}
}

// guardOwnNICs guards the NICs that are on a bridge of the tenant by now, and looks again
// later.
func (g *guest) guardOwnNICs(ctx context.Context, addresses []netip.Addr, done map[string]bool) {
	for _, n := range g.own {
		if done[n.TAP] || !slices.Contains(append([]string{g.tenant.Bridge}, g.tenant.now().Bridges...), bridgeOf(n.TAP)) {
			continue
		}
		own := ownNIC{guest: g.record.Name}
		switch {
		case g.record.Unguarded:
			own.unguarded, own.intended = "as the configuration says (unguarded)", true
		case len(addresses) == 0:
			own.unguarded = "the configuration does not say from which addresses the guest may send: add its addresses"
		default:
			if err := g.host.ports.guard(n.TAP, n.MAC, addresses, true, g.tenant.multicasts()); err != nil {
				g.log.Warn("guard the guest's own NIC", "tap", n.TAP, "error", err)
				continue // the next time
			}
			g.log.Info("guard the guest's own NIC", "tap", n.TAP, "mac", n.MAC, "addresses", addresses)
		}
		done[n.TAP] = true
		g.host.own.set(n.TAP, own)
	}
	if len(done) < len(g.own) {
		g.after(ctx, ownNICInterval, func(ctx context.Context) { g.guardOwnNICs(ctx, addresses, done) })
	}
}

// bridgeOf returns the name of the bridge that a link is on, "" if it is on none.
func bridgeOf(name string) string {
	link, err := netlinksafe.LinkByName(name)
	if err != nil || link.Attrs().MasterIndex == 0 {
		return ""
	}
	master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
	if err != nil {
		return ""
	}
	return master.Attrs().Name
}

// unguarded lists the TAPs on bridges of tenants that the packet filter does not limit. It
// looks at the host, so it also finds NICs of which the daemon knows nothing.
func (d *daemon) unguarded() (all []status.Port, err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	guarded, err := d.host.ports.guarded()
	if err != nil {
		return nil, err
	}
	bridges := d.bridges(links)
	for _, l := range links {
		a := l.Attrs()
		p, ok := bridges[a.MasterIndex]
		if _, tap := l.(*netlink.Tuntap); !ok || !tap || guarded[a.Name] || bridgeOf(a.Name) != p.Bridge {
			continue
		}
		p.Interface = a.Name
		d.explain(&p)
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b status.Port) int { return strings.Compare(a.Interface, b.Interface) })
	return all, nil
}

// bridges returns the tenants' bridges by the index of their link.
func (d *daemon) bridges(links []netlink.Link) map[int]status.Port {
	owners := map[string]string{}
	for _, t := range d.policy().Tenants {
		for _, b := range append([]string{t.Bridge}, t.Bridges...) {
			owners[b] = t.Name
		}
	}
	bridges := map[int]status.Port{}
	for _, l := range links {
		if owner, ok := owners[l.Attrs().Name]; ok {
			bridges[l.Attrs().Index] = status.Port{Tenant: owner, Bridge: l.Attrs().Name}
		}
	}
	return bridges
}

// explain says why a port is not guarded.
func (d *daemon) explain(p *status.Port) {
	p.Cause = "no enrolled guest of the configuration has it: enroll its guest; if it is, add the keys tap and mac to the guest"
	if own, ok := d.host.own.of(p.Interface); ok {
		p.Guest, p.Intended, p.Cause = own.guest, own.intended, own.unguarded
		if p.Cause == "" {
			p.Cause = "its rules were removed from the host"
		}
		return
	}
	for _, g := range d.policy().Guests {
		if g.TAP == p.Interface {
			p.Guest, p.Cause = g.Name, "the daemon has not reached the guest: see its log; a new guest needs unnest hostd enroll "+g.Name
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
