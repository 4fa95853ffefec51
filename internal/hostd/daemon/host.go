package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/antispoof"
	"unnest/internal/netdev/ratelimit"
)

// host is the part of the host's network that is the daemon's: the ports of the
// guests' NICs. Connecting one ends with its alias: a port whose alias names no
// attachment is nobody's.
type host struct {
	log      *slog.Logger
	metrics  *metrics
	segments *segments
	shares   *shares

	mu     sync.Mutex
	filter *antispoof.Table // nil until the first port opens it
}

// table returns the packet filter. The first port opens it: a daemon without guests
// changes nothing on the host.
func (h *host) table() (*antispoof.Table, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.filter != nil {
		return h.filter, nil
	}
	t, err := antispoof.Open()
	if err != nil {
		return nil, err
	}
	if err := prune(t); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	h.filter = t
	return t, nil
}

// prune removes from the filter the ports of an earlier daemon that no longer exist.
func prune(t *antispoof.Table) error {
	ports, err := t.Ports()
	if err != nil {
		return err
	}
	for _, p := range ports {
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

// guard lets a port send what the note says, and nothing else. The port need
// not be there yet.
func (h *host) guard(port, mac string, n note) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	t, err := h.table()
	if err != nil {
		return err
	}
	return t.Set(antispoof.Port{Interface: port, MAC: hw, Addresses: n.addrs(), DHCP: n.dhcp})
}

func (h *host) unguard(port string) error {
	t, err := h.table()
	if err != nil {
		return err
	}
	return t.Remove(port)
}

// connect gives a port to the attachment that the note and the alias describe.
// When a step fails it is connected to nothing.
func (h *host) connect(port, mac string, n note, alias string) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("connect %s: %w", port, err), h.disconnect(port, mac, hotplug.WarmOwner))
		}
	}()
	if err := h.guard(port, mac, n); err != nil {
		return err
	}
	if err := ratelimit.Set(port, n.limits); err != nil {
		return err
	}
	link, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	bridge, err := netlink.LinkByName(n.bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", n.bridge, err)
	}
	if link.Attrs().MasterIndex != bridge.Attrs().Index {
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			return fmt.Errorf("plug into bridge %s: %w", n.bridge, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return netlink.LinkSetAlias(link, alias)
}

// disconnect takes a port away from its attachment. It does all that it can.
func (h *host) disconnect(port, mac, alias string) error {
	link, err := netlink.LinkByName(port)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err == nil {
		// Down first: on no bridge its frames would go to the host's own IP stack.
		err = errors.Join(netlink.LinkSetDown(link), netlink.LinkSetNoMaster(link), netlink.LinkSetAlias(link, alias))
	}
	return errors.Join(err, ratelimit.Clear(port), h.guard(port, mac, note{}))
}

// deletePort deletes a port, also one in use, and what belongs to it. That there
// is none is a success.
func (h *host) deletePort(name string) error {
	err := ratelimit.Clear(name)
	link, findErr := netlink.LinkByName(name)
	if findErr == nil {
		findErr = netlink.LinkDel(link)
	}
	if findErr != nil && !errors.As(findErr, new(netlink.LinkNotFoundError)) && !errors.Is(findErr, unix.ENODEV) {
		err = errors.Join(err, fmt.Errorf("delete %s: %w", name, findErr))
	}
	return errors.Join(err, h.unguard(name))
}

// clear deletes every port whose name has the prefix.
func (h *host) clear(prefixes ...string) (err error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		for _, p := range prefixes {
			if isPort(l.Attrs().Name, p) {
				err = errors.Join(err, h.deletePort(l.Attrs().Name))
			}
		}
	}
	return err
}

// isPort reports whether a link's name is the prefix and what begins with a digit:
// one guest's prefix may begin another's.
func isPort(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && rest != "" && '0' <= rest[0] && rest[0] <= '9'
}

// observeTAPs lists the TAPs of the network namespace, and what stands for those of
// segments' endpoints.
func observeTAPs() ([]hotplug.ObservedTAP, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list TAPs: %w", err)
	}
	var taps []hotplug.ObservedTAP
	for _, l := range links {
		if _, ok := l.(*netlink.Tuntap); ok {
			taps = append(taps, hotplug.ObservedTAP{Name: l.Attrs().Name, Owner: l.Attrs().Alias})
			taps = append(taps, observeEndpoints(l.Attrs())...)
		}
	}
	return taps, nil
}

// mark writes a port's alias.
func (h *host) mark(port, alias string) error {
	link, err := netlink.LinkByName(port)
	if err != nil {
		return fmt.Errorf("find %s: %w", port, err)
	}
	return netlink.LinkSetAlias(link, alias)
}

// guardBoot keeps a NIC that a guest has from its start to its own addresses.
func (h *host) guardBoot(n BootNIC) error {
	hw, err := net.ParseMAC(n.MAC)
	if err != nil {
		return err
	}
	t, err := h.table()
	if err != nil {
		return err
	}
	return t.Set(antispoof.Port{Interface: n.TAP, MAC: hw, Addresses: n.Addresses})
}

// drops counts what the filter has dropped, by reason.
func (h *host) drops() map[string]uint64 {
	h.mu.Lock()
	t := h.filter
	h.mu.Unlock()
	if t == nil {
		return nil
	}
	counts, err := t.Drops()
	if err != nil {
		h.log.Warn("count dropped frames", "error", err)
	}
	return counts
}

// sweep deletes the ports of ours whose name begins with none of the prefixes.
func (h *host) sweep(known []string) error {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		name := l.Attrs().Name
		ours := strings.HasPrefix(l.Attrs().Alias, hotplug.WarmOwner)
		if ours && !slices.ContainsFunc(known, func(p string) bool { return isPort(name, p) }) {
			h.log.Info("sweep", "port", name, "alias", l.Attrs().Alias)
			err = errors.Join(err, h.deletePort(name))
		}
	}
	return err
}
