package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks the routes of labs (rtm_protocol, rtnetlink(7)); no routing daemon has this number.
const routeProtocol = 117

// AddRoute adds a route through a neighbour to the network namespace of this process. Close removes it. Only one
// lab at a time can have a route to a network.
func (l *Lab) AddRoute(to netip.Prefix, via netip.Addr) error {
	if err := l.addRoute(to, via); err != nil {
		return fmt.Errorf("add route to %s via %s: %w", to, via, err)
	}
	return nil
}

// addRoute records the route before it adds it, and removes the record if that fails. It does nothing if the lab has
// recorded the route before.
func (l *Lab) addRoute(to netip.Prefix, via netip.Addr) error {
	before, err := os.ReadFile(l.routes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	record := fmt.Sprintln(to, via)
	if strings.Contains(string(before), record) {
		return nil
	}
	if err := os.WriteFile(l.routes(), append(before, record...), 0o600); err != nil {
		return err
	}
	err = netlink.RouteAdd(labRoute(to, via))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENETUNREACH):
		err = fmt.Errorf("%s is on no network of this machine: run unnest on a machine of the same network", via)
	case errors.Is(err, unix.EEXIST):
		err = errors.New("there is one: another run has it; wait for its end")
	}
	return errors.Join(err, os.WriteFile(l.routes(), before, 0o600))
}

// routes is the file with the lab's routes in the network namespace of its process: a network and a
// neighbour each line.
func (l *Lab) routes() string { return filepath.Join(l.Dir, "routes") }

func labRoute(to netip.Prefix, via netip.Addr) *netlink.Route {
	dst := &net.IPNet{IP: to.Addr().AsSlice(), Mask: net.CIDRMask(to.Bits(), to.Addr().BitLen())}
	return &netlink.Route{Dst: dst, Gw: via.AsSlice(), Protocol: routeProtocol}
}

// removeRoutes removes the lab's routes. Those that are gone already are no error.
func (l *Lab) removeRoutes() error {
	text, err := os.ReadFile(l.routes())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for line := range strings.Lines(string(text)) {
		errs = append(errs, removeRoute(line))
	}
	return errors.Join(errs...)
}

func removeRoute(line string) error {
	to, via, _ := strings.Cut(strings.TrimSpace(line), " ")
	network, err := netip.ParsePrefix(to)
	if err != nil {
		return nil // a torn line: its process was killed before it added the route
	}
	neighbour, err := netip.ParseAddr(via)
	if err != nil {
		return nil // likewise
	}
	if err := netlink.RouteDel(labRoute(network, neighbour)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to %s via %s: %w", network, neighbour, err)
	}
	return nil
}
