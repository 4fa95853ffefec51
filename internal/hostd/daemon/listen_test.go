package daemon

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// withGateway is a configuration whose first tenant's bridge the daemon creates.
func (l *lab) withGateway(listen string) Config {
	p := testQuotas()
	p.Listen = netip.MustParseAddrPort(listen)
	p.Tenants[0].Bridge, p.Tenants[0].Gateways = "made0", []netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd00:9::1/64")}
	return Config{StateDir: l.dir, Quotas: p, Logger: (&logLines{}).logger()}
}

// A daemon that cannot listen changes nothing on the host.
func TestListenFails(t *testing.T) {
	for _, change := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"address of no interface", "10.77.0.1:7443: bind: cannot assign requested address: no interface of this host has the address",
			func(c *Config) { c.Quotas.Listen = netip.MustParseAddrPort("10.77.0.1:7443") }},
		{"operator's address of no interface", "10.77.0.1:9477: bind: cannot assign requested address: no interface of this host has the address",
			func(c *Config) { c.Quotas.HTTP = netip.MustParseAddrPort("10.77.0.1:9477") }},
		{"both addresses are equal", "address already in use",
			func(c *Config) { c.Quotas.HTTP = c.Quotas.Listen }},
	} {
		t.Run(change.name, func(t *testing.T) {
			l := newLab(t)
			c := l.withGateway("127.0.0.1:7443")
			change.change(&c)
			l.do(func() error {
				if err := Serve(t.Context(), c); err == nil || !strings.Contains(err.Error(), change.want) {
					t.Errorf("got %v, want %q", err, change.want)
				}
				links, err := netlink.LinkList()
				for _, link := range links {
					if link.Attrs().Name == "made0" {
						t.Error("the bridge is left")
					}
				}
				return err
			})
		})
	}
}

// The daemon can listen on a gateway, whose address it adds itself.
func TestListenOnGateway(t *testing.T) {
	l := newLab(t)
	for _, address := range []string{"10.9.0.1:7443", "[fd00:9::1]:7443"} {
		d, err := newDaemon(l.withGateway(address))
		l.check(err)
		l.do(func() error {
			listener, err := d.listenTCP(t.Context(), d.config.Quotas.Listen)
			if err != nil {
				return err
			}
			return listener.Close()
		})
	}
}
