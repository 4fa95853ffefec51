// Package hostclient asks the host daemon on behalf of this guest: the connection, how
// long each request may take, and that a refusal is told as one.
//
// What is asked for belongs to the plugins, what a refusal means to package failure.
package hostclient

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"unnest/internal/cni/failure"
	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
)

// Deadlines of the requests. The daemon has its own, shorter ones, so that its
// answer arrives.
const (
	attachTime = 30 * time.Second
	detachTime = 55 * time.Second
	gcTime     = 2 * time.Minute
	queryTime  = 10 * time.Second
	// connectTime bounds the connection with its handshake: a host that is gone, or
	// a daemon that is stopped, is noticed after it.
	connectTime = 8 * time.Second
)

// Client is the host daemon, as this guest may call it. Errors of its requests
// wrap a *failure.Refusal.
type Client struct {
	conn   *grpc.ClientConn
	client hostdpb.HostDaemonClient
}

// Dial prepares the connection to the server, with the certificates in the
// directory dir; the first request makes it.
func Dial(server netip.AddrPort, dir string) (Client, error) {
	config, err := identity.ClientConfig(dir)
	if err != nil {
		return Client{}, failure.Invalid(fmt.Errorf("credentials: %w", err))
	}
	conn, err := grpc.NewClient(server.String(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTime}),
		grpc.WithNoProxy()) // the runtime's HTTPS_PROXY is for images
	if err != nil {
		return Client{}, fmt.Errorf("prepare connection to host daemon %s: %w", server, err)
	}
	return Client{conn: conn, client: hostdpb.NewHostDaemonClient(conn)}, nil
}

// Close ends the connection.
func (c Client) Close() { _ = c.conn.Close() } // nothing is left to be told

// Attach asks for a NIC.
func (c Client) Attach(ctx context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	return do(ctx, c, attachTime, r, c.client.AttachNIC)
}

// Detach gives the NIC of an attachment back; there may be none.
func (c Client) Detach(ctx context.Context, container, iface string) error {
	_, err := do(ctx, c, detachTime, &hostdpb.DetachNICRequest{ContainerId: container, Interface: iface}, c.client.DetachNIC)
	return err
}

// Join asks for an endpoint of a segment.
func (c Client) Join(ctx context.Context, r *hostdpb.JoinSegmentRequest) (*hostdpb.Endpoint, error) {
	answer, err := do(ctx, c, attachTime, r, c.client.JoinSegment)
	return answer.GetEndpoint(), err
}

// Leave gives the endpoint of an attachment back; there may be none.
func (c Client) Leave(ctx context.Context, container, iface string) error {
	_, err := do(ctx, c, detachTime, &hostdpb.LeaveSegmentRequest{ContainerId: container, Interface: iface}, c.client.LeaveSegment)
	return err
}

// Check compares the host's side of an attachment with what the request says.
func (c Client) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	return do(ctx, c, queryTime, r, c.client.Check)
}

// GC gives everything of a network back but the attachments that are valid.
func (c Client) GC(ctx context.Context, network string, valid []types.GCAttachment) error {
	r := &hostdpb.GCRequest{Network: network}
	for _, a := range valid {
		r.Valid = append(r.Valid, &hostdpb.Attachment{ContainerId: a.ContainerID, Interface: a.IfName})
	}
	_, err := do(ctx, c, gcTime, r, c.client.GC)
	return err
}

// Status asks whether a NIC could be had, and, with allocate, an address.
func (c Client) Status(ctx context.Context, allocate bool) (*hostdpb.StatusResponse, error) {
	return do(ctx, c, queryTime, &hostdpb.StatusRequest{Allocate: allocate}, c.client.Status)
}

// do makes one request, and words a refusal for the reader of the runtime's log.
func do[R, A any](ctx context.Context, c Client, limit time.Duration, request R,
	call func(context.Context, R, ...grpc.CallOption) (A, error),
) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := call(ctx, request)
	if err != nil {
		err = &failure.Refusal{Status: status.Convert(err), Reached: c.conn.GetState() == connectivity.Ready}
	}
	return answer, err
}
