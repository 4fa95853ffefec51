package daemon

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest/internal/vmm"
)

// ownNICInterval is how long a NIC on a TAP that was put on a bridge of the tenant after the
// guest's start is not guarded.
const ownNICInterval = time.Second

// ownNICs are the own NICs of guests of the configuration that the daemon has found through
// the VMM, and of guests that are not enrolled.
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
			err = errors.Join(err, o.ports.unguardOwn(tap))
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
			if err := g.guardOwn(n.TAP, n.MAC, addresses, true); err != nil {
				g.log.Warn("guard the guest's own NIC", "tap", n.TAP, "error", err)
				continue // the next time
			}
			if was, ok := g.host.own.of(n.TAP); !ok || was != own {
				g.log.Info("guard the guest's own NIC", "tap", n.TAP, "mac", n.MAC, "addresses", addresses)
			}
		}
		done[n.TAP] = true
		g.host.own.set(n.TAP, own)
	}
	if len(done) < len(g.own) {
		g.after(ctx, ownNICInterval, func(ctx context.Context) { g.guardOwnNICs(ctx, addresses, done) })
	}
}

// guardUnenrolled guards the own NICs of guests of the configuration that are not enrolled:
// they can send before they can ask for anything.
func (d *daemon) guardUnenrolled(ctx context.Context) {
	configured := map[string]bool{}
	for _, c := range d.policy().Guests {
		configured[c.Name] = true
		if _, err := readEnrolled(d.config.StateDir, c.Name); !errors.Is(err, ErrNoRecord) || d.known(c.Name) != nil {
			continue // its run does it
		}
		r := configuredRecord(c, GuestRecord{})
		err := d.guardOnce(ctx, newGuest(r, d.tenant(r.Tenant), d.host, d.config.UnplugTimeout, d.logs.of(c.Name)))
		if err != nil && !errors.Is(err, vmm.ErrNotRunning) {
			d.logs.of(c.Name).Warn("guard the NIC of a guest that is not enrolled", "guest", c.Name, "error", err)
		}
	}
	for _, guest := range d.host.own.guests() {
		if !configured[guest] && d.known(guest) == nil {
			if err := d.host.own.forget(guest); err != nil {
				d.config.Logger.Warn("end the guard of a guest that is gone", "guest", guest, "error", err)
			}
		}
	}
}

// guardOnce guards the NICs of a guest that has no run, as its run would.
func (d *daemon) guardOnce(ctx context.Context, g *guest) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	for _, n := range g.record.NICs {
		if n.TAP != "" {
			d.host.own.set(n.TAP, ownNIC{guest: g.record.Name})
			return g.guardBootNICs() // it needs no VMM
		}
	}
	if g.vmm, err = d.host.dial(ctx, g.record); err != nil {
		return err
	}
	g.findOwnNICs(ctx)
	return g.vmm.Close()
}

// guests lists the guests of which NICs were found.
func (o *ownNICs) guests() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.found {
		names = append(names, n.guest)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
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
