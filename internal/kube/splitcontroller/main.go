package splitcontroller

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"unnest.io/unnest/internal/kube/splitpod"
)

const usage = `Splits pods that have the annotation unnest.io/split over nodes of one host.

  unnest-kube [flags]

Several may run in a cluster: all admit pods, and one looks after them. The webhook's certificate is in
the Secret unnest-split-webhook. GET /readyz answers 200 once the API server trusts it.

`

// Main is the command unnest-kube. It runs until a signal and returns the exit code: 0 ended by a
// signal, 1 failed, 2 wrong usage.
func Main(ctx context.Context, args []string, stderr io.Writer) int {
	flags := flag.NewFlagSet("unnest-kube", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	o := Options{Log: slog.New(slog.NewTextHandler(stderr, nil))}
	flags.StringVar(&o.Namespace, "namespace", "unnest-system", "`NAMESPACE` of the Service, the Secret and the lease")
	flags.StringVar(&o.Host, "host", "", "`ADDRESS` of the webhook; empty: all")
	flags.IntVar(&o.Port, "port", 9443, "port of the webhook")
	flags.StringVar(&o.Health, "health", ":9481", "`ADDRESS:PORT` of /healthz and /readyz")
	flags.StringVar(&o.Metrics, "metrics", "0", "`ADDRESS:PORT` of /metrics, for Prometheus; 0: none")
	flags.StringVar(&o.Span, "span", "host", "what connects the fractions of a pod: host, their nodes' `SPAN`, or network, tunnels between any nodes")
	encryption := flags.String("encryption", "none", "of tunnels between nodes: none or `wireguard`, as splitPods.encryption of the chart")
	kubeconfig := flags.String("kubeconfig", "", "`FILE` with the API server and credentials; empty: those of the pod")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(stderr, "arguments %q: want none; unnest-kube -help shows the usage\n", flags.Args())
		return 2
	}
	if o.Span != "host" && o.Span != splitpod.SpanNetwork {
		fmt.Fprintf(stderr, "-span %q: want host or %s\n", o.Span, splitpod.SpanNetwork)
		return 2
	}
	if o.Encrypted = *encryption == "wireguard"; !o.Encrypted && *encryption != "none" {
		fmt.Fprintf(stderr, "-encryption %q: want none or wireguard\n", *encryption)
		return 2
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := clientConfig(*kubeconfig)
	if err == nil {
		err = Run(ctx, config, o)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

func clientConfig(file string) (*rest.Config, error) {
	if file == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", file)
}
