package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/cli/version"
	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/pods"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/workload"
)

// clusterOptions are the options of "unnest bench cluster".
type clusterOptions struct {
	Streams     terminal.Streams
	File        string // of the experiment; empty: the one that comes with unnest
	Resume, Dir string
	Repetitions int
	Kubeconfig  string
	Context     string
	Namespace   string
	Image       string
	Nodes       string // separated by commas
	Pairs       string // pods.AllPairs, or pairs separated by commas
	LeaveOut    string // configurations, separated by commas
	Wait        time.Duration
}

// newClusterCmd returns the command, which calls run.
func newClusterCmd(streams terminal.Streams, run func(context.Context, clusterOptions) error) *cobra.Command {
	o := clusterOptions{Streams: streams}
	cmd := &cobra.Command{
		Use:   "cluster [FILE]",
		Short: "Measure the network of pods on an existing Kubernetes cluster",
		Long: `Measure what the network of pods costs on an existing Kubernetes cluster, on one node
and between two: on the network of the nodes (node), on that of pods (pod), through a
Service (service), and with NICs of their own if BrFusion is installed (brfusion). FILE
is another experiment file with stack kubernetes.

unnest needs a kubeconfig, and the right to create pods in a namespace and to run
commands in them. It makes a namespace, or uses that of --namespace. The pods' image is
localhost/unnest/load:1, which "make images" writes as bin/images/unnest-load.tar: load it
into the container runtime of each node, or push it to a registry and give its name by
--image.

Everything else is as with other experiments: the order is random and interleaved, each
sample is stored at once, a report follows. Ctrl-C removes what was made; after a kill,
the cluster removes it within five minutes. To continue, use --resume.`,
		Example: `  unnest bench cluster
  unnest bench cluster --kubeconfig ~/.kube/config \
    --context production --namespace bench
  unnest bench cluster --image registry.example.com/unnest-load:1 \
    --nodes worker1,worker2,worker3 --pairs all
  unnest bench cluster --pairs worker1:worker1 --leave-out node
  unnest bench cluster --resume runs/20260314-092653-cluster`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "`FILE` with the cluster and the credentials for it (default: $KUBECONFIG, else ~/.kube/config, else those of the pod)")
	flags.StringVar(&o.Context, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)")
	flags.StringVar(&o.Namespace, "namespace", "", "make pods in the existing `NAMESPACE` (default: a new one, which is removed at the end)")
	flags.StringVar(&o.Image, "image", workload.PeerImage, "`NAME` of the load generator's image")
	flags.StringVar(&o.Nodes, "nodes", "", "use these `NODES`, separated by commas (default: those that are ready and take pods)")
	flags.StringVar(&o.Pairs, "pairs", "", "all, or pairs `CLIENT:SERVER` separated by commas (default: the first node with itself, and with the second)")
	flags.StringVar(&o.LeaveOut, "leave-out", "", "do not measure these `CONFIGURATIONS`, separated by commas")
	flags.Var(usage.Count(&o.Repetitions), "repetitions", "measure `N` repetitions (default: as in the experiment)")
	o.Wait = 5 * time.Minute
	flags.Var(usage.Time(&o.Wait), "wait", "give the pods `TIME` to run")
	flags.StringVarP(&o.Dir, "output", "o", "", "write the run to the new directory `DIR` (default runs/TIME-NAME)")
	flags.StringVar(&o.Resume, "resume", "", "continue the run in `DIR`")
	return cmd
}

// take checks the arguments and stores them in the options.
func (o *clusterOptions) take(args []string) error {
	switch {
	case len(args) > 1:
		return usage.Errorf("%d experiment files given: name one", len(args))
	case o.Resume != "" && (len(args) > 0 || o.Dir != "" || o.Repetitions != 0 || o.Nodes != "" || o.Pairs != "" || o.LeaveOut != ""):
		return usage.Errorf("--resume continues the run as it was planned: leave out FILE, --output, --repetitions, --nodes, --pairs and --leave-out")
	case o.Nodes != "" && o.Pairs != "" && o.Pairs != pods.AllPairs:
		return usage.Errorf("give one of --nodes and a list of --pairs")
	case o.Image == "":
		return usage.Errorf("--image is empty: want the name of an image")
	case len(args) == 1:
		o.File = args[0]
	}
	return nil
}

func runCluster(ctx context.Context, o clusterOptions) error {
	if o.Resume != "" {
		return resumeCluster(ctx, o)
	}
	text, err := o.experiment()
	if err != nil {
		return err
	}
	c, err := pods.Connect(ctx, o.Kubeconfig, o.Context)
	if err != nil {
		return err
	}
	spec, err := o.plan(ctx, c, text)
	if err != nil {
		return err
	}
	spec.AddMetrics(cputime.NodeMetrics()...)
	return begin(o.Streams, o.Dir, clusterCommand, spec, func(dir *rundir.Dir) (bool, error) { return measureCluster(ctx, o, c, spec, dir) })
}

const clusterCommand = "unnest bench cluster"

