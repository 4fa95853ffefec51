// Package cluster is the command "unnest cluster": a Kubernetes cluster for people and tests,
// with guests as nodes.
package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/testbed/cluster"
)

// NewCmd returns the command with its subcommands.
func NewCmd(streams terminal.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Start and remove a Kubernetes cluster with guests as nodes",
		Long: `Start and remove a Kubernetes cluster on this machine. Its nodes are guests, and its
pods have a NIC of their own (BrFusion). etcd, the API server, the controller manager
and the scheduler run in a network namespace of the cluster. "make kubernetes" builds
the programs that it needs.`,
		Example: `  unnest cluster up
  export KUBECONFIG=$PWD/kubeconfig
  unnest cluster kubeconfig >$KUBECONFIG
  bin/kubernetes/kubectl get nodes
  unnest cluster down`,
	}
	cmd.AddCommand(newUpCmd(streams), newDownCmd(streams), newKubeconfigCmd(streams), newLoadCmd(streams), newStatusCmd(streams), newRepairCmd(streams), newForwardCmd())
	return cmd
}

func newDownCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster and everything in it",
		Args:  usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			removed, err := cluster.Down(cmd.Context())
			switch {
			case err != nil:
				return err
			case removed:
				fmt.Fprintln(streams.Err, "the cluster is down")
			default:
				fmt.Fprintln(streams.Err, "no cluster is up")
			}
			return nil
		},
	}
}

func newKubeconfigCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the credentials of the cluster's administrator",
		Long: `Print the credentials of the cluster's administrator, as kubectl and other clients
read them. They work on this machine until the cluster is down.`,
		Args: usage.Args(),
		RunE: func(*cobra.Command, []string) error {
			c, err := cluster.View()
			if err != nil {
				return err
			}
			content, err := os.ReadFile(c.Kubeconfig())
			if err == nil {
				_, err = streams.Out.Write(content)
			}
			return err
		},
	}
}

func newLoadCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "load ARCHIVE...",
		Short: "Give every node the container images of archives",
		Long: `Give every node the container images of archives: OCI archives, or those of "docker
save". Pods find such an image by its name, unless they have imagePullPolicy Always.`,
		Example: `  unnest cluster load bin/images/unnest-cni.tar`,
		Args:    usage.Some("ARCHIVE"),
		RunE: func(cmd *cobra.Command, archives []string) error {
			c, err := cluster.View()
			if err != nil {
				return err
			}
			for _, path := range archives {
				if err := c.Load(cmd.Context(), func() (io.ReadCloser, error) { return os.Open(path) }); err != nil {
					return err
				}
				fmt.Fprintf(streams.Err, "every node has the images of %s\n", path)
			}
			return nil
		},
	}
}

func newStatusCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show the control plane and the nodes",
		Args:  usage.Args(),
		RunE:  func(cmd *cobra.Command, _ []string) error { return status(cmd.Context(), streams) },
	}
}

func newRepairCmd(streams terminal.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "repair",
		Short: "Start again the parts that have ended",
		Args:  usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			started, err := cluster.Repair(cmd.Context())
			for _, name := range started {
				fmt.Fprintf(streams.Err, "%s runs again\n", name)
			}
			if err == nil && len(started) == 0 {
				fmt.Fprintln(streams.Err, "all parts run")
			}
			return err
		},
	}
}

// enforced says which NetworkPolicies are in force while all parts run.
const enforced = "enforced at the NICs of pods; not for pods with the RuntimeClass bridge"

// status prints the components, and the nodes as the API server knows them.
func status(ctx context.Context, streams terminal.Streams) error {
	c, err := cluster.View()
	if err != nil {
		return err
	}
	names, health := c.Health(ctx)
	var text strings.Builder
	ended := false
	line := func(name, well string, err error) {
		if err != nil {
			well, ended = err.Error(), true
		}
		fmt.Fprintf(&text, "%-24s %s\n", name, well)
	}
	for _, name := range names {
		line(name, "ready", health[name])
	}
	err = c.Policies(ctx)
	if err != nil {
		err = fmt.Errorf("NOT enforced: %w", err)
	}
	line("NetworkPolicies", enforced, err)
	line("addresses", c.IPFamilies(), nil)
	if _, err := io.WriteString(streams.Out, text.String()); err != nil {
		return err
	}
	if ended {
		fmt.Fprintln(streams.Err, "warning: a part has ended: `unnest cluster repair` starts it again")
	}
	nodes, err := c.Kubectl(ctx, "get", "nodes", "--output=wide", "--request-timeout=10s")
	if err != nil {
		return err
	}
	said, err := c.Kubectl(ctx, "get", "nodes", policiesOfNodes, "--request-timeout=10s")
	if err == nil {
		_, err = fmt.Fprintf(streams.Out, "\n%s%s", nodes, said)
	}
	return err
}

// policiesOfNodes has kubectl print what the DaemonSet, if there is one, says of NetworkPolicies on each node.
const policiesOfNodes = `--output=go-template={{range .items}}{{$node := .metadata.name}}{{range .status.conditions}}` +
	`{{if eq .type "UnnestNetworkPoliciesEnforced"}}{{$node}}: {{.message}}{{"\n"}}{{end}}{{end}}{{end}}`

// newForwardCmd returns the command of the process that package cluster starts next to the
// API server.
func newForwardCmd() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.ForwardCommand[1] + " DIRECTORY",
		Short:  "Pass connections on to the API server",
		Hidden: true,
		Args:   usage.Args("DIRECTORY"),
		RunE:   func(cmd *cobra.Command, _ []string) error { return cluster.Forward(cmd.Context()) },
	}
}
