// Package api serves the daemon's gRPC API: it accepts connections, says who calls, checks
// what a request says, and gives errors the codes that hostd.proto promises. What a request
// does to a guest does not belong here (package guestrun).
package api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/quota"
)

const (
	// requestTime bounds every request, whatever the guest asked for. It leaves
	// room for all tries of an unplug.
	requestTime   = 50 * time.Second
	handshakeTime = 5 * time.Second // of TCP and TLS
	idleTime      = 5 * time.Minute // of a connection
	maxRequest    = 64 << 10        // bytes: a GC names all pods of a node
	maxMetadata   = 16 << 10        // bytes of a request's headers; gRPC's default is 16 MiB
	flowWindow    = 64 << 10        // bytes a client may send ahead, per stream; fixed, else gRPC lets it grow
	maxStreams    = 64              // concurrent requests on one connection
	pingInterval  = time.Minute     // of a silent connection; one without an answer is closed
	pingTime      = 20 * time.Second
)

// Clients finds the guests that call.
type Clients interface {
	// Client returns the guest with a name. The error wraps ErrNoRecord if there is none.
	Client(name string) (Client, error)
	// Guest returns the run of a guest, once it takes requests.
	Guest(ctx context.Context, c Client) (*guestrun.Guest, error)
}

// Handler serves the requests of guests and of policy clients.
type Handler struct {
	hostdpb.UnimplementedHostDaemonServer
	hostdpb.UnimplementedHostPolicyServer
	Clients     Clients
	Credentials *credentials.Store
	Quotas      func() quota.Config // the present configuration
	Host        *guestrun.Host
	Version     string // of the binary, for guests
	Log         *slog.Logger
	Logs        *guestlog.Logs
	serving     context.Context // of requests; ends before the guests' runs

	mu       sync.Mutex
	served   *limitedListener    // nil: not yet
	attaches map[string]*budgets // of guests, by tenant

	arrivals                         arrivals
	holds, rates, renewals, refusals budgets // by guest: of requests that arrive and that count, renewals and refused certificates
}

// NewServer returns a server of the requests. Those under way end with serving.
func (h *Handler) NewServer(serving context.Context, tlsConfig *tls.Config) *grpc.Server {
	h.serving = serving
	server := grpc.NewServer(
		grpc.Creds(guestCredentials{grpccredentials.NewTLS(tlsConfig), h, tlsConfig.ClientCAs}),
		grpc.InTapHandle(h.arrive),
		grpc.UnaryInterceptor(h.authenticate),
		grpc.StreamInterceptor(h.authenticatePolicy),
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
	hostdpb.RegisterHostDaemonServer(server, h)
	hostdpb.RegisterHostPolicyServer(server, h)
	return server
}

// Limit bounds the connections that l accepts.
func (h *Handler) Limit(l net.Listener) net.Listener {
	limited := &limitedListener{Listener: l, refuse: h.refuseConnection, pending: map[string][]*limitedConn{}, count: map[string]int{}, open: map[*limitedConn]peerIdentity{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.served = limited
	return limited
}

func (h *Handler) listener() *limitedListener {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.served
}

// Forget forgets what a guest that is gone has asked for.
func (h *Handler) Forget(guest string) {
	for _, b := range []*budgets{&h.holds, &h.rates, &h.renewals, &h.refusals} {
		b.forget(guest)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, guests := range h.attaches {
		guests.forget(guest)
	}
}

// Connections returns how many connections with a certificate there are.
func (h *Handler) Connections() int { return len(h.listener().admitted()) }

// onGuest has the guest that calls serve a request, in one round trip to its run.
func onGuest[T any](ctx context.Context, h *Handler, f func(*guestrun.Guest) (T, error)) (T, error) {
	g, err := h.onMachine(ctx, caller(ctx))
	if err != nil {
		var none T
		return none, err
	}
	return f(g)
}

// onMachine returns the run of the client's guest, if the machine that calls is the guest.
func (h *Handler) onMachine(ctx context.Context, c Client) (*guestrun.Guest, error) {
	g, err := h.Clients.Guest(ctx, c)
	if err != nil {
		return nil, err
	}
	return g, g.CheckMachine(ctx, identity.Machine(ctx))
}
