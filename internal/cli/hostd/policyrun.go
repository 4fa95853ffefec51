package hostd

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"k8s.io/client-go/tools/clientcmd"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/kube/policyclient"
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
certificate; the policies that are in force stay.`,
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
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the cluster and the credentials for it (default: $KUBECONFIG, else ~/.kube/config, else those of the pod)")
	cmd.Flags().StringVar(&o.context, "context", "", "`context` of the kubeconfig (default: its current one)")
	cmd.Flags().StringVar(&o.server, "server", "", "`address:port` of the host daemon")
	cmd.Flags().StringVar(&o.credentials, "credentials", "", "`directory` of \"unnest hostd policy enroll\"")
	cmd.Flags().StringVar(&o.http, "http", "", "`address:port` of GET /healthz, which answers 200 while the policies are in force (default: none)")
	return cmd
}

func (o policyRunOptions) run(ctx context.Context) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context}).ClientConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	tls, err := identity.ClientConfig(o.credentials)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+o.server, grpc.WithTransportCredentials(credentials.NewTLS(tls)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 2 * time.Minute, Timeout: 20 * time.Second}))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", o.server, err)
	}
	defer conn.Close()
	o.Streams = o.Streams.Unwatched()
	log, _ := o.logger()
	daemon := newPolicyHealth(hostdpb.NewHostPolicyClient(conn))
	if o.http != "" {
		stop, err := daemon.serve(ctx, o.http)
		if err != nil {
			return err
		}
		defer stop()
	}
	return policyclient.Run(ctx, config, daemon, log)
}
