// Package daemon is the daemon beside the VMM: it gives NICs to guests that ask
// for them, one for each pod (BrFusion: Bacou et al. 2019, §3), out of a pool of
// NICs plugged ahead, or as VLANs of one NIC; and endpoints of segments to guests
// that run one pod together (Hostlo, §4). A guest is who its TLS certificate
// says it is (package identity), and gets what the policy of its tenant allows
// (package policy): every guest is taken for hostile, and none can harm another
// or the host through the daemon.
//
// Nothing needs to be kept: what a guest has is read from its VMM and from the
// aliases of its ports, or the names of a segment's TAP, so that a daemon that
// starts anew, even after a crash, goes on from there. Only the addresses that cool down are in a file.
//
// It works in the network namespace of its process. Starting guests and what a
// guest does with a NIC do not belong here; deciding which NIC goes where belongs
// to hotplug, which address to ipam, what is allowed to policy, what becomes of a
// segment's frames to hostlo.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/bridge"
	"unnest/internal/vmm/qemu"
)

const (
	// requestTime bounds every request, whatever the guest asked for. It leaves
	// room for all tries of an unplug.
	requestTime   = 50 * time.Second
	handshakeTime = 5 * time.Second // of TCP and TLS
	stopTime      = time.Second     // for the requests under way when the daemon is to stop
	drainTime     = 2 * time.Second // for the guests to give their pools up then
	idleTime      = 5 * time.Minute // of a connection
	maxRequest    = 64 << 10        // bytes: a GC names all pods of a node
	maxStreams    = 64              // requests at a time on one connection
	takeOverTime  = 5 * time.Second // for the guests that are there at the start
	lookTime      = time.Second     // between two looks for guests that came or went
	connections   = 32              // with one address, unless a tenant has more
)

// Why a guest's run was ended.
var (
	errStopping  = errors.New("the host daemon is stopping")
	errChanged   = errors.New("the guest has been started anew")
	errForgotten = errors.New("the guest has no record any more")
)

// Config is what a daemon needs to know.
type Config struct {
	StateDir string        // certificate authority and guest records
	Policy   policy.Policy // tenants, limits, further guests
	Logger   *slog.Logger  // required

	// Ready, unless nil, is called once with the address when guests can call.
	Ready func(net.Addr)
	// UnplugTimeout is how long a guest has to answer one of the three requests
	// to give a NIC up. 0: 10 s.
	UnplugTimeout time.Duration
}

// daemon serves the guests of one host.
type daemon struct {
	hostdpb.UnimplementedHostDaemonServer
	config   Config
	host     *host
	metrics  *metrics
	tenants  map[string]*tenant
	launch   func(*guest) // starts its run
	since    time.Time
	listen   string
	refusals few
	serving  context.Context // of requests; it ends before the guests' runs
	stopping atomic.Bool

	mu     sync.Mutex
	guests map[string]*guest // the latest of each name, ended or not
	rates  map[string]*rate.Limiter
}

// Serve runs the daemon until ctx ends, and then up to 5 s more for the requests
// under way and the pools. It returns an error when it cannot begin, and nil after
// ctx has ended. The pods' NICs stay when it stops.
func Serve(ctx context.Context, c Config) error {
	address := c.Policy.Listen
	if !address.IsValid() || address.Addr().IsUnspecified() {
		return fmt.Errorf("listen on %q: want IP-ADDRESS:PORT, as the guests see it, such as %q", address, "10.200.0.1:7443")
	}
	if c.UnplugTimeout == 0 {
		c.UnplugTimeout = defaultUnplugTime
	}
	d, err := newDaemon(c)
	if err != nil {
		return err
	}
	local, err := d.listenHTTP(ctx)
	if err != nil {
		return err
	}
	defer d.serveHTTP(local)()
	if err := d.buildNetworks(); err != nil {
		return err
	}
	if err := d.recoverSegments(ctx); err != nil {
		return err
	}
	defer func() { _ = d.host.segments.letGo() }()
	d.recoverShares(d.records(), func(r GuestRecord) (int, error) { return qemu.PID(ctx, r.QMP) })
	tlsConfig, err := serverTLS(c.StateDir, address.Addr())
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err != nil {
		return fmt.Errorf("listen: %w", err) // names the address
	}
	return d.serve(ctx, listener, tlsConfig)
}

func serverTLS(stateDir string, ip netip.Addr) (*tls.Config, error) {
	authority, err := identity.OpenAuthority(stateDir)
	if err != nil {
		return nil, err
	}
	return authority.ServerConfig(ip.AsSlice())
}

