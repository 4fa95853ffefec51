package daemon

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/record"
)

// Guest returns the guest that calls, once it takes requests. It connects to the guest's
// VMM if there is no connection.
func (d *daemon) Guest(ctx context.Context, c api.Client) (*guestrun.Guest, error) {
	for {
		g, fresh := d.lookup(c)
		if !g.Record.Same(c.Record) { // restarted, or with a new certificate
			g.Stop(guestrun.ErrChanged)
			select {
			case <-g.Done: // QEMU takes one connection at a time
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		select {
		case <-g.Ready:
			return g, nil
		case <-g.Done:
			if fresh {
				return nil, g.Err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookup returns the guest of the record's name; a fresh one if none runs.
func (d *daemon) lookup(c api.Client) (g *guestrun.Guest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[c.Record.Name]; g != nil {
		select {
		case <-g.Done:
		default:
			return g, false
		}
	}
	g = guestrun.New(c.Record, c.Tenant, d.host, d.config.UnplugTimeout, d.logs.Of(c.Record.Name))
	d.guests[c.Record.Name] = g
	d.launch(g)
	return g, true
}

// known returns the latest guest of a name, ended or not; nil if there was none.
func (d *daemon) known(name string) *guestrun.Guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.guests[name]
}

// all lists the guests that the daemon has connected to, by name.
func (d *daemon) all() []*guestrun.Guest {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.guests), func(a, b *guestrun.Guest) int { return strings.Compare(a.Record.Name, b.Record.Name) })
}

// guestAddresses returns the addresses of a tenant's guests.
func (d *daemon) guestAddresses(name string) []netip.Addr {
	if t := d.tenant(name); t != nil {
		return t.GuestAddresses()
	}
	return nil
}

// nodeNames returns a function that returns the node of the guest that has a port, "" if none has.
func (d *daemon) nodeNames() func(port string) string {
	stored := sync.OnceValue(func() []record.Guest { all, _ := d.records(); return all }) // one that cannot be read has no port yet
	return func(port string) string {
		of := func(r record.Guest) bool { return ports.IsPort(port, r.TAPPrefix(), r.VLANPrefix()) }
		for _, g := range d.all() {
			if of(g.Record) {
				return g.Record.NodeName()
			}
		}
		for _, r := range stored() {
			if of(r) {
				return r.NodeName()
			}
		}
		return ""
	}
}

// wait waits for d. It reports false if ctx ends first.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
