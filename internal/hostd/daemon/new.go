package daemon

import (
	"crypto/tls"
	"net/netip"
	"path/filepath"
	"time"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/shares"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/hostd/turns"
)

func serverTLS(stateDir string, ip netip.Addr) (*tls.Config, error) {
	authority, err := identity.OpenAuthority(stateDir)
	if err != nil {
		return nil, err
	}
	return authority.ServerConfig(ip.AsSlice())
}

func newDaemon(c Config) (*daemon, error) {
	m := metrics.New()
	owner, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, err
	}
	media, err := guestrun.MediaDir(c.StateDir)
	if err != nil {
		return nil, err
	}
	statefile.RemoveLeftovers(c.StateDir, time.Now().Add(-time.Hour)) // a command may be writing
	d := &daemon{
		config: c, media: media, metrics: m, since: time.Now(), reloaded: status.Configuration{Loaded: time.Now()}, logs: guestlog.New(c.Logger),
		tenants: map[string]*tenant.Tenant{}, guests: map[string]*guestrun.Guest{},
		host: &guestrun.Host{StateDir: c.StateDir, Dial: guestrun.Dialer(media), Metrics: m, Panics: contain.New(m, c.Logger), Ports: ports.New(c.Logger), Turns: &turns.Turns{}, Segments: segments.New(c.Logger), Shares: shares.New(c.Logger, owner, c.Mounts)},
	}
	d.host.Own = ports.NewOwnNICs(d.host.Ports)
	d.credentials = credentials.New(c.StateDir, c.Logger, d.logs, d.address)
	d.host.Offer = d.credentials.Offer
	d.api = &api.Handler{Version: c.Build.Version, Clients: d, Credentials: d.credentials, Quotas: d.quotas, Host: d.host, Log: c.Logger, Logs: d.logs}
	d.host.Ports.Policies = d.newPolicies(owner)
	m.Read(reporter{d})
	m.Built(c.Build)
	return d, nil
}
