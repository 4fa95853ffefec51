package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest/internal/hostd/attachment"
	"unnest/internal/netdev/antispoof"
	"unnest/internal/netdev/bridge"
	"unnest/internal/netdev/ratelimit"
	"unnest/internal/netdev/tc"
)

// ports are the host's ends of the guests' NICs: TAPs and the ports of VLANs, on
// their bridges, behind the packet filter and the bandwidth limits.
type ports struct {
	log  *slog.Logger
	open func() (*antispoof.Table, error) // nil: antispoof.Open
	// made passes the packet filter on, once it is open.
	made chan *antispoof.Table

	dropped   portDrops
	checksums checksums
	policies  *podPolicies // nil: none
	services  services

	mu     sync.Mutex
	filter *antispoof.Table // nil until the first port opens it
}

func newPorts(log *slog.Logger) *ports {
	return &ports{log: log, made: make(chan *antispoof.Table, 1)}
}

// table returns the packet filter. The first port opens it: a daemon without guests
// changes nothing on the host. If that fails, the next port tries again.
func (p *ports) table() (*antispoof.Table, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filter != nil {
		return p.filter, nil
	}
	open := p.open
	if open == nil {
		open = antispoof.Open
	}
	t, err := open()
	if err != nil {
		return nil, err
	}
	if err := prune(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	p.filter = t
	select {
	case p.made <- t:
	default: // no one watches it
	}
	return t, nil
}

// opened returns the packet filter, nil before the first port has opened it.
func (p *ports) opened() *antispoof.Table {
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
		_, err := netlinksafe.LinkByName(p.Interface)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			err = t.Remove(p.Interface)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// guard lets a port send from these addresses only, and with dhcp ask for an address;
// multicasts is antispoof's. The port need not exist yet.
func (p *ports) guard(port, mac string, addresses []netip.Addr, dhcp bool, multicasts int) error {
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

func (p *ports) unguard(port string) error {
	t, err := p.table()
	if err != nil {
		return err
	}
	return t.Remove(port)
}

// guarded returns the ports that the kernel guards by now.
func (p *ports) guarded() (map[string]bool, error) {
	t := p.opened()
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

// connect connects a port as a record says. When a step fails, the port is disconnected.
func (p *ports) connect(port, mac string, r attachment.Record, alias string, multicasts int) error {
	if err := p.correct(port, mac, r, alias, multicasts); err != nil {
		return errors.Join(err, p.disconnect(port, mac))
	}
	return nil
}

// correct does what connect does, but after an error leaves what it has not corrected as
// it was. It writes the alias last: a port whose alias names no attachment belongs to none.
func (p *ports) correct(port, mac string, r attachment.Record, alias string, multicasts int) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("connect %s: %w", port, err)
		}
	}()
	if err := p.guard(port, mac, r.Addrs(), r.DHCP, multicasts); err != nil {
		return err
	}
	if err := ratelimit.Set(port, bandwidth(r)); err != nil {
		return err
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	if err := p.policies.connect(port, r); err != nil {
		return err
	}
	if err := p.setServices(port, r.Services); err != nil {
		return err
	}
	if err := p.checksums.attach(link); err != nil {
		return err
	}
	if err := bridge.Join(link, r.Bridge, hw); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return netlink.LinkSetAlias(link, alias)
}

func bandwidth(r attachment.Record) ratelimit.Limits {
	b := r.Bandwidth
	return ratelimit.Limits{IngressRate: b.IngressRate, IngressBurst: b.IngressBurst, EgressRate: b.EgressRate, EgressBurst: b.EgressBurst}
}

// disconnect takes a port away from its attachment and marks it as warm. It does as much
// as it can.
func (p *ports) disconnect(port, mac string) error {
	link, err := netlink.LinkByName(port)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		// Down first: on no bridge its frames would go to the host's own IP stack.
		// A trunk's program would drop the frames of the next pod.
		err = errors.Join(netlink.LinkSetDown(link), netlink.LinkSetNoMaster(link), tc.Detach(link), netlink.LinkSetAlias(link, attachment.WarmAlias))
	}
	return errors.Join(err, p.setServices(port, nil), p.policies.disconnect(port), ratelimit.Clear(port), p.guard(port, mac, nil, false, 0))
}

func setAlias(port, alias string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find %s: %w", port, err)
	}
	return netlink.LinkSetAlias(link, alias)
}

// check returns an error when a port is not up, not on the bridge, or may not send from
// one of the addresses.
func (p *ports) check(port, bridge string, addresses []netip.Addr) error {
	link, err := netlinksafe.LinkByName(port)
	if err != nil {
		return fmt.Errorf("port %s: %w", port, err)
	}
	master, err := netlinksafe.LinkByName(bridge)
	switch {
	case err != nil:
		return fmt.Errorf("bridge %s: %w", bridge, err)
	case link.Attrs().MasterIndex != master.Attrs().Index:
		return fmt.Errorf("port %s is not on bridge %s", port, bridge)
	case link.Attrs().Flags&net.FlagUp == 0:
		return fmt.Errorf("port %s is down", port)
	}
	t, err := p.table()
	if err != nil {
		return err
	}
	all, err := t.Ports()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(g antispoof.Port) bool { return g.Interface == port })
	if i < 0 {
		return fmt.Errorf("the packet filter does not guard port %s", port)
	}
	for _, a := range addresses {
		if !slices.Contains(all[i].Addresses, a) {
			return fmt.Errorf("the packet filter does not let port %s send from %s", port, a)
		}
	}
	return nil
}

// drops returns how many frames the filter has dropped, by reason.
func (p *ports) drops() map[string]uint64 {
	t := p.opened()
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
