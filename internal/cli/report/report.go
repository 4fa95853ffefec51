// Package report is the command "unnest report": it prints what a run has found.
package report

import (
	"context"

	"github.com/spf13/cobra"

	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
)

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	Dir     string // run directory
	Output  document.Output
}

// NewCmd returns the command. A runF that is not nil runs in place of the
// command, with the options that it would have had.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Print what a run has found",
		Long: `Print what the run in DIR has found: the findings in words, tables of estimates
with their intervals and tests, what to doubt, and where the data comes from.

A run that is still going on, or was interrupted, is reported as far as it has
come.`,
		Example: `  unnest report runs/20260314-092653-quickstart
  unnest report runs/20260314-092653-quickstart -o report.html
  unnest report runs/20260314-092653-quickstart --format gobench | benchstat -`,
		Args: usage.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dir = args[0]
			return runF(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
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
