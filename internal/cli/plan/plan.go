// Package plan is the command "unnest plan": it reads a cluster trace and says what
// its users' pods cost on virtual machines, and what they would cost if a pod could
// span several (Bacou et al., Nested Virtualization Without the Nest, ICPP 2019,
// §5.3.1).
//
// Packing belongs to package plan of the house, reading to package trace.
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

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams

	Traces        []string // FORMAT:PATH
	At            string   // an instant, or FROM..TO; empty: as trace.Options says
	Owner         string   // namespace or label=KEY
	MaxBroken     int
	MaxContainers int
	Shard         string // I/N; empty: all users

	Catalogues     []string // names or files
	Models         []string // of the catalogues; empty: all
	KubeReserved   string
	SystemReserved string // VCPU,MEMORY
	Daemons        string // VCPU,MEMORY,PODS
	Host           string // VCPU,MEMORY
	Plan           pack.Options

	Frontier   bool
	Links      string  // all, annotations, or a file
	HostloRun  string  // a run directory; empty: cuts have no price
	HostloCase string  // of that run; empty: all with figures
	LinkCPU    float64 // vCPUs that a link of weight 1 keeps busy within a VM

	Replay     bool
	Minimum    time.Duration // that a VM is billed for at least
	Migrations int           // containers that may move at an event

	Explain   string // a user
	Manifests string // a directory
	Scheme    string // whose split pods the manifests are
	Output    Output
}

