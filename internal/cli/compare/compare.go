// Package compare is the command "unnest compare": it compares two runs, or two published
// means.
package compare

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/report/comparison"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams  terminal.Streams
	A, B     string // run directories, or with Summary means; B is divided by A
	Summary  bool   // A and B are MEAN,STANDARD_ERROR,N
	AnySize  bool   // compare runs of different sizes
	Verdicts bool   // also on runs, which share no block
	Output   document.Output
}

// NewCmd returns the command. Tests pass a runF that receives the options.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Compare two runs, metric by metric, or two published means",
		Long: `Compare the run in directory B with the run in directory A, metric by metric, in
the cases and configurations that both have.

Two runs are measured at different times, so a change of the machine in between
looks like a difference. To choose between two configurations, measure both in
one run. The command prints ratios with their intervals, and verdicts only with
--verdicts. Runs of different sizes are refused unless --any-size is given.

With --summary, A and B are published means, each written
MEAN,STANDARD_ERROR,N, where N is the number of runs. The command prints Welch's
t test and the smallest difference that such samples can show. Write -- before a
negative mean.`,
		Example: `  unnest compare runs/before runs/after
  unnest compare runs/before runs/after -o compare.md
  unnest compare --summary 1068.5,2.40,6 1041.3,18.60,6`,
		Args: usage.Args("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.A, opts.B = args[0], args[1]
			return runF(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = document.CompleteRuns
	cmd.Flags().BoolVar(&opts.Summary, "summary", false, "A and B are MEAN,STANDARD_ERROR,N instead of run directories")
	cmd.Flags().BoolVar(&opts.AnySize, "any-size", false, "compare runs whose profiles, guests or cases differ in size")
	cmd.Flags().BoolVar(&opts.Verdicts, "verdicts", false, "judge the differences, although the machine may have changed between the runs")
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

func run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	if opts.Summary {
		return compareSummaries(opts)
	}
	a, notesA, err := document.Load(opts.A)
	if err != nil {
		return err
	}
	b, notesB, err := document.Load(opts.B)
	if err != nil {
		return err
	}
	if difference := comparison.SizeDifference(a.Run, b.Run); difference != "" && !opts.AnySize {
		return fmt.Errorf("compare %s with %s: %s; to compare different sizes, add --any-size", opts.B, opts.A, difference)
	}
	doc := comparison.Build(a, b, opts.Verdicts, slices.Concat(notesA, notesB))
	return opts.Output.Print(opts.Streams, doc)
}
