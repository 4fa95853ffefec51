// Package hostd is the host daemon, beside the VMM: guests ask it for NICs of
// their own, one for each pod (Bacou et al. 2019, §3.1), and it plugs and unplugs
// them. It decides who may ask for what, and performs what package hotplug
// decides: TAPs on a bridge, commands to QEMU.
//
// The daemon keeps nothing on disk. QEMU knows what is plugged, and a TAP's alias
// whose it is; a daemon that starts anew, even after a crash, goes on from there.
//
// It works in the network namespace of its process, which is the lab's. Starting
// guests, making bridges and what a guest does with a NIC do not belong here.
package hostd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/identity"
)

const (
	// requestTime bounds every request, whatever the guest asked for. It leaves
	// room for all tries of an unplug.
	requestTime   = 50 * time.Second
	handshakeTime = 5 * time.Second // of TCP and TLS
	stopTime      = time.Second     // for the requests under way when the daemon is to stop
	idleTime      = 5 * time.Minute // of a connection
	maxRequest    = 16 << 10        // bytes
	maxStreams    = 64              // requests at a time on one connection
)

// Why a guest's run was ended.
var (
	errStopping = errors.New("the host daemon is stopping")
	errChanged  = errors.New("the guest has been started anew")
)

// Config is what a daemon needs to know.
type Config struct {
	StateDir string       // of the lab: certificate authority and guest records
	Listen   string       // ADDRESS:PORT, the address as the guests see it; port 0 for any
	Logger   *slog.Logger // required

	// Ready, unless nil, is called once with the address when guests can call.
	Ready func(net.Addr)
	// UnplugTimeout is how long a guest has to answer one of the three requests
	// to give a NIC up. 0: 10 s.
	UnplugTimeout time.Duration
}

// daemon serves the guests of one lab.
type daemon struct {
	hostdpb.UnimplementedHostDaemonServer
	config Config
	launch func(*guest) // starts its run

	mu     sync.Mutex
	guests map[string]*guest // the latest of each name, ended or not
}

// Serve runs the daemon until ctx ends, and then up to 3 s more for the requests
// under way. It returns an error when it cannot begin, and nil after ctx has
// ended. The guests' NICs stay when it stops.
func Serve(ctx context.Context, c Config) error {
	address, err := netip.ParseAddrPort(c.Listen)
	if err != nil || address.Addr().IsUnspecified() {
		return fmt.Errorf("listen on %q: want IP-ADDRESS:PORT, as the guests see it, such as %q", c.Listen, "10.200.0.1:7443")
	}
	authority, err := identity.OpenAuthority(c.StateDir)
	if err != nil {
		return err
	}
	tlsConfig, err := authority.ServerConfig(address.Addr().AsSlice())
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err) // names the address
	}
	if c.UnplugTimeout == 0 {
		c.UnplugTimeout = defaultUnplugTime
	}
	return serve(ctx, c, listener, tlsConfig)
}

func serve(ctx context.Context, c Config, listener net.Listener, tlsConfig *tls.Config) error {
	var running sync.WaitGroup
	defer running.Wait()
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // of the guests' runs: longer than ctx
	defer end(errStopping)
	d := &daemon{config: c, guests: map[string]*guest{}}
	d.launch = func(g *guest) {
		var own context.Context
		own, g.stop = context.WithCancelCause(life)
		running.Go(func() { g.run(own) })
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
	running.Go(func() { d.takeOver(ctx) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if c.Ready != nil {
		c.Ready(listener.Addr())
	}
	select {
	case err := <-failed:
		server.Stop()
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	defer time.AfterFunc(stopTime, func() { end(errStopping) }).Stop() // who waits for a guest gets an answer
	defer time.AfterFunc(2*stopTime, server.Stop).Stop()               // who does not read it is left
	server.GracefulStop()
	return nil
}

// takeOver connects to all guests, so that what an earlier daemon has left is
// mended without waiting for a request.
func (d *daemon) takeOver(ctx context.Context) {
	names, err := guestNames(d.config.StateDir)
	if err != nil {
		d.config.Logger.Warn("take over", "error", err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, name := range names {
		wg.Go(func() {
			r, err := readRecord(d.config.StateDir, name)
			if err == nil {
				_, err = d.guest(ctx, r)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRecord) {
				d.config.Logger.Info("take over", "guest", name, "error", err) // it may have ended, or only begin
			}
		})
	}
}

// guest returns the guest with the given record when it takes requests, and
// connects to its VMM if need be.
func (d *daemon) guest(ctx context.Context, r GuestRecord) (*guest, error) {
	for {
		g, fresh := d.lookup(r)
		if g.record != r { // started anew, or with a new certificate
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
func (d *daemon) lookup(r GuestRecord) (g *guest, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if g := d.guests[r.Name]; g != nil {
		select {
		case <-g.done:
		default:
			return g, false
		}
	}
	g = newGuest(r, d.config.UnplugTimeout, d.config.Logger)
	d.guests[r.Name] = g
	d.launch(g)
	return g, true
}
