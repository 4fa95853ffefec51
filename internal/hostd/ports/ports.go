// Package ports knows what a port of a guest's NIC is on the host: its bridge, its packet
// filter, its bandwidth, its service addresses, and the attachment that its alias names. It
// also guards the NICs that a guest has from its start. Devices are made and changed by
// packages of netdev.
package ports

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/networkpolicy"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/antispoof"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/ratelimit"
)

// Ports are the host's ends of the guests' NICs: TAPs and the ports of VLANs, on
// their bridges, behind the packet filter and the bandwidth limits.
type Ports struct {
	log *slog.Logger
	// Open opens the packet filter: antispoof.Open, except in tests.
	Open func() (*antispoof.Table, error)
	// Made passes the packet filter on, once it is open.
	Made chan *antispoof.Table

	dropped   portDrops
	checksums checksums
	Policies  *networkpolicy.Policies // nil: none
	services  services

	mu     sync.Mutex
	filter *antispoof.Table // nil until the first port opens it
}

// New returns the ports of the host. The first one that is guarded opens the packet filter.
func New(log *slog.Logger) *Ports {
	return &Ports{log: log, Open: antispoof.Open, Made: make(chan *antispoof.Table, 1)}
}

// table returns the packet filter. The first port opens it: a daemon without guests
// changes nothing on the host. If that fails, the next port tries again.
func (p *Ports) table() (*antispoof.Table, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filter != nil {
		return p.filter, nil
	}
	t, err := p.Open()
	if err != nil {
		return nil, err
	}
	if err := prune(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	p.filter = t
	select {
	case p.Made <- t:
	default: // no one watches it
	}
	return t, nil
}

// Opened returns the packet filter, nil before the first port has opened it.
func (p *Ports) Opened() *antispoof.Table {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filter
}

// prune removes from the filter the ports of an earlier daemon that no longer exist.
func prune(t *antispoof.Table) error {
	all, err := t.Ports()
	if err != nil {
		return err
	}
	for _, p := range all {
		_, err := link.Find(p.Interface)
		if link.IsGone(err) {
			err = t.Remove(p.Interface)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Guard lets a port send from these addresses only, and with dhcp ask for an address;
// multicasts is antispoof's. The port need not exist yet.
func (p *Ports) Guard(port, mac string, addresses []netip.Addr, dhcp bool, multicasts int) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	t, err := p.table()
	if err != nil {
		return err
	}
	return t.Set(antispoof.Port{Interface: port, MAC: hw, Addresses: addresses, DHCP: dhcp, Multicasts: multicasts})
}

// Unguard ends the guard of a port, which may be gone.
func (p *Ports) Unguard(port string) error {
	t, err := p.table()
	if err != nil {
		return err
	}
	return t.Remove(port)
}

// Guarded returns the ports that the kernel guards by now.
func (p *Ports) Guarded() (map[string]bool, error) {
	t := p.Opened()
	if t == nil {
		return nil, nil
	}
	all, err := t.Ports()
	names := map[string]bool{}
	for _, g := range all {
		names[g.Interface] = true
	}
	return names, err
}

// CheckMAC returns an error that wraps bridge.ErrMAC if the bridge knows the MAC that a guest has chosen for a pod at another port, or if
// it is that of a guest's own NIC. That guest may be off.
func (p *Ports) CheckMAC(port string, r attachment.Record) error {
	if r.MAC == "" {
		return nil
	}
	hw, err := net.ParseMAC(r.MAC)
	if err != nil {
		return err
	}
	if p.services.hasMAC(r.MAC) {
		return fmt.Errorf("%w: %s is that of a guest's own NIC", bridge.ErrMAC, r.MAC)
	}
	return bridge.CheckMAC(port, r.Bridge, hw)
}

// Leave takes a port off its bridge, which forgets its MACs.
func (p *Ports) Leave(port string) error { return bridge.Leave(port) }

// Connect connects a port as a record says. When a step fails, the port is disconnected. It yields the turn between its steps.
func (p *Ports) Connect(turn *turns.Turn, port, mac string, r attachment.Record, alias string, multicasts int) error {
	if err := p.Correct(turn, port, mac, r, alias, multicasts); err != nil {
		return errors.Join(err, p.Disconnect(turn, port, mac))
	}
	return nil
}

// Correct does what connect does, but after an error leaves what it has not corrected as
// it was. It writes the alias last: a port whose alias names no attachment belongs to none.
func (p *Ports) Correct(turn *turns.Turn, port, mac string, r attachment.Record, alias string, multicasts int) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("connect %s: %w", port, err)
		}
	}()
	mac = cmp.Or(r.MAC, mac)
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	for i, step := range []func() error{
		func() error { return p.Guard(port, mac, r.Addrs(), r.DHCP, multicasts) },
		func() error { return ratelimit.Set(port, ratelimit.Limits(r.Bandwidth)) },
		func() error { return p.Policies.Connect(turn, port, r) },
		func() error { return p.setServices(port, r.Services) },
		func() error {
			if len(r.Services) == 0 {
				return nil // the policies' Connect has changed all ports
			}
			return p.Policies.Settle(turn, port)
		},
		func() error { return p.checksums.attach(port) },
		func() error { // in one step, so that two guests that choose a MAC at once cannot both get it
			if err := p.CheckMAC(port, r); err != nil {
				return err
			}
			return bridge.Join(port, r.Bridge, hw)
		},
		func() error { return link.SetUp(port) },
		func() error { return link.SetAlias(port, alias) },
	} {
		if i > 0 {
			turn.Yield()
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Disconnect takes a port away from its attachment and marks it as warm. It does as much
// as it can, and yields the turn between its steps. If the service addresses do not end, the port keeps
// its alias, by which the next daemon finds them, and its pod keeps the filter.
func (p *Ports) Disconnect(turn *turns.Turn, port, mac string) error {
	if _, err := link.Find(port); link.IsGone(err) {
		return nil
	}
	err := bridge.Leave(port)
	failed := p.EndServices(port)
	if failed == nil {
		err = errors.Join(err, link.SetAlias(port, attachment.WarmAlias))
		turn.Yield()
		failed = p.Policies.Disconnect(turn, port)
	}
	err = errors.Join(err, failed, ratelimit.Clear(port))
	turn.Yield()
	return errors.Join(err, p.Guard(port, mac, nil, false, 0))
}

// CheckLink returns an error unless a port is up and on its bridge.
func (*Ports) CheckLink(port, bridge string) error {
	l, err := link.Find(port)
	if err != nil {
		return fmt.Errorf("port %s: %w", port, err)
	}
	master, err := link.Find(bridge)
	switch {
	case err != nil:
		return fmt.Errorf("bridge %s: %w", bridge, err)
	case l.Master != master.Index:
		return fmt.Errorf("port %s is not on bridge %s", port, bridge)
	case !l.Up:
		return fmt.Errorf("port %s is down", port)
	}
	return nil
}

// Check returns an error when a port is not up, not on the bridge, or may not send from
// one of the addresses.
func (p *Ports) Check(port, bridge string, addresses []netip.Addr) error {
	if err := p.CheckLink(port, bridge); err != nil {
		return err
	}
	t, err := p.table()
	if err != nil {
		return err
	}
	guarded, err := t.Port(port)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if !slices.Contains(guarded.Addresses, a) {
			return fmt.Errorf("the packet filter does not let port %s send from %s", port, a)
		}
	}
	return nil
}

// Drops returns how many frames the filter has dropped, by reason.
func (p *Ports) Drops() map[string]uint64 {
	t := p.Opened()
	if t == nil {
		return nil
	}
	counts, err := t.Drops()
	if err != nil {
		p.log.Warn("count dropped frames", "error", err)
		return counts
	}
	if counts["checksum"], err = p.checksums.drops(); err != nil {
		p.log.Warn("count dropped frames", "error", err)
	}
	return counts
}
