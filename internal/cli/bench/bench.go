// Package bench is the command "unnest bench", which runs an experiment and reports its
// results.
package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
)

// Options are the options of the command line.
type Options struct {
	Streams     terminal.Streams
	Experiment  string   // name of a built-in study, or path of a file
	Suites      []string // of the study; none: its own cases
	Cases       []string // names or groups; none: all
	Resume      string   // run directory to continue, instead of Experiment
	Dir         string   // run directory to create; empty: a new one in runs
	Accel       string
	Repetitions int         // 0: as in the experiment
	Start       stack.Start // of guests; empty: restored if the experiment is fresh, else booted
	Noisy       bool        // neither wait for a quiet machine, nor repeat disturbed executions, nor end early
	Profile     string      // of the cases of suites; empty: as in the experiment
	DryRun      bool        // print the schedule and run nothing
	List        bool
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	o, cold := Options{Streams: streams}, true
	cmd := &cobra.Command{
		Use:   "bench FILE|STUDY",
		Short: "Run an experiment and report its results",
		Long: `Run an experiment and report its results.

The experiment is a study that comes with unnest, given by its name, or an experiment
file, given by its path. Some studies have suites: --suite chooses what is measured.
--case limits an experiment to some of its cases. unnest boots the guests, starts the containers and measures
every case in every configuration, in random interleaved order. It stores each sample
in the run directory at once, and at the end prints a report and writes report.html
there.

If two configurations named X-a and X-b are equal (an A/A measurement, such as
unnest bench aa), the report ends with how often a test finds a difference between
them: 5 % or less is expected.

If other processes keep the machine busy, unnest waits up to 30 s before it begins,
measures disturbed executions again, and says so at the top of the report.

Ctrl-C stops and removes everything that was started. To continue, use --resume.`,
		Example: `  unnest bench --list
  unnest bench multilevel --list
  unnest bench quickstart
  unnest bench levels --dry-run
  unnest bench multilevel --suite disk --profile paper
  unnest bench brfusion --case udp_rr --case tcp_stream/1280
  unnest bench ./my-experiment.yaml -o results/mine
  unnest bench --resume runs/20260314-092653-quickstart`,
		Args: cobra.ArbitraryArgs, // take checks them
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, flag := range []string{"resume", "output"} {
				if f := cmd.Flags().Lookup(flag); f.Changed && f.Value.String() == "" {
					return usage.Errorf("--%s is empty: want a directory", flag)
				}
			}
			if err := o.take(args); err != nil {
				return err
			}
			if cmd.Flags().Changed("cold") {
				o.Start = map[bool]stack.Start{true: stack.Booted, false: stack.Restored}[cold]
			}
			return run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.List, "list", false, "list the studies that come with unnest, or the suites and cases of one")
	flags.StringArrayVar(&o.Suites, "suite", nil, "measure suite `NAME` of the study; may be repeated if the suites differ in their cases only")
	flags.StringArrayVar(&o.Cases, "case", nil, "measure case `NAME` only, of all sizes or as in udp_rr/1280; may be repeated")
	flags.StringVar(&o.Resume, "resume", "", "continue the run in `DIR`")
	flags.StringVarP(&o.Dir, "output", "o", "", "write the run to the new directory `DIR` (default runs/TIME-NAME)")
	flags.BoolVar(&o.Noisy, "noisy", false, "measure on a busy machine: do not wait until it is quiet, repeat disturbed executions or end early")
	flags.Var(usage.Count(&o.Repetitions), "repetitions", "measure `N` repetitions, no matter how precise (default: as in the experiment)")
	flags.Var(usage.Choice(&o.Profile, string(suite.Quick), string(suite.Paper)), "profile", "size of the cases of suites (default: as in the experiment, else quick)")
	flags.BoolVar(&o.DryRun, "dry-run", false, "print the executions and their expected duration, and run nothing")
	flags.BoolVar(&cold, "cold", true, "boot the guests; --cold=false restores them from a snapshot, which is faster, and the default of experiments with fresh: true")
	flags.Var(usage.Choice(&o.Accel, "auto", "kvm", "tcg"), "accel", "accelerator of the guests (default auto: kvm where it works)")
	cmd.AddCommand(newClusterCmd(streams, runCluster))
	cmd.ValidArgsFunction = completeExperiment
	usage.Complete(cmd, "resume", document.CompleteRuns)
	usage.Complete(cmd, "suite", completeSuite)
	return cmd
}

