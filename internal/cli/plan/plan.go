// Package plan is the commands "unnest plan", which plans the pods of a trace on VMs, and
// "unnest plan merge" and "unnest plan bench" (Bacou et al., Nested Virtualization Without the
// Nest, ICPP 2019, §5.3.1). It reads flags and files, and runs the packages of internal/plan on
// all users. It neither plans nor words results.
package plan

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/plan/catalogue"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/trace"
)

// Options are the flags of the command.
type Options struct {
	Streams terminal.Streams

	Traces        []string // FORMAT:PATH
	At            string   // an instant, or FROM..TO; empty: the default of trace.Options
	Owner         string   // namespace, label=KEY or cluster; empty: see addFlags
	Kubeconfig    string   // of a cluster to read with kubectl; empty: none
	Context       string   // of the kubeconfig
	MaxBroken     int
	MaxContainers int
	Shard         string // I/N; empty: all users

	Catalogues     []string // names or files; empty: see addFlags
	Models         []string // of the catalogues; empty: all
	Term           string   // of prices; empty: on demand
	UnitPrices     string   // VCPU,GIB
	KubeReserved   string
	SystemReserved string // VCPU,MEMORY
	Daemons        string // VCPU,MEMORY,PODS
	Host           string // VCPU,MEMORY
	Plan           pack.Options

	Uses     []string // FORMAT:PATH, or FORMAT with Kubeconfig
	Headroom int      // percent

	Frontier   bool
	Links      string  // all, annotations, or a file
	HostloRun  string  // a run directory; empty: cuts have no price
	HostloCase string  // of that run; empty: all with figures
	LinkCPU    float64 // vCPUs that a link of weight 1 uses within a VM

	Replay     bool
	Minimum    time.Duration // shortest time that a VM is billed for
	Migrations int           // containers that may move at an event

	Explain   string // a user
	Manifests string // a directory
	VMs       string // a directory
	Requests  string // a directory
	Scheme    string // planner of the manifests
	Output    Output
}

// NewCmd returns the command with its subcommands. If runF is not nil, it runs in place of the
// command.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams, Scheme: "best", Links: linksAll, LinkCPU: defaultLinkCPU, Headroom: defaultHeadroom, Minimum: defaultMinimum, Migrations: defaultMigrations}
	cmd := &cobra.Command{
		Use:   "plan --trace FORMAT:PATH",
		Short: "Compute what pods cost on VMs, whole and split over several VMs",
		Long: `Compute what the pods of a cluster cost on VMs: whole, as Kubernetes places them,
and with the containers of a pod split over several VMs.

  unnest plan --trace FORMAT:PATH [flags]

FORMAT is one of ` + strings.Join(trace.Formats(), ", ") + `,
or generated:SCALE for random users like those of the Google trace of 2011. PATH is a
file, a directory, a glob, or - for standard input. Traces of one format are read
together.

Each user has VMs of their own. The plans are:

  kubernetes  whole pods, biggest first, on the VM with the most requested
              resources, else on the cheapest new VM
  resize      kubernetes, with each VM replaced by the cheapest model that holds its
              pods; nothing moves
  hostlo      kubernetes, with containers moved, smallest first, to the VMs that
              waste most
  spread      like kubernetes and hostlo, but a pod may go to several new VMs
  whole       the best packing found of whole pods
  best        the best packing found of containers
  bound       a lower bound of the cost of any plan`,
		Example: `  unnest plan --trace generated:1
  unnest plan --trace google2011:clusterdata-2011-2 --html plan.html
  kubectl get nodes,pods,pdb -A -o json | unnest plan --trace kubectl:-
  unnest plan --kubeconfig default
  unnest plan --trace kubectl:pods.json --catalogue m6i --kube-reserved eks
  unnest plan --trace kubectl:pods.json --explain default
  unnest plan --trace kubectl:pods.json --frontier --links links.csv --hostlo-run runs/hostlo
  unnest plan --trace google2011:clusterdata-2011-2 --replay --at 0..1h --migrations 20
  unnest plan --trace parquet:users --shard 0/8 --json -o 0.json`,
		Args: usage.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return runF(cmd.Context(), opts) },
	}
	opts.addFlags(cmd)
	cmd.AddCommand(newMergeCmd(streams), newBenchCmd(streams))
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Traces, "trace", nil, "read `FORMAT:PATH`; may be repeated")
	f.StringVar(&o.At, "at", "", "keep what ran at this `TIME` of the trace, such as 0 or 50m, or in FROM..TO (default: 0 for google2011 and google2019, else everything)")
	f.StringVar(&o.Owner, "owner", "", "who pays for VMs: `namespace|label=KEY|cluster` (default: cluster for kubectl, else the users of the trace)")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "read nodes, pods and disruption budgets with kubectl from the cluster of `FILE`, or of kubectl's default")
	f.StringVar(&o.Context, "context", "", "use this `CONTEXT` of --kubeconfig")
	f.IntVar(&o.MaxBroken, "max-broken", 0, "accept this many broken `LINES` (default: 100, or 1 in 1000 if that is more)")
	f.IntVar(&o.MaxContainers, "max-containers", 0, "stop above this many `CONTAINERS`, to limit memory (default 20 million)")
	f.StringVar(&o.Shard, "shard", "", "plan only part `I/N` of the users, with I from 0; unnest plan merge combines the parts")
	f.StringArrayVar(&o.Catalogues, "catalogue", nil, "take VM models from `NAME|FILE`: "+catalogue.Paper+" of the paper, a family of AWS such as m6i, of Google such as gcp-n2 or of Azure such as azure-dsv5, or a CSV file; may be repeated (default: bacou; with nodes, the families of their models)")
	f.StringVar(&o.Term, "price", "", "use the prices of the column price_`TERM` of catalogues, such as spot or savings_1y (default: on demand)")
	f.StringVar(&o.UnitPrices, "unit-prices", "", "for models of catalogue files without a price, and nodes that name no model: dollars for an hour of `VCPU,GIB`, such as 0.02,0.0025")
	f.StringSliceVar(&o.Models, "model", nil, "use only these `MODELS` of the catalogue (default: all)")
	f.Var(usage.Choice(&o.KubeReserved, "none", "gke", "eks", "aks"), "kube-reserved", "subtract what the kubelet reserves on each VM (default: none, as in the paper; with nodes, that of their provider)")
	f.StringVar(&o.SystemReserved, "system-reserved", "", "subtract `VCPU,MEMORY` from each VM, such as 0.1,200Mi")
	f.StringVar(&o.Daemons, "daemonsets", "", "subtract `VCPU,MEMORY,PODS` from each VM, such as 0.3,500Mi,4")
	f.StringVar(&o.Host, "host", "", "limit physical hosts to `VCPU,MEMORY`, such as 96,384Gi; a pod stays on one host (default: no limit)")
	o.addChoices(cmd)
	f.StringVar(&o.Explain, "explain", "", "show where the pods of `USER` go, and what each move saves")
	f.StringVar(&o.Manifests, "write-manifests", "", "write a YAML file for each split pod to the new or empty `DIR`")
	f.StringVar(&o.VMs, "write-vms", "", "write the VMs for a cluster with nodes to the new or empty `DIR`: for Karpenter, eksctl and Terraform, and where each pod goes")
	f.Var(usage.Choice(&o.Scheme, "best", "spread", "hostlo", "whole"), "scheme", "plan that --write-manifests and --write-vms write")
	o.addFrontier(cmd)
	o.addReplay(cmd)
	o.addUse(cmd)
	o.Output.addFlags(cmd)
	for _, other := range []string{"json", "shard", "write-manifests", "write-vms", "frontier", "replay"} {
		cmd.MarkFlagsMutuallyExclusive("explain", other)
	}
	for _, other := range []string{"shard", "write-manifests", "write-vms", "replay"} {
		cmd.MarkFlagsMutuallyExclusive("frontier", other)
	}
	for _, other := range []string{"shard", "write-manifests", "write-vms"} {
		cmd.MarkFlagsMutuallyExclusive("replay", other)
	}
}

