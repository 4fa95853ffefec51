// Package bench is the command "unnest bench": it runs an experiment and
// reports it.
package bench

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"unnest/experiments"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/measure/suite"
)

// Options are what the command line asks for.
type Options struct {
	Streams     terminal.Streams
	Experiment  string // name of one that comes with unnest, or path of a file
	Resume      string // run directory to go on with, instead of Experiment
	Dir         string // run directory to write; empty: a new one below runs
	Accel       string
	Repetitions int    // 0: as the experiment says
	Profile     string // of the cases of suites; empty: as the experiment says
	DryRun      bool   // print what would run, and run nothing
	List        bool
}

// NewCmd returns the command. A runF that is not nil runs in place of the
// command, with the options that it would have had.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	o := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "bench FILE|NAME",
		Short: "Run an experiment and report it",
		Long: `Run an experiment: one that comes with unnest, by its name, or a file of your
own, by its path. Guests are booted, containers started, and every case measured
in every configuration, in random interleaved order. The samples go to a run
directory as they are taken; the report is printed and written there too.

Two configurations that are the same and called X-a and X-b make an A/A
measurement: after the report stands how often a test calls them different, which
should be in 5 % of the cases (unnest bench aa).

Ctrl-C stops everything and removes it; --resume goes on from the last sample.`,
		Example: `  unnest bench --list
  unnest bench quickstart
  unnest bench levels --dry-run
  unnest bench multilevel-disk --profile paper
  unnest bench ./my-experiment.yaml -o results/mine
  unnest bench --resume runs/20260314-092653-quickstart`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.take(args); err != nil {
				return err
			}
			return runF(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.List, "list", false, "list the experiments that come with unnest")
	flags.StringVar(&o.Resume, "resume", "", "go on with the run in `DIR`")
	flags.StringVarP(&o.Dir, "output", "o", "", "write the run to the new directory `DIR` (default runs/TIME-NAME)")
	flags.IntVar(&o.Repetitions, "repetitions", 0, "repeat `N` times instead of what the experiment says")
	flags.Var(usage.Choice(&o.Profile, string(suite.Quick), string(suite.Paper)), "profile", "size of the cases of suites (default: as the experiment says, quick if it does not)")
	flags.BoolVar(&o.DryRun, "dry-run", false, "print what would run and how long it would take, and run nothing")
	flags.Var(usage.Choice(&o.Accel, "auto", "kvm", "tcg"), "accel", "accelerator of the guests (default auto: kvm where it works)")
	return cmd
}

// take checks the arguments and completes the options by them.
func (o *Options) take(args []string) error {
	wanted := 0
	for _, given := range []bool{o.List, o.Resume != "", len(args) > 0} {
		if given {
			wanted++
		}
	}
	switch {
	case len(args) > 1:
		return usage.Errorf("%d experiments given: name one", len(args))
	case wanted == 0:
		return usage.Errorf("no experiment given: name one of %v, or a file", experiments.List())
	case wanted > 1:
		return usage.Errorf("give one of an experiment, --resume and --list")
	case o.Resume != "" && (o.Dir != "" || o.Repetitions != 0 || o.Profile != "" || o.DryRun):
		return usage.Errorf("--resume goes on with the run as it was planned: leave out --output, --repetitions, --profile and --dry-run")
	case o.Repetitions < 0:
		return usage.Errorf("--repetitions %d: want a positive number", o.Repetitions)
	}
	if len(args) == 1 {
		o.Experiment = args[0]
	}
	return nil
}

func run(ctx context.Context, o Options) error {
	switch {
	case o.List:
		return list(o.Streams.Out)
	case o.Resume != "":
		return resume(ctx, o)
	case o.DryRun:
		return dryRun(o)
	}
	return start(ctx, o)
}

// list prints the experiments that come with unnest, with their titles.
func list(w io.Writer) error {
	for _, name := range experiments.List() {
		spec, err := load(name, "")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%-20s %s\n", name, spec.Title); err != nil {
			return err
		}
	}
	return nil
}