// take checks the arguments and stores them in the options.
func (o *Options) take(args []string) error {
	switch {
	case len(args) > 1:
		return usage.Errorf("%d experiments given: name one", len(args))
	case len(args) == 0 && !o.List && o.Resume == "":
		return usage.Errorf("no experiment given: name one of %s, or a file", strings.Join(experiments.Studies(), ", "))
	case o.Resume != "" && (len(args) > 0 || o.List):
		return usage.Errorf("--resume names the run: leave out the experiment and --list")
	case o.Resume != "" && (o.Dir != "" || o.Repetitions != 0 || o.Profile != "" || o.DryRun || len(o.Suites) > 0 || len(o.Cases) > 0):
		return usage.Errorf("--resume continues the run as it was planned: leave out --output, --repetitions, --profile, --suite, --case and --dry-run")
	case o.List && (o.Dir != "" || o.DryRun || len(o.Suites) > 0 || len(o.Cases) > 0):
		return usage.Errorf("--list shows all suites and cases, and runs nothing: leave out --output, --suite, --case and --dry-run")
	case len(args) == 1 && args[0] == "":
		return usage.Errorf(`experiment "": want a name or the path of a file`)
	case len(args) == 1:
		o.Experiment = args[0]
	}
	return nil
}

// Run runs the experiment and reports on it.
func Run(ctx context.Context, o Options) error {
	switch {
	case o.List && o.Experiment != "":
		return listStudy(o.Streams.Out, o.Experiment)
	case o.List:
		return list(o.Streams.Out)
	case o.Resume != "":
		return resume(ctx, o)
	case o.DryRun:
		return dryRun(o)
	}
	return start(ctx, o)
}

// list prints the names and titles of the built-in studies.
func list(w io.Writer) error {
	for _, study := range experiments.Studies() {
		title := experiments.Title(study)
		if suites := experiments.Suites(study); len(suites) > 0 {
			title += " [--suite " + strings.Join(suites, ", ") + "]"
		}
		if _, err := fmt.Fprintf(w, "%-15s %s\n", study, title); err != nil {
			return err
		}
	}
	return nil
}

// listStudy prints the cases of a study, and those of its suites.
func listStudy(w io.Writer, study string) error {
	if !isStudy(study) {
		spec, err := load(study, "")
		if err != nil {
			return err
		}
		return listCases(w, study, spec)
	}
	if err := checkStudy(study); err != nil {
		return err
	}
	if experiments.HasCases(study) {
		spec, err := builtIn(study)
		if err != nil {
			return err
		}
		if err := listCases(w, study, spec); err != nil {
			return err
		}
	}
	for _, suite := range experiments.Suites(study) {
		spec, err := builtIn(study, suite)
		if err != nil {
			return err
		}
		if err := listCases(w, study+" --suite "+suite, spec); err != nil {
			return err
		}
	}
	return nil
}

// listCases prints the title and the cases of an experiment, which is chosen by arguments.
func listCases(w io.Writer, arguments string, s *experiment.Spec) error {
	var names []string
	for _, c := range s.Cases {
		if !slices.Contains(names, c.Group) {
			names = append(names, c.Group)
		}
	}
	_, err := fmt.Fprintf(w, "%s: %s\n  --case %s\n", arguments, s.Title, strings.Join(names, ", "))
	return err
}

func builtIn(study string, suites ...string) (*experiment.Spec, error) {
	file, data, err := experiments.Compose(study, suites...)
	if err != nil {
		return nil, err
	}
	return experiment.Parse(file, data)
}
