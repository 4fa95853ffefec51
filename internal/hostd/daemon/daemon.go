// Package daemon runs on the host and serves its guests: it gives a guest a NIC for each
// of its pods (BrFusion: Bacou et al. 2019, §3), an endpoint of a segment for each
// fraction of a pod that spans guests (Hostlo, §4), and the pods' volumes and shared
// memory (§4.3). It connects the packages that decide with those that act:
//
//   - policy: what a tenant may have; ipam: which address; hotplug: which slot, and when;
//   - segments, shares, and this package's nics: what is made on the host and in the VMM;
//   - status, metrics: what the operator sees.
//
// admission.go decides whether a guest gets a NIC. guest.go has the goroutine that owns
// everything of one guest.
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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/metrics"
	"unnest/internal/hostd/policy"
	"unnest/internal/hostd/segments"
	"unnest/internal/hostd/shares"
	"unnest/internal/hostd/status"
	"unnest/internal/netdev/bridge"
	"unnest/internal/netdev/share"
	"unnest/internal/vmm"
)

const (
	// requestTime bounds every request, whatever the guest asked for. It leaves
	// room for all tries of an unplug.
	requestTime   = 50 * time.Second
	handshakeTime = 5 * time.Second // of TCP and TLS
	stopTime      = time.Second     // for the requests under way when the daemon stops
	drainTime     = 2 * time.Second // for the guests to give their pools up then
	idleTime      = 5 * time.Minute // of a connection
	maxRequest    = 64 << 10        // bytes: a GC names all pods of a node
	maxMetadata   = 16 << 10        // bytes of a request's headers; gRPC's default is 16 MiB
	flowWindow    = 64 << 10        // bytes a client may send ahead, per stream; fixed, else gRPC lets it grow
	maxStreams    = 64              // concurrent requests on one connection
	pingInterval  = time.Minute     // of a silent connection; one without an answer is closed
	pingTime      = 20 * time.Second
	takeOverTime  = 5 * time.Second // for the guests that run when the daemon starts
	scanInterval  = time.Second     // between two scans for guests that came or went
)

// Why a guest's run was ended.
var (
	errStopping = errors.New("the host daemon is stopping")
	errChanged  = errors.New("the guest was restarted")
	errRemoved  = errors.New("the guest's record was removed")
)

// Config configures a daemon.
type Config struct {
	StateDir string        // certificate authority and guest records
	Policy   policy.Policy // tenants, limits, further guests
	Logger   *slog.Logger  // required
	// Changes are the later contents of the configuration file. Nil: it stays.
	Changes <-chan Change
	// Build is the version of the binary and its git revision, for the metrics.
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
	hostdpb.UnimplementedHostDaemonServer
	hostdpb.UnimplementedHostPolicyServer
	config   Config
	media    string // directory of media for libvirt, while they are inserted
	host     *host
	metrics  *metrics.Metrics
	launch   func(*guest) // starts its run
	since    time.Time
	logs     *guestLogs
	expiries *expiries
	serving  context.Context // of requests; ends before the guests' runs
	stopping atomic.Bool

	recovering sync.Mutex // held by recoverLeft

	scanned, announced beat // of watchGuests and followSegments

	current atomic.Pointer[policy.Policy] // nil: config.Policy

	mu       sync.Mutex
	reloaded status.Configuration
	tenants  map[string]*tenant
	listen   string            // address for guests, once there is one
	served   *limitedListener  // there
	guests   map[string]*guest // the latest of each name, ended or not

	rates, renewals, refusals budgets // by guest: of requests, renewals and refused certificates
}

// host is what all guests of the host share.
type host struct {
	dial     func(context.Context, GuestRecord) (vmm.VMM, error)
	metrics  *metrics.Metrics
	panics   *slog.Logger
	ports    *ports
	networks atomic.Pointer[bridge.Filter] // nil: none is needed yet
	own      *ownNICs
	segments *segments.Registry
	shares   *shares.Registry
	// offer says what has to be in the drive of a guest with a medium in it.
	offer func(r GuestRecord, label string) (offer, error)
}

