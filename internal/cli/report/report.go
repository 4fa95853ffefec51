// Package report is the command "unnest report": it prints the results of a run.
package report

import (
	"context"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/provenance"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dirs    []string // run directories
	Output  document.Output
	Open    bool // show the report in a browser
}

// NewCmd returns the command. Tests pass a runF that receives the options.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "report DIR...",
		Short: "Print the results of a run, or of several together",
		Long: `Print the results of the run in DIR: the findings in words, tables of estimates
with their intervals and tests, warnings, and the provenance of the data.

A run that is still running, or was interrupted, is reported up to its last
sample.

The intervals of one run cover that run, or a new one on the machine if each
block had machines of its own. Several runs of one experiment are combined: the
report says how much runs differ, what their mean is, and what a next run on
this machine will report.`,
		Example: `  unnest report runs/20260314-092653-quickstart
  unnest report runs/20260314-092653-quickstart --open
  unnest report runs/20260314-092653-quickstart -o report.html
  unnest report runs/*-quickstart
  unnest report runs/20260314-092653-quickstart --format gobench >run.bench
  benchstat -col /config run.bench`,
		Args: func(cmd *cobra.Command, args []string) error { return usage.Args("DIR")(cmd, args[:min(len(args), 1)]) },
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dirs = args
			return runF(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	cmd.Flags().BoolVar(&opts.Open, "open", false, "write report.html to DIR, or HTML to --output, and open it in a browser")
	cmd.ValidArgsFunction = document.CompleteRuns
	return cmd
}

func run(ctx context.Context, opts Options) error {
	if opts.Open {
		if err := opts.page(); err != nil {
			return err
		}
	}
	err := write(opts)
	if err == nil && opts.Open {
		err = show(ctx, opts.Output.File)
	}
	return err
}

// write prints the report.
func write(opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	var inputs []provenance.Source
	var runs []result.Run
	var notes []string
	for _, dir := range opts.Dirs {
		input, missing, err := document.Load(dir)
		if err != nil {
			return err
		}
		inputs, runs, notes = append(inputs, input), append(runs, input.Run), append(notes, missing...)
	}
	if len(inputs) == 1 {
		return opts.Output.Print(opts.Streams, document.Build(inputs[0], notes))
	}
	if err := comparison.Combinable(runs); err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, comparison.Combine(inputs, notes))
}
