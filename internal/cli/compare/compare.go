// Package compare is the command "unnest compare": it compares two runs, or two published
// means.
package compare

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/means"
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

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
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
			return run(cmd.Context(), opts)
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

// Run prints the comparison.
func Run(_ context.Context, opts Options) error {
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

// compareSummaries compares the means in opts.A and opts.B.
func compareSummaries(opts Options) error {
	a, err := parseMoments("A", opts.A)
	if err != nil {
		return err
	}
	b, err := parseMoments("B", opts.B)
	if err != nil {
		return err
	}
	doc, err := means.Build(a, b)
	if errors.Is(err, stats.ErrNoVariance) {
		return usage.Errorf("arguments A and B: both standard errors are 0, so there is no test: give at least one above 0, with more digits if it was rounded")
	}
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, doc)
}

// parseMoments reads MEAN,STANDARD_ERROR,N. Errors call the argument name.
func parseMoments(name, text string) (stats.Moments, error) {
	refuse := func(why string) (stats.Moments, error) {
		return stats.Moments{}, usage.Errorf("argument %s, %q: %s", name, text, why)
	}
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return refuse("want MEAN,STANDARD_ERROR,N, such as 1068.5,2.40,6")
	}
	var numbers [2]float64
	for i, what := range []string{"mean", "standard error"} {
		x, err := strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return refuse(fmt.Sprintf("%s %q is not a finite number: write it as 1068.5 or 3.3e-4", what, fields[i]))
		}
		numbers[i] = x
	}
	if numbers[1] < 0 {
		return refuse(fmt.Sprintf("standard error %s is negative: give the standard error of the mean, s/√n", fields[1]))
	}
	n, err := strconv.Atoi(strings.TrimSpace(fields[2]))
	if err != nil || n < 2 {
		return refuse(fmt.Sprintf("N %q: give the number of runs, a whole number of at least 2", fields[2]))
	}
	return stats.Moments{N: n, Mean: numbers[0], StdErr: numbers[1]}, nil
}