// experiment returns the experiment file, which must be of a cluster.
func (o clusterOptions) experiment() ([]byte, error) {
	name, data, err := experiments.Open("cluster")
	if o.File != "" {
		name, data, err = open(o.File)
	}
	if err != nil {
		return nil, err
	}
	spec, err := experiment.Parse(name, data)
	if err == nil && !spec.OfCluster() {
		err = fmt.Errorf("%s: no configuration has stack kubernetes: run it by `unnest bench`", name)
	}
	return data, err
}

// plan returns the experiment with the nodes and configurations of this run, which become part of its
// file, so that a resumed run has the same.
func (o clusterOptions) plan(ctx context.Context, c *pods.Cluster, text []byte) (*experiment.Spec, error) {
	spec, err := experiment.Parse("experiment", text)
	if err != nil {
		return nil, err
	}
	out := split(o.LeaveOut)
	has, err := c.HasBrFusion(ctx)
	if err != nil {
		return nil, err
	}
	if !has {
		out = append(out, withoutBrFusion(spec, out)...)
	}
	pairs := spec.Pairs
	if pairs == nil || o.Pairs != "" || o.Nodes != "" {
		if pairs, err = c.Pairs(ctx, split(o.Nodes), o.Pairs); err != nil {
			return nil, err
		}
	}
	if spec, err = experiment.Parse("experiment", withPlan(text, spec, pairs, out)); err == nil && o.Repetitions > 0 {
		err = spec.Repeat(o.Repetitions)
	}
	return spec, err
}

// resumeCluster continues a run.
func resumeCluster(ctx context.Context, o clusterOptions) error {
	dir, err := rundir.Open(o.Resume)
	if err != nil {
		return err
	}
	if dropped := dir.Dropped(); dropped != "" {
		fmt.Fprintln(o.Streams.Err, dropped)
	}
	err = func() error {
		spec, err := experiment.FromRun(o.Resume, dir.Run())
		switch {
		case err != nil:
			return err
		case !spec.OfCluster():
			return fmt.Errorf("%s is not a run in a cluster: continue it with `unnest bench --resume %s`", o.Resume, o.Resume)
		case dir.Run().State == result.Complete && len(dir.Run().Failures) == 0:
			return nil
		}
		c, err := pods.Connect(ctx, o.Kubeconfig, o.Context)
		if err == nil {
			_, err = measureCluster(ctx, o, c, spec, dir)
		}
		return err
	}()
	return finish(o.Streams, o.Resume, clusterCommand, errors.Join(err, dir.Close()))
}

// measureCluster brings the experiment up, runs it and takes it down. begun reports whether the
// executions began.
func measureCluster(ctx context.Context, o clusterOptions, c *pods.Cluster, s *experiment.Spec, dir *rundir.Dir) (begun bool, err error) {
	fmt.Fprintf(o.Streams.Err, "%s: %d executions; Kubernetes %s\n", s.Name, dir.Run().Planned, c.Version)
	for _, p := range s.Pairs {
		fmt.Fprintln(o.Streams.Err, "  "+p.Describe())
	}
	for _, w := range s.Warnings() {
		fmt.Fprintln(o.Streams.Err, "warning: "+w)
	}
	progress := newProgress(o.Streams.Err, o.Streams.ErrWidth)
	b, err := pods.Up(ctx, c, s, pods.Options{Namespace: o.Namespace, Image: o.Image, Wait: o.Wait, Progress: progress})
	if err != nil {
		return false, err
	}
	defer func() {
		progress.Phase("remove the pods")
		err = errors.Join(err, b.Down())
		progress.endPhase()
	}()
	build, facts := version.Get(), b.Facts()
	if err := record(dir, result.Run{
		Accelerator: result.ClusterNodes, AccelReason: "what is below the nodes of an existing cluster is not known",
		Guests: facts.Nodes, Tools: facts.Tools, Notes: facts.Notes, Version: build.Version, Revision: build.Revision,
	}); err != nil {
		return false, err
	}
	return true, experiment.Run(ctx, s, dir, b, progress)
}

// split returns the words of a list with commas.
func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}

// withPlan appends the pairs of nodes, and the configurations that are left out, to an experiment file.
func withPlan(text []byte, s *experiment.Spec, pairs []experiment.Pair, out []string) []byte {
	text = bytes.TrimRight(text, "\n")
	if s.Pairs == nil {
		text = append(text, "\npairs:"...)
		for _, p := range pairs {
			text = fmt.Appendf(text, "\n  - %q", p)
		}
	}
	if len(out) > 0 {
		text = append(text, "\nleave_out:"...)
		for _, name := range out {
			text = fmt.Appendf(text, "\n  - %q", name)
		}
	}
	return append(text, '\n')
}

// withoutBrFusion names the configurations that need BrFusion and are not left out yet.
func withoutBrFusion(s *experiment.Spec, out []string) (names []string) {
	for _, c := range s.Configurations {
		if c.Network.Reached() && !slices.Contains(out, c.Name) {
			names = append(names, c.Name)
		}
	}
	return names
}