// Serve runs the daemon until ctx ends, and then up to 5 s longer for the requests
// under way and the pools. It returns an error when it cannot start, and nil after
// ctx has ended. The pods' NICs stay when it stops.
func Serve(ctx context.Context, c Config) error {
	address := c.Policy.Listen
	if !address.IsValid() || address.Addr().IsUnspecified() {
		return fmt.Errorf("listen on %q: want IP-ADDRESS:PORT, as the guests see it, such as %q", address, "10.200.0.1:7443")
	}
	if c.UnplugTimeout == 0 {
		c.UnplugTimeout = defaultUnplugTime
	}
	if err := checkPolling(c.Policy); err != nil {
		return err
	}
	d, err := newDaemon(c)
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range d.allTenants() {
			t.file.flush()
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
	tlsConfig, err := serverTLS(c.StateDir, address.Addr())
	if err != nil {
		return err
	}
	listener, err := d.listenTCP(ctx, address)
	if err != nil {
		return fmt.Errorf("listen for guests: %w", err) // names the address
	}
	defer listener.Close()
	if err := d.buildNetworks(); err != nil {
		return err
	}
	if _, err := d.host.ports.policies.configure(d.policy().Tenants); err != nil {
		return err
	}
	d.warnOfConfiguration()
	if err := d.recover(ctx); err != nil {
		return err
	}
	defer func() { _ = d.host.segments.Close() }()
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
	m := metrics.New()
	owner, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, err
	}
	media, err := mediaDir(c.StateDir)
	if err != nil {
		return nil, err
	}
	d := &daemon{
		config: c, media: media, metrics: m, since: time.Now(), reloaded: status.Configuration{Loaded: time.Now()}, expiries: newExpiries(), logs: &guestLogs{base: c.Logger, logs: map[string]*slog.Logger{}},
		tenants: map[string]*tenant{}, guests: map[string]*guest{},
		host: &host{dial: dialVMM(media), metrics: m, panics: newLimitedLog(c.Logger), ports: newPorts(c.Logger), segments: segments.New(c.Logger), shares: shares.New(c.Logger, owner, c.Mounts)},
	}
	d.host.own = &ownNICs{ports: d.host.ports, found: map[string]ownNIC{}}
	d.host.offer = d.offer
	d.host.ports.policies = newPodPolicies(owner, c.Logger)
	m.Read(reporter{d})
	m.Built(c.Build)
	for _, t := range c.Policy.Tenants {
		made, err := newTenant(t, c.StateDir, c.Logger, d.host.try)
		if err != nil {
			return nil, err
		}
		d.tenants[t.Name] = made
	}
	return d, nil
}

// buildNetworks creates the bridges that have gateways in the policy, and separates the
// tenants' bridges. They stay when the daemon ends, because the pods' NICs are on them.
func (d *daemon) buildNetworks() error {
	all := networks(d.policy())
	if all == nil {
		return nil
	}
	_, err := d.openNetworks(all)
	return err
}

func (d *daemon) openNetworks(all []bridge.Network) (*bridge.Filter, error) {
	f, err := bridge.Open(bridge.Tenants)
	if err != nil {
		return nil, err
	}
	if err := f.Ensure(all); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	d.host.networks.Store(f)
	return f, nil
}

func (d *daemon) serve(ctx context.Context, listener net.Listener, tlsConfig *tls.Config) error {
	var running sync.WaitGroup
	defer running.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // of the guests' runs: longer than ctx
	defer end(errStopping)
	serving, hangUp := context.WithCancel(life)
	defer hangUp()
	d.serving = serving
	limited := newLimitedListener(listener, d.refuseConnection)
	d.setListener(limited)
	d.launch = func(g *guest) {
		var own context.Context
		own, g.stop = context.WithCancelCause(life)
		running.Go(func() {
			g.run(own)
			d.host.try("leave segments", func() { d.leaveSegments(own, g) })
		})
	}
	server := grpc.NewServer(
		grpc.Creds(guestCredentials{credentials.NewTLS(tlsConfig), d, tlsConfig.ClientCAs}),
		grpc.UnaryInterceptor(d.authenticate),
		grpc.StreamInterceptor(d.authenticatePolicy),
		grpc.ConnectionTimeout(handshakeTime),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTime, Time: pingInterval, Timeout: pingTime}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval}),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.InitialWindowSize(flowWindow),
		grpc.InitialConnWindowSize(flowWindow),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.WaitForHandlers(true),
	)
	hostdpb.RegisterHostDaemonServer(server, d)
	hostdpb.RegisterHostPolicyServer(server, d)
	running.Go(func() { d.followSegments(ctx) })
	opened := d.host.networks.Load() // a reload has its own watched
	running.Go(func() { d.watchFilters(ctx, opened) })
	if t := d.host.ports.policies.filter(); t != nil { // likewise
		running.Go(func() { d.watchFilter(ctx, metrics.Isolation, t.Watch) })
	}
	running.Go(func() { d.followChanges(ctx) })
	running.Go(func() { d.host.ports.followLinks(ctx) })
	running.Go(func() { _, _ = d.host.ports.checksums.load() }) // ahead: who needs it says why it fails
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

// setListener records where guests connect. The operator may ask for it already.
func (d *daemon) setListener(l *limitedListener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listen, d.served = l.Addr().String(), l
}

func (d *daemon) listener() *limitedListener {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.served
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
		wg.Go(func() { d.host.try("drain pool", func() { g.drainPool(ctx) }) })
	}
}
