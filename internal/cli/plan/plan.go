// Package plan is the commands "unnest plan", which plans the pods of a trace on VMs, and
// "unnest plan merge" (Bacou et al., Nested Virtualization Without the Nest, ICPP 2019, §5.3.1). It
// turns flags into values, reads files, and prints documents. What pods cost is decided by package
// plan/costing, words by package report.
package plan

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/latency"
	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/kubernetes"
	"unnest.io/unnest/internal/plan/trace"
	"unnest.io/unnest/internal/plan/use"
	page "unnest.io/unnest/internal/report/document"
)

// Options are the flags of the command.
type Options struct {
	Streams terminal.Streams

	Traces     []string // FORMAT:PATH or PATH
	Columns    string   // a file; empty: the format is one of trace.Formats
	At         string   // an instant, or FROM..TO; empty: the default of trace.Options
	Owner      string   // namespace, label=KEY or cluster; empty: see addFlags
	Kubeconfig string   // FILE[,context=CONTEXT] of a cluster to read with kubectl; empty: none
	Shard      string   // I/N; empty: all users

	Catalogues []string // names, CSV files, and at most one YAML file
	Oversize   string   // empty: drop
	Packing    []string // KEY=VALUE

	Uses     []string // FORMAT:PATH, or FORMAT with Kubeconfig
	Headroom int      // percent
	Least    float64  // dollars for an hour that a step has to save

	Explain   string // a user
	Links     string // all, annotations, or a file; empty: no frontier
	HostloRun string // DIR[,case=CASE][,link-cpu=VCPUS]; empty: cuts have no price
	Replay    string // containers that may move at an event; empty: no replay

	Write  string // [SCHEME:]DIR; empty: nothing
	Output Output
}

// defaultHeadroom is the percentage that the Vertical Pod Autoscaler adds to use.
const defaultHeadroom = 15

// defaultMigrations is how many containers may move at an event of --replay.
const defaultMigrations = "10"