// NewCmd returns the command with its subcommands. A runF that is not nil runs in
// place of the command, with the options that it would have had.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams, KubeReserved: "none", Scheme: "best", Links: linksAll, LinkCPU: defaultLinkCPU, Minimum: defaultMinimum, Migrations: defaultMigrations}
	cmd := &cobra.Command{
		Use:   "plan --trace FORMAT:PATH",
		Short: "Say what a cluster's pods cost on VMs, and what they would cost if pods could be split",
		Long: `Say what a cluster's pods cost on VMs, whole as Kubernetes places them, and what
they would cost if the containers of a pod could be on several VMs.

  unnest plan --trace FORMAT:PATH [flags]

The formats are ` + strings.Join(trace.Formats(), ", ") + `,
and generated:SCALE for made-up users like those of the Google trace of 2011. PATH
is a file, a directory or a glob. Traces of one format are read together.

Each user's pods are planned on VMs of the user's own, in these ways:

  kubernetes  pods whole, biggest first, on the VM with most requested, else on
              the cheapest new one
  resize      its VMs as the cheapest model that holds what is on them; moves nothing
  hostlo      containers, smallest first, moved to the VMs that waste most
  spread      like kubernetes and hostlo, but a pod may go to several new VMs
  whole       the best packing found of whole pods: what needs no split
  best        the best packing found of containers
  bound       no plan can cost less`,
		Example: `  unnest plan --trace generated:1
  unnest plan --trace google2011:clusterdata-2011-2 --html plan.html
  kubectl get pods -A -o json > pods.json
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
	f.StringArrayVar(&o.Traces, "trace", nil, "`FORMAT:PATH` to read; may be given again")
	f.StringVar(&o.At, "at", "", "keep what ran at this `TIME` of the trace, such as 0 or 50m, or FROM..TO (default: 0 for google2011 and google2019, else everything)")
	f.StringVar(&o.Owner, "owner", "namespace", "`namespace|label=KEY`: who pays for the pods of a kubectl dump")
	f.IntVar(&o.MaxBroken, "max-broken", 0, "`LINES` that may be broken although they are over 1 in 1000 (default 100)")
	f.IntVar(&o.MaxContainers, "max-containers", 0, "`CONTAINERS` at most that are kept in memory (default 20 million)")
	f.StringVar(&o.Shard, "shard", "", "plan only part `I/N` of the users, I from 0; unnest plan merge puts the parts together")
	f.StringArrayVar(&o.Catalogues, "catalogue", []string{"bacou"}, "`NAME|FILE` of VMs on sale: "+strings.Join(catalogue.Names(), ", ")+", or a CSV file; may be given again")
	f.StringSliceVar(&o.Models, "model", nil, "only these `MODELS` of the catalogue (default: all)")
	f.Var(usage.Choice(&o.KubeReserved, "none", "gke", "eks"), "kube-reserved", "what the kubelet keeps of each VM (the paper: none)")
	f.StringVar(&o.SystemReserved, "system-reserved", "", "`VCPU,MEMORY` of each VM that is not for pods, such as 0.1,200Mi")
	f.StringVar(&o.Daemons, "daemonsets", "", "`VCPU,MEMORY,PODS` on every VM, such as 0.3,500Mi,4")
	f.StringVar(&o.Host, "host", "", "`VCPU,MEMORY` of a physical host, on which all of a pod must be, such as 96,384Gi (default: no limit)")
	o.addChoices(cmd)
	f.StringVar(&o.Explain, "explain", "", "show which pods of `USER` go where, and what each move saves")
	f.StringVar(&o.Manifests, "write-manifests", "", "write a YAML file for each split pod to the new `DIR`")
	f.Var(usage.Choice(&o.Scheme, "best", "spread", "hostlo"), "scheme", "whose split pods --write-manifests writes")
	o.addFrontier(cmd)
	o.addReplay(cmd)
	o.Output.addFlags(cmd)
	for _, other := range []string{"json", "shard", "write-manifests", "frontier", "replay"} {
		cmd.MarkFlagsMutuallyExclusive("explain", other)
	}
	for _, other := range []string{"shard", "write-manifests", "replay"} {
		cmd.MarkFlagsMutuallyExclusive("frontier", other)
	}
	for _, other := range []string{"shard", "write-manifests"} {
		cmd.MarkFlagsMutuallyExclusive("replay", other)
	}
}

// addFrontier gives cmd the flags about what containers have to say to each other.
func (o *Options) addFrontier(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Frontier, "frontier", false, "show what VMs cost against how much of what containers say to each other goes from VM to VM")
	f.StringVar(&o.Links, "links", linksAll, "`all|annotations|FILE`: every two containers of a pod talk as much; or as "+trace.LinksAnnotation+" of kubectl's pods says; or a CSV file with the columns "+strings.Join(linkColumns, ","))
	f.StringVar(&o.HostloRun, "hostlo-run", "", "price what is cut by the latencies of "+sameNode+" and "+throughHostlo+" in the run directory `DIR`")
	f.StringVar(&o.HostloCase, "hostlo-case", "", "take the latencies of this `CASE` only, such as udp_rr/1024 (default: all that have some)")
	f.Float64Var(&o.LinkCPU, "link-cpu", defaultLinkCPU, "`VCPUS` that a link of weight 1 keeps busy or waiting within one VM, for --hostlo-run")
}

// addChoices gives cmd the flags of what the paper leaves open.
func (o *Options) addChoices(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Var(usage.Choice((*string)(&o.Plan.Oversize), "drop", "cut", "refuse"), "oversize", "what becomes of pods that no model can hold (default: drop)")
	f.Var(usage.Choice((*string)(&o.Plan.Requested), "vm", "largest"), "requested", "what most requested is relative to (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Wasted), "vm", "largest"), "wasted", "what most wasted is relative to (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Moving), "vm", "container"), "moving", "hostlo empties VM by VM, or moves every container once (default: vm)")
	f.Var(usage.Choice((*string)(&o.Plan.Emptying), "wasted", "filled", "cheapest", "bought"), "emptying", "the order of VMs in --moving vm (default: wasted)")
	f.IntVar(&o.Plan.Rounds, "rounds", 0, "`ROUNDS` of moving at most (default: until nothing changes)")
	f.IntVar(&o.Plan.Effort, "effort", 0, "how hard best, whole and spread try: `LOOKS` for each container (default 1000)")
}

// addReplay gives cmd the flags about pods that come and go.
func (o *Options) addReplay(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Replay, "replay", false, "let the pods of the trace come and go (google2011), and show what the VMs cost over that time")
	f.DurationVar(&o.Minimum, "billing-minimum", defaultMinimum, "a VM is billed for at least this `TIME`")
	f.IntVar(&o.Migrations, "migrations", defaultMigrations, "`CONTAINERS` that may move when something comes or goes, for --replay")
}
