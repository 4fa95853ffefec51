package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/quota"
)

// listenTCP listens on an address of the configuration. Serve calls it before it changes
// anything on the host. A gateway's address may not exist yet: buildNetworks adds it.
func (d *daemon) listenTCP(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	var c net.ListenConfig
	if d.isGateway(address.Addr()) {
		c.Control = freeBind
	}
	l, err := c.Listen(ctx, "tcp", address.String())
	if errors.Is(err, unix.EADDRNOTAVAIL) {
		err = fmt.Errorf("%w: no interface of this host has the address: add it to one, or use a gateway of a tenant", err)
	}
	return l, err
}

func (d *daemon) isGateway(a netip.Addr) bool {
	return slices.ContainsFunc(d.config.Quotas.Tenants, func(t quota.Tenant) bool {
		return slices.ContainsFunc(t.Gateways, func(g netip.Prefix) bool { return g.Addr() == a })
	})
}

// freeBind lets a socket listen on an address that no interface has yet.
func freeBind(network, _ string, raw syscall.RawConn) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if network == "tcp6" {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	var set error
	err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, set)
}