// NewCmd returns the command, which calls run, with its subcommand.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "plan --trace [FORMAT:]PATH",
		Short: "Compute what pods cost on VMs, whole and split over several VMs",
		Long: `Compute what the pods of a cluster cost on VMs: whole, as Kubernetes places them,
and with the containers of a pod split over several VMs.

FORMAT in --trace [FORMAT:]PATH is one of ` + strings.Join(trace.Formats(), ", ") + `,
or generated:SCALE for random users like those of the Google trace of 2011. The content
tells dumps of kubectl and tables whose first line names the columns of a format. PATH is
a file, a directory, a glob, or - for standard input. Traces of one format are read
together.

Each user has VMs of their own. The plans are:

  kubernetes  whole pods, biggest first, on the VM with the most requested
              resources, else on the cheapest new VM
  resize      kubernetes, with each VM replaced by the cheapest model that holds
              its pods; nothing moves
  hostlo      kubernetes, with containers moved, smallest first, to the VMs that
              waste most
  spread      like kubernetes and hostlo, but a pod may go to several new VMs
  whole       the best packing found of whole pods
  best        the best packing found of containers
  bound       a lower bound of the cost of any plan`,
		Example: `  unnest plan --trace generated:1
  unnest plan --trace google2011:clusterdata-2011-2 -o plan.html
  kubectl get nodes,pods,pdb,pv,csinodes,ns -A -o json | unnest plan --trace -
  unnest plan --kubeconfig default
  unnest plan --trace pods.json --catalogue m6i --catalogue reserved.yaml
  unnest plan --trace pods.json --explain default
  unnest plan --trace pods.json --links links.csv --hostlo-run runs/hostlo
  unnest plan --trace google2011:clusterdata-2011-2 --replay=20 --at 0..1h
  unnest plan --trace jobs.csv --columns jobs.yaml
  unnest plan --trace users.csv --shard 0/8 -o 0.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("unexpected argument %q%s", args[0], cmp.Or(usage.SuggestValue(cmd, args[0]), ": to plan a file, give --trace "+args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), opts) },
	}
	opts.addFlags(cmd)
	cmd.SetFlagErrorFunc(flagError)
	cmd.AddCommand(newMergeCmd(streams))
	return cmd
}

func (o *Options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Traces, "trace", nil, "read `[FORMAT:]PATH`; may be repeated")
	f.StringVar(&o.Columns, "columns", "", "read a trace whose columns the YAML `FILE` maps to users, pods, containers and requests; its format is the name of the file")
	f.StringVar(&o.At, "at", "", "keep what ran at this `TIME` of the trace, such as 0 or 50m, or in FROM..TO (default: 0 for google2011 and google2019, else everything)")
	f.StringVar(&o.Owner, "owner", "", "who pays for VMs: `namespace|label=KEY|cluster` (default: cluster for kubectl, else the users of the trace)")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "read nodes, pods, volumes and disruption budgets with kubectl from the cluster of `FILE[,context=CONTEXT]`, or of kubectl's default")
	f.StringVar(&o.Shard, "shard", "", "plan only part `I/N` of the users, with I from 0; unnest plan merge combines the parts")
	f.StringArrayVar(&o.Catalogues, "catalogue", nil, "take VM models from `NAME|FILE`: "+catalogue.Paper+" of the paper, a family of AWS such as m6i, of Google such as gcp-n2 or of Azure such as azure-dsv5, or a CSV file; a YAML file has prices, models and what is reserved; may be repeated (default: bacou; with nodes, the families of their models)")
	f.Var(usage.Choice(&o.Oversize, "drop", "cut", "refuse"), "oversize", "what to do with pods that no model holds (default: drop)")
	f.StringSliceVar(&o.Packing, "packing", nil, "choices that the paper leaves open, as `KEY=VALUE`: requested and wasted are relative to the vm or the largest, moving goes by vm or container, emptying begins with the VM that is wasted, filled, cheapest or bought first, at most so many rounds, effort items of best for each container")
	f.StringArrayVar(&o.Uses, "use", nil, "also plan with requests that follow from use, of `FORMAT:PATH`; with --kubeconfig metrics and vpa need no path; the formats are "+strings.Join(use.Formats, ", ")+"; may be repeated")
	f.IntVar(&o.Headroom, "headroom", defaultHeadroom, "request `PERCENT` more than measured by --use")
	f.Float64Var(&o.Least, "min-saving", 0, "leave out steps of a cluster with nodes that save less than these `DOLLARS` for an hour")
	f.StringVar(&o.Explain, "explain", "", "show where the pods of `USER` go, and what each move saves")
	f.StringVar(&o.Links, "links", "", "show the cost of VMs against the traffic between VMs, which is `all|annotations|FILE`: the same for every two containers of a pod; the annotation "+kubernetes.LinksAnnotation+" of pods in a kubectl dump; or a CSV file with the columns "+strings.Join(trace.LinkColumns, ","))
	f.StringVar(&o.HostloRun, "hostlo-run", "", "for --links, derive a price of traffic between VMs from the latencies of "+latency.SameNode+" and "+latency.Hostlo+" in the run directory `DIR`, or DIR,case=CASE,link-cpu=VCPUS; a link of weight 1 uses 0.01 vCPUs within a VM")
	f.StringVar(&o.Replay, "replay", "", "let the pods of the trace come and go (google2011, or sorted columns), and show what the VMs cost over that time; so many `CONTAINERS` move when pods come or go")
	f.Lookup("replay").NoOptDefVal = defaultMigrations
	f.StringVar(&o.Write, "write", "", "write to the new or empty directory `[PLAN:]DIR` what the plan best, spread, hostlo or whole (default: best) needs: manifests of split pods; the VMs of a cluster with nodes, for Karpenter, eksctl and Terraform; patches with the requests of --use")
	o.Output.addFlags(cmd)
	for _, other := range []string{"json", "shard", "write", "links", "replay", "use"} {
		cmd.MarkFlagsMutuallyExclusive("explain", other)
	}
	for _, other := range []string{"shard", "write", "replay", "use"} {
		cmd.MarkFlagsMutuallyExclusive("links", other)
	}
	for _, other := range []string{"shard", "write", "use"} {
		cmd.MarkFlagsMutuallyExclusive("replay", other)
	}
	cmd.MarkFlagsMutuallyExclusive("use", "shard")
}

// Output says how a plan is printed and where to.
type Output struct {
	Format string   // a name of document.AddFormat; empty: by the extension of each file, else text
	JSON   bool     // the same as Format json
	Files  []string // none: standard output
}

func (o *Output) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	document.AddFormat(cmd, &o.Format, false)
	f.StringArrayVarP(&o.Files, "output", "o", nil, "write to `FILE` instead of standard output; may be repeated, such as -o plan.json -o plan.html; a failed write changes nothing")
	f.BoolVar(&o.JSON, "json", false, "print JSON, with every user")
	cmd.MarkFlagsMutuallyExclusive("json", "format")
}

// each returns an output for each file, or that for standard output.
func (o Output) each() (all []document.Output) {
	for _, file := range o.Files {
		all = append(all, document.Output{Format: o.Format, JSON: o.JSON, File: file})
	}
	if len(all) == 0 {
		all = []document.Output{{Format: o.Format, JSON: o.JSON}}
	}
	return all
}

// check returns an error unless the formats are known and the directories of the files
// exist: planning may take long.
func (o Output) check() error {
	if len(o.Files) > 1 && (o.JSON || o.Format != "") {
		return usage.Errorf("--json and --format with several --output: the extension of each file chooses its format: omit them")
	}
	var errs []error
	for _, one := range o.each() {
		errs = append(errs, one.Check())
	}
	return errors.Join(errs...)
}

// write prints doc.
func (o Output) write(streams terminal.Streams, doc page.Document) error {
	for _, one := range o.each() {
		if err := one.Print(streams, doc); err != nil {
			return err
		}
	}
	return nil
}

// flagError says how to give what a user may look for in flags of their own.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if name := unknown.GetSpecifiedName(); name == "nodes" || name == "pods" {
			return usage.Errorf("--%s is not a flag: nodes, pods and volumes are in one dump: kubectl get %s -A -o json > cluster.json, then --trace cluster.json", name, shortObjects)
		}
	}
	top := cmd
	for top.HasParent() {
		top = top.Parent()
	}
	if top.Name() == "plan" { // alone, as in tests
		return usage.Wrap(err)
	}
	return top.FlagErrorFunc()(cmd, err)
}
