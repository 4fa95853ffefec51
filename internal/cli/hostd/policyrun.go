package hostd

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/kube/policyclient"
	"unnest.io/unnest/internal/measure/pods"
)

type policyRunOptions struct {
	*Options
	kubeconfig, context, server, credentials, http string
}

func newPolicyRunCmd(opts *Options) *cobra.Command {
	o := policyRunOptions{Options: opts}
	cmd := &cobra.Command{
		Use:   "run --server ADDRESS:PORT --credentials DIR",
		Short: "Enforce the network policies of a Kubernetes cluster on this host",
		Long: `Watch the network policies, pods and namespaces of a Kubernetes cluster, and have a host
daemon filter the NICs of the pods. It needs the right to list and watch these three, and
the credentials of "unnest hostd policy enroll". Run one for each host of the cluster's
nodes, outside of the nodes. It ends on SIGINT or SIGTERM, and if the daemon refuses its
certificate or the certificate has expired; the policies that are in force stay.`,
		Example: `  unnest hostd policy run --server 10.201.0.1:7443 \
    --credentials /etc/unnest/policy --kubeconfig /etc/unnest/kubeconfig`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.server == "" || o.credentials == "" {
				return usage.Errorf("missing flags --server and --credentials: name the daemon, and the directory of \"unnest hostd policy enroll\"")
			}
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` with the cluster and the credentials for it (default: $KUBECONFIG, else ~/.kube/config, else those of the pod)")
	cmd.Flags().StringVar(&o.context, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)")
	cmd.Flags().StringVar(&o.server, "server", "", "`ADDRESS:PORT` of the host daemon")
	cmd.Flags().StringVar(&o.credentials, "credentials", "", "`DIR` of \"unnest hostd policy enroll\"")
	cmd.Flags().StringVar(&o.http, "http", "", "`ADDRESS:PORT` of GET /healthz, which answers 200 while the policies are in force (default: none)")
	return cmd
}

func (o policyRunOptions) run(ctx context.Context) error {
	config, err := pods.ReadConfig(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	tls, err := identity.ClientConfig(o.credentials)
	if err != nil {
		return err
	}
	conn, err := dialDaemon(o.server, credentials.NewTLS(tls))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", o.server, err)
	}
	defer conn.Close()
	o.Streams = o.Streams.Unwatched()
	log, _ := o.logger()
	daemon := newPolicyHealth(hostdpb.NewHostPolicyClient(conn), tls.Certificates[0].Leaf)
	if o.http != "" {
		stop, err := daemon.serve(ctx, o.http)
		if err != nil {
			return err
		}
		defer stop()
	}
	return policyclient.Run(ctx, config, daemon, log)
}

// dialDaemon prepares the connection to the daemon. HTTPS_PROXY is for other machines.
func dialDaemon(server string, c credentials.TransportCredentials) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+server, grpc.WithTransportCredentials(c), grpc.WithNoProxy(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}))
}

// policyHealth is a daemon that takes policies. It remembers whether the last stream of policies has
// been answered and still lasts.
type policyHealth struct {
	hostdpb.HostPolicyClient
	certificate *x509.Certificate // of this client
	mu          sync.Mutex
	err         error // nil: the policies are in force
}

func newPolicyHealth(c hostdpb.HostPolicyClient, certificate *x509.Certificate) *policyHealth {
	return &policyHealth{HostPolicyClient: c, certificate: certificate, err: errors.New("no policies have been sent yet")}
}

func (h *policyHealth) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// Apply opens a stream of policies. With a certificate that has expired there would be no answer, so Apply refuses it, as the
// daemon refuses others.
func (h *policyHealth) Apply(ctx context.Context, options ...grpc.CallOption) (hostdpb.HostPolicy_ApplyClient, error) {
	if time.Now().After(h.certificate.NotAfter) {
		return nil, grpcstatus.Error(codes.Unauthenticated, identity.Expired(h.certificate).Error())
	}
	stream, err := h.HostPolicyClient.Apply(ctx, options...)
	if err != nil {
		h.set(err)
	}
	return policyStream{stream, h}, err
}

type policyStream struct {
	hostdpb.HostPolicy_ApplyClient
	health *policyHealth
}

// Recv waits for an answer of the daemon.
func (s policyStream) Recv() (*hostdpb.ApplyResponse, error) {
	r, err := s.HostPolicy_ApplyClient.Recv()
	s.health.set(err)
	return r, err
}

// serve answers GET /healthz at an address: 200 while the policies are in force, else 503 with the
// cause. It ends with ctx.
func (h *policyHealth) serve(ctx context.Context, address string) (wait func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve --http: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err != nil {
			http.Error(w, h.err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "policies are in force")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	return func() {
		stop()
		_ = server.Close()
		served.Wait()
	}, nil
}