func newDaemon(c Config) (*daemon, error) {
	m := newMetrics()
	d := &daemon{
		config: c, metrics: m, since: time.Now(), refusals: newFew(),
		tenants: map[string]*tenant{}, guests: map[string]*guest{}, rates: map[string]*rate.Limiter{},
		host: &host{log: c.Logger, metrics: m, segments: newSegments(c.Logger, createLoopback), shares: newShares(c.Logger)},
	}
	m.registry.MustRegister(newLevels(d))
	for _, t := range c.Policy.Tenants {
		made, err := newTenant(t, c.StateDir)
		if err != nil {
			return nil, err
		}
		d.tenants[t.Name] = made
	}
	return d, nil
}

// buildNetworks makes the bridges that the policy says are ours to make, and keeps
// all tenants' apart. They stay when the daemon ends: the pods' NICs are on them.
// For a single bridge that is the operator's there is nothing to do.
func (d *daemon) buildNetworks() error {
	var networks []bridge.Network
	ours := len(d.config.Policy.Tenants) > 1
	for _, t := range d.config.Policy.Tenants {
		ours = ours || len(t.Gateways) > 0
		networks = append(networks, bridge.Network{Bridge: t.Bridge, MTU: t.MTU, Gateways: t.Gateways, NAT: t.NAT})
	}
	if !ours {
		return nil
	}
	return bridge.Ensure(networks)
}

// connectionLimit is the most of all tenants': which a connection is of is known
// only after its handshake.
func (d *daemon) connectionLimit() int {
	most := connections
	for _, t := range d.tenants {
		most = max(most, t.Limits.Connections)
	}
	return most
}

func (d *daemon) serve(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	var running sync.WaitGroup
	defer running.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // of the guests' runs: longer than ctx
	defer end(errStopping)
	serving, hangUp := context.WithCancel(life)
	defer hangUp()
	d.serving, d.listen = serving, listener.Addr().String()
	d.launch = func(g *guest) {
		var own context.Context
		own, g.stop = context.WithCancelCause(life)
		running.Go(func() {
			g.run(own)
			d.depart(own, g)
		})
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(tlsConfig)),
		grpc.UnaryInterceptor(d.authenticate),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime}),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true),
	)
	hostdpb.RegisterHostDaemonServer(server, d)
	running.Go(func() { d.followSegments(ctx) })
	looked := make(chan struct{})
	running.Go(func() { d.follow(ctx, sync.OnceFunc(func() { close(looked) })) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(newGate(listener, d.connectionLimit(), d.refuseConnection)) }()
	if d.config.Ready != nil {
		d.config.Ready(listener.Addr())
	}
	running.Go(func() { d.announce(ctx, looked) })
	select {
	case err := <-failed:
		server.Stop()
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	d.stopping.Store(true)
	defer time.AfterFunc(stopTime, hangUp).Stop()        // who waits for a guest gets an answer
	defer time.AfterFunc(2*stopTime, server.Stop).Stop() // who does not read it is left
	server.GracefulStop()
	d.drain()
	return nil
}

// announce tells the service manager that the daemon is ready: it has taken over the
// guests that were there, or has waited for them for long enough.
func (d *daemon) announce(ctx context.Context, looked <-chan struct{}) {
	select {
	case <-looked:
	case <-time.After(takeOverTime):
	case <-ctx.Done():
		return
	}
	if _, err := systemd.SdNotify(false, systemd.SdNotifyReady); err != nil {
		d.config.Logger.Warn("tell systemd", "error", err)
	}
}

func (d *daemon) refuseConnection(from net.Addr) {
	d.metrics.refused.Inc()
	d.refusals.log(d.config.Logger, "refuse connection: the address has too many", "peer", from)
}

// drain gives all pools up.
func (d *daemon) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, g := range d.all() {
		wg.Go(func() { g.drain(ctx) })
	}
}

// guest returns the guest that calls when it takes requests, and connects to its
// VMM if need be.
func (d *daemon) guest(ctx context.Context, c client) (*guest, error) {
	for {
		g, fresh := d.lookup(c)
		if !g.record.same(c.record) { // started anew, or with a new certificate
			g.stop(errChanged)
			select {
			case <-g.done: // QEMU takes one connection at a time
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		select {
		case <-g.ready:
			return g, nil
		case <-g.done:
			if fresh {
				return nil, g.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// lookup returns the guest of the record's name; a fresh one when there is none
// that runs.
func (d *daemon) lookup(c client) (g *guest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[c.record.Name]; g != nil {
		select {
		case <-g.done:
		default:
			return g, false
		}
	}
	g = newGuest(c.record, c.tenant, d.host, d.config.UnplugTimeout, d.config.Logger)
	d.guests[c.record.Name] = g
	d.launch(g)
	return g, true
}
