package guestrun

import (
	"context"
	"net/netip"
	"slices"
	"time"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/netdev/link"
)

// ownNICInterval is how long a NIC on a TAP that was put on a bridge of the tenant after the
// guest's start is not guarded.
const ownNICInterval = time.Second

// findOwnNICs asks the VMM for the guest's own NICs, unless the record names their TAPs,
// and guards those on a bridge of the tenant. Others may be for the operator. If the VMM does not answer, it asks again
// later. It does not log the error said again.
func (g *Guest) findOwnNICs(ctx context.Context, said string) {
	for _, n := range g.Record.NICs {
		if n.TAP != "" {
			continue
		}
		bound, cancel := context.WithTimeout(ctx, vmmTime)
		defer cancel()
		own, err := g.vmm.OwnNICs(bound)
		if err != nil {
			if err.Error() != said {
				g.log.Warn("find the guest's own NICs: they may send anything; add the keys tap and mac to the guest", "error", err)
			}
			g.after(ctx, repairTime, func(ctx context.Context) { g.findOwnNICs(ctx, err.Error()) })
			return
		}
		g.own = own
		g.guardOwnNICs(ctx, n.Addresses, map[string]bool{})
		return
	}
}

// guardOwnNICs guards the NICs that are on a bridge of the tenant by now, and looks again
// later.
func (g *Guest) guardOwnNICs(ctx context.Context, addresses []netip.Addr, done map[string]bool) {
	for _, n := range g.own {
		if done[n.TAP] || !slices.Contains(g.Tenant.Now().AllBridges(), link.Bridge(n.TAP)) {
			continue
		}
		own := ports.OwnNIC{Guest: g.Record.Name}
		switch {
		case g.Record.Unguarded:
			own.Unguarded, own.Intended = "as the configuration says (unguarded)", true
		case len(addresses) == 0:
			own.Unguarded = "the configuration does not say from which addresses the guest may send: add its addresses"
		default:
			if err := g.guardOwn(n.TAP, n.MAC, addresses, true); err != nil {
				g.log.Warn("guard the guest's own NIC", "tap", n.TAP, "error", err)
				continue // the next time
			}
			if was, ok := g.host.Own.Of(n.TAP); !ok || was != own {
				g.log.Info("guard the guest's own NIC", "tap", n.TAP, "mac", n.MAC, "addresses", addresses)
			}
		}
		done[n.TAP] = true
		g.host.Own.Set(n.TAP, own)
	}
	if len(done) < len(g.own) {
		g.after(ctx, ownNICInterval, func(ctx context.Context) { g.guardOwnNICs(ctx, addresses, done) })
	}
}

// GuardOnce guards the NICs of a guest that has no run, as its run would.
func (g *Guest) GuardOnce(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	for _, n := range g.Record.NICs {
		if n.TAP != "" {
			g.host.Own.Set(n.TAP, ports.OwnNIC{Guest: g.Record.Name})
			return g.guardBootNICs() // it needs no VMM
		}
	}
	if g.vmm, err = g.host.Dial(ctx, g.Record); err != nil {
		return err
	}
	g.findOwnNICs(ctx, "")
	return g.vmm.Close()
}

// guardBootNICs limits the NICs that the guest has from its start to their own
// addresses, and reserves these addresses.
func (g *Guest) guardBootNICs() error {
	g.Tenant.Reserve(g.Record.Name, g.Record.Addresses()...)
	g.host.Ports.Policies.NodesChanged(g.Tenant.Name)
	for _, n := range g.Record.NICs {
		if n.TAP == "" {
			continue
		}
		if err := g.guardOwn(n.TAP, n.MAC, n.Addresses, n.DHCP); err != nil {
			return err
		}
	}
	return nil
}

// guardOwn limits a NIC that the guest has from its start to addresses, and to the service
// addresses of its pods.
func (g *Guest) guardOwn(tap, mac string, addresses []netip.Addr, dhcp bool) error {
	return g.host.Ports.GuardOwn(tap, ports.OwnGuard{
		MAC: mac, Addresses: addresses, DHCP: dhcp, Multicasts: g.Tenant.Multicasts(),
		Pods: []string{g.Record.TAPPrefix(), g.Record.VLANPrefix()},
	})
}
