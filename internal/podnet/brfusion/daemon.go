package brfusion

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/identity"
	"unnest/internal/podnet/netconf"
)

// Deadlines of the requests to the host daemon. The daemon has its own, shorter
// ones, so that its answer arrives.
const (
	attachTime = 30 * time.Second
	detachTime = 55 * time.Second
	gcTime     = 2 * time.Minute
	queryTime  = 10 * time.Second
	// connectTime bounds the connection with its handshake: a host that is gone, or
	// a daemon that is stopped, is noticed after it.
	connectTime = 8 * time.Second
)

// daemon is the host daemon, as this guest may call it.
type daemon struct {
	conn   *grpc.ClientConn
	client hostdpb.HostDaemonClient
}

// dial prepares the connection; the first request makes it.
func dial(c netconf.BrFusion) (daemon, error) {
	config, err := identity.ClientConfig(c.Credentials)
	if err != nil {
		return daemon{}, invalid(fmt.Errorf("credentials: %w", err))
	}
	conn, err := grpc.NewClient(c.Server.String(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTime}),
		grpc.WithNoProxy()) // the runtime's HTTPS_PROXY is for images
	if err != nil {
		return daemon{}, fmt.Errorf("prepare connection to host daemon %s: %w", c.Server, err)
	}
	return daemon{conn: conn, client: hostdpb.NewHostDaemonClient(conn)}, nil
}

func (d daemon) close() { _ = d.conn.Close() } // nothing is left to be told

func (d daemon) attach(ctx context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	answer, err := d.client.AttachNIC(ctx, r)
	return answer, d.explain(err)
}

func (d daemon) detach(ctx context.Context, container, iface string) error {
	ctx, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	_, err := d.client.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: container, Interface: iface})
	return d.explain(err)
}

func (d daemon) check(ctx context.Context, r *hostdpb.CheckRequest) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	_, err := d.client.Check(ctx, r)
	return d.explain(err)
}

func (d daemon) gc(ctx context.Context, r *hostdpb.GCRequest) error {
	ctx, cancel := context.WithTimeout(ctx, gcTime)
	defer cancel()
	_, err := d.client.GC(ctx, r)
	return d.explain(err)
}

func (d daemon) status(ctx context.Context, allocate bool) (*hostdpb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	answer, err := d.client.Status(ctx, &hostdpb.StatusRequest{Allocate: allocate})
	return answer, d.explain(err)
}

// explain words a refusal for the reader of the runtime's log.
func (d daemon) explain(err error) error {
	if err == nil {
		return nil
	}
	return &refusal{status: status.Convert(err), reached: d.conn.GetState() == connectivity.Ready}
}

// request is what an ADD asks for, but for the addresses.
func request(c netconf.BrFusion, args *skel.CmdArgs) *hostdpb.AttachNICRequest {
	r := &hostdpb.AttachNICRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Bridge: c.Bridge, Network: c.Name,
		Allocate: !c.IPAM.Delegated(), Cold: c.Cold, Dhcp: c.IPAM.Type == netconf.DHCP, Mtu: uint32(c.MTU),
	}
	if c.Mode == netconf.Trunk {
		r.Mode = hostdpb.Mode_MODE_TRUNK
	}
	if b := c.Bandwidth; b != (netconf.Bandwidth{}) {
		r.Bandwidth = &hostdpb.Bandwidth{
			IngressRate: b.IngressRate, IngressBurst: b.IngressBurst, EgressRate: b.EgressRate, EgressBurst: b.EgressBurst,
		}
	}
	return r
}
