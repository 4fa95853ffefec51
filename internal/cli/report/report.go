// Package report is the command "unnest report": it prints the results of a run.
package report

import (
	"context"

	"github.com/spf13/cobra"

	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dir     string // run directory
	Output  document.Output
}

// NewCmd returns the command. Tests pass a runF that receives the options.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Print the results of a run",
		Long: `Print the results of the run in DIR: the findings in words, tables of estimates
with their intervals and tests, warnings, and the provenance of the data.

A run that is still running, or was interrupted, is reported up to its last
sample.`,
		Example: `  unnest report runs/20260314-092653-quickstart
  unnest report runs/20260314-092653-quickstart -o report.html
  unnest report runs/20260314-092653-quickstart --format gobench >run.bench
  benchstat -col /config run.bench`,
		Args: usage.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dir = args[0]
			return runF(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

func run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	input, notes, err := document.Load(opts.Dir)
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, document.Build(input, notes))
}
