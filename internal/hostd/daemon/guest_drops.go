package daemon

import (
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/ports"
)

// GuestDrops returns how many frames of each guest the packet filter has dropped.
func (r reporter) GuestDrops() map[string]uint64 {
	guests := r.all()
	totals, err := r.host.Ports.DropsOf(func(port string) string { return r.ownerOf(port, guests) })
	if err != nil {
		r.config.Logger.Warn("count dropped frames of guests", "error", err)
	}
	return totals
}

// ownerOf returns which of the guests has a port on the host, "" if none.
func (d *daemon) ownerOf(port string, guests []*guestrun.Guest) string {
	for _, g := range guests {
		if ports.IsPort(port, g.Record.TAPPrefix(), g.Record.VLANPrefix()) {
			return g.Record.Name
		}
		for _, n := range g.Record.NICs {
			if n.TAP == port {
				return g.Record.Name
			}
		}
	}
	own, _ := d.host.Own.Of(port)
	return own.Guest
}
