package brfusion

import (
	"context"
	"fmt"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	statusTime = 10 * time.Second
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
		return daemon{}, types.NewError(types.ErrInvalidNetworkConfig, "credentials: "+err.Error(), "")
	}
	conn, err := grpc.NewClient(c.Server.String(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithNoProxy()) // the runtime's HTTPS_PROXY is for images
	if err != nil {
		return daemon{}, fmt.Errorf("prepare connection to host daemon %s: %w", c.Server, err)
	}
	return daemon{conn: conn, client: hostdpb.NewHostDaemonClient(conn)}, nil
}

func (d daemon) close() { _ = d.conn.Close() } // nothing is left to be told

func (d daemon) attach(ctx context.Context, args *skel.CmdArgs, bridge string) (*hostdpb.NIC, error) {
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	r, err := d.client.AttachNIC(ctx, &hostdpb.AttachNICRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Bridge: bridge,
	})
	return r.GetNic(), explain(err)
}

func (d daemon) detach(ctx context.Context, args *skel.CmdArgs) error {
	ctx, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	_, err := d.client.DetachNIC(ctx, &hostdpb.DetachNICRequest{ContainerId: args.ContainerID, Interface: args.IfName})
	return explain(err)
}

func (d daemon) status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	_, err := d.client.Status(ctx, &hostdpb.StatusRequest{})
	return explain(err)
}

// explain words a refusal for the reader of the runtime's log.
func explain(err error) error {
	if err == nil {
		return nil
	}
	return &refusal{status: status.Convert(err)}
}

// refusal is the host daemon's answer, or that there was none.
type refusal struct{ status *status.Status }

func (r *refusal) Error() string {
	return fmt.Sprintf("host daemon: %s (%s)", r.status.Message(), r.status.Code())
}

// passing reports whether the same request may succeed later without anybody's
// doing.
func (r *refusal) passing() bool {
	switch r.status.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted, codes.Aborted:
		return true
	}
	return false
}