func (o *Options) addFrontier(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Frontier, "frontier", false, "show the cost of VMs against the traffic between VMs")
	f.StringVar(&o.Links, "links", linksAll, "take the traffic between containers from `all|annotations|FILE`: the same for every two containers of a pod; the annotation "+trace.LinksAnnotation+" of pods in a kubectl dump; or a CSV file with the columns "+strings.Join(trace.LinkColumns, ","))
	f.StringVar(&o.HostloRun, "hostlo-run", "", "derive a price of traffic between VMs from the latencies of "+sameNode+" and "+throughHostlo+" in the run directory `DIR`")
	f.StringVar(&o.HostloCase, "hostlo-case", "", "use only the latencies of this `CASE`, such as udp_rr/1024 (default: all)")
	f.Float64Var(&o.LinkCPU, "link-cpu", defaultLinkCPU, "assume that a link of weight 1 uses this many `VCPUS` within a VM, for --hostlo-run")
}

// addChoices adds the flags for what the paper leaves open.
func (o *Options) addChoices(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(usage.Choice((*string)(&o.Plan.Oversize), "drop", "cut", "refuse"), "oversize", "what to do with pods that no model holds (default: drop)")
	f.Var(usage.Choice((*string)(&o.Plan.Requested), "vm", "largest"), "requested", "what most requested is relative to (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Wasted), "vm", "largest"), "wasted", "what most wasted is relative to (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Moving), "vm", "container"), "moving", "hostlo empties one VM after the other, or moves every container once (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Emptying), "wasted", "filled", "cheapest", "bought"), "emptying", "order of the VMs for --moving vm (default: wasted)")
	f.IntVar(&o.Plan.Rounds, "rounds", 0, "limit the `ROUNDS` of moving (default: until nothing changes)")
	f.IntVar(&o.Plan.Effort, "effort", 0, "let best, whole and spread look at this many `ITEMS` for each container (default 1000)")
}

func (o *Options) addReplay(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Replay, "replay", false, "let the pods of the trace come and go (google2011), and show what the VMs cost over that time")
	f.DurationVar(&o.Minimum, "billing-minimum", defaultMinimum, "bill a VM for at least this `TIME`")
	f.IntVar(&o.Migrations, "migrations", defaultMigrations, "let this many `CONTAINERS` move when pods come or go, for --replay")
}
