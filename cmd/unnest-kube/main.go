// Command unnest-kube runs in a Kubernetes cluster: it admits pods that are to be split over nodes,
// and looks after their fractions.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"unnest.io/unnest/internal/cli/console"
	"unnest.io/unnest/internal/kube/splitcontroller"
	"unnest.io/unnest/internal/kube/splitpod"
)

const usage = `Splits pods that have the annotation unnest.io/split over nodes of one host.

  unnest-kube [flags]

Several may run in a cluster: all admit pods, and one looks after them. The
webhook's certificate is in the Secret unnest-split-webhook. GET /readyz answers
200 once the API server trusts it.

`

func main() { os.Exit(console.Main("unnest-kube", os.Stdout, os.Stderr, run)) }

// run runs until ctx ends.
func run(ctx context.Context, stdout io.Writer) error {
	flags := console.NewFlags("unnest-kube")
	o := splitcontroller.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flags.StringVar(&o.Namespace, "namespace", "unnest-system", "`NAMESPACE` of the Service, the Secret and the lease")
	flags.StringVar(&o.Host, "host", "", "`ADDRESS` of the webhook; empty: all")
	flags.IntVar(&o.Port, "port", 9443, "port of the webhook")
	flags.StringVar(&o.Health, "health", ":9481", "`ADDRESS:PORT` of /healthz and /readyz")
	flags.StringVar(&o.Metrics, "metrics", "0", "`ADDRESS:PORT` of /metrics, for Prometheus; 0: none")
	flags.StringVar(&o.Span, "span", "host", "what connects the fractions of a pod: host, their nodes' `SPAN`, or network, tunnels between any nodes")
	encryption := flags.String("encryption", "none", "of tunnels between nodes: none or `wireguard`, as splitPods.encryption of the chart")
	kubeconfig := flags.String("kubeconfig", "", "`FILE` with the API server and credentials; empty: those of the pod")
	if err := console.Parse(flags, os.Args[1:], usage, stdout); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: arguments %q: want none", console.ErrUsage, flags.Args())
	}
	if o.Span != "host" && o.Span != splitpod.SpanNetwork {
		return fmt.Errorf("%w: -span %q: want host or %s", console.ErrUsage, o.Span, splitpod.SpanNetwork)
	}
	if o.Encrypted = *encryption == "wireguard"; !o.Encrypted && *encryption != "none" {
		return fmt.Errorf("%w: -encryption %q: want none or wireguard", console.ErrUsage, *encryption)
	}
	config, err := clientConfig(*kubeconfig)
	if err != nil {
		return err
	}
	return splitcontroller.Run(ctx, config, o)
}

func clientConfig(file string) (*rest.Config, error) {
	if file == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", file)
}
