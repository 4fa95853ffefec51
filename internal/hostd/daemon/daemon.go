// Package daemon runs on the host and serves its guests: it gives a guest a NIC for each
// of its pods (BrFusion: Bacou et al. 2019, §3), an endpoint of a segment for each
// fraction of a pod that spans guests (Hostlo, §4), and the pods' volumes and shared
// memory (§4.3). It connects the packages that decide with those that act:
//
//   - quota: what a tenant may have; tenant: what it has; ipam: which address; hotplug: which
//     slot, and when;
//   - guestrun, ports, segments, shares: what is made on the host and in the VMM;
//   - credentials, networkpolicy: which certificates and which connections are accepted;
//   - api: what guests ask; status, metrics: what the operator sees.
//
// This package starts and stops them, follows the configuration, and finds the guests that
// come and go.
//
// A guest is identified by its TLS certificate (package identity). Every guest is
// assumed to be hostile: none can harm another guest or the host through the daemon.
//
// The daemon needs no store. What a guest has is read from its VMM, from the aliases of
// its ports and from the names of a segment's TAP, so that a restarted daemon continues
// from there, even after a crash. Only the addresses that cool down are in a file.
//
// It works in the network namespace of its process. Starting guests, and what a guest
// does with a NIC, do not belong here.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/share"
)

const (
	stopTime     = time.Second     // for the requests under way when the daemon stops
	drainTime    = 2 * time.Second // for the guests to give their pools up then
	takeOverTime = 5 * time.Second // for the guests that run when the daemon starts
	scanInterval = time.Second     // between two scans for guests that came or went
)

// Config configures a daemon.
type Config struct {
	StateDir string       // certificate authority and guest records
	Quotas   quota.Config // tenants, limits, further guests
	Logger   *slog.Logger // required
	// Changes are the later contents of the configuration file. Nil: it stays.
	Changes <-chan Change
	// Build is the version of the binary and its git revision, as the status and the metrics name it.
	Build metrics.Build
	// Mounts is the mount namespace of the VMMs, for exports of volumes. "": that of this
	// process.
	Mounts share.Namespace

	// Ready, unless nil, is called once with the address when guests can connect.
	Ready func(net.Addr)
	// UnplugTimeout is how long a guest has to answer one of the three requests
	// to give a NIC up. 0: 10 s.
	UnplugTimeout time.Duration
}

type daemon struct {
	config      Config
	media       string // directory of media for libvirt, while they are inserted
	host        *guestrun.Host
	metrics     *metrics.Metrics
	launch      func(*guestrun.Guest) // starts its run
	since       time.Time
	logs        *guestlog.Logs
	credentials *credentials.Store
	api         *api.Handler
	stopping    atomic.Bool

	networks  atomic.Pointer[bridge.Filter]    // nil: none is needed yet
	problems  atomic.Pointer[[]status.Problem] // of forwarding, as last found; nil: not looked yet
	unwatched []watched                        // of derive, which has one caller at a time

	recovering sync.Mutex // held by recoverLeft

	scanned, announced beat // of watchGuests and followSegments

	current atomic.Pointer[quota.Config] // the present one; nil before derive

	mu       sync.Mutex
	reloaded status.Configuration
	tenants  map[string]*tenant.Tenant
	listen   string                     // address for guests, once there is one
	guests   map[string]*guestrun.Guest // the latest of each name, ended or not
}

// Serve runs the daemon until ctx ends, and then up to 5 s longer for the requests
// under way and the pools. It returns an error when it cannot start, and nil after
// ctx has ended. The pods' NICs stay when it stops.
func Serve(ctx context.Context, c Config) error {
	address := c.Quotas.Listen
	if !address.IsValid() || address.Addr().IsUnspecified() {
		return fmt.Errorf("listen on %q: want IP-ADDRESS:PORT, as the guests see it, such as %q", address, "10.200.0.1:7443")
	}
	c.UnplugTimeout = cmp.Or(c.UnplugTimeout, guestrun.DefaultUnplugTime)
	d, err := newDaemon(c)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

func (d *daemon) run(ctx context.Context) error {
	address := d.config.Quotas.Listen
	defer func() {
		for _, t := range d.allTenants() {
			t.Flush()
		}
	}()
	local, err := d.listenHTTP(ctx)
	if err != nil {
		return err
	}
	defer d.serveHTTP(local)()
	if err := os.RemoveAll(d.media); err != nil {
		return fmt.Errorf("remove media that an earlier daemon left: %w", err)
	}
	tlsConfig, err := serverTLS(d.config.StateDir, address.Addr())
	if err != nil {
		return err
	}
	listener, err := d.listenTCP(ctx, address)
	if err != nil {
		return fmt.Errorf("listen for guests: %w", err) // names the address
	}
	defer listener.Close()
	if err := d.derive(d.config.Quotas); err != nil {
		return err
	}
	if err := d.recover(ctx); err != nil {
		return err
	}
	defer func() { _ = d.host.Segments.Close() }()
	return d.serve(ctx, listener, tlsConfig)
}

func (d *daemon) serve(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	var running sync.WaitGroup
	defer running.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // of the guests' runs: longer than ctx
	defer end(guestrun.ErrStopping)
	serving, hangUp := context.WithCancel(life)
	defer hangUp()
	limited := d.api.Limit(listener)
	d.setAddress(listener.Addr())
	d.launch = func(g *guestrun.Guest) {
		var own context.Context
		own, g.Stop = context.WithCancelCause(life)
		running.Go(func() {
			g.Run(own)
			d.host.Panics.Try("leave segments", func() { d.leaveSegments(own, g) })
		})
	}
	server := d.api.NewServer(serving, tlsConfig)
	running.Go(func() { d.followSegments(ctx) })
	d.watchOpened(ctx, &running)
	running.Go(func() { d.watchPorts(ctx) })
	running.Go(func() { d.watchForwarding(ctx) })
	running.Go(func() { d.followChanges(ctx) })
	running.Go(func() { d.host.Ports.FollowLinks(ctx) })
	running.Go(func() { d.host.Ports.LoadChecksums() }) // ahead: who needs it says why it fails
	scanned := make(chan struct{})
	running.Go(func() { d.watchGuests(ctx, sync.OnceFunc(func() { close(scanned) })) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(limited) }()
	if d.config.Ready != nil {
		d.config.Ready(listener.Addr())
	}
	running.Go(func() { d.notifySystemd(ctx, scanned) })
	select {
	case err := <-failed:
		server.Stop()
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	d.stopping.Store(true)
	defer time.AfterFunc(stopTime, hangUp).Stop()        // requests that wait for a guest get an answer
	defer time.AfterFunc(2*stopTime, server.Stop).Stop() // clients that do not read it are disconnected
	server.GracefulStop()
	d.drainPools()
	return nil
}

// setAddress records where guests connect. The operator may ask for it already.
func (d *daemon) setAddress(a net.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen = a.String()
}

// address returns the address for guests, "" before there is one.
func (d *daemon) address() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.listen
}

func (d *daemon) drainPools() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, g := range d.all() {
		wg.Go(func() { d.host.Panics.Try("drain pool", func() { g.DrainPool(ctx) }) })
	}
}
