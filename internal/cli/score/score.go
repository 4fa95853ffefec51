// Package score is the command "unnest score": it reads results from a CSV file and
// prints their scores.
package score

import (
	"context"

	"github.com/spf13/cobra"

	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
	"unnest/internal/measure/score"
	"unnest/internal/report"
)

// Options are what the command line asks for.
type Options struct {
	Streams terminal.Streams
	File    string // - is standard input
	Score   score.Options
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
		Use:   "score FILE.csv",
		Short: "Sum up suites of results as total scores, and say what the totals hide",
		Long: `Sum up suites of results as total scores, and say what the totals hide.

The file has a header with the columns suite, case, order, unit, configuration
and value, in any order; other columns are ignored, and so are lines that begin
with #. order is HIB (higher is better) or LIB (lower is better), value a
positive number. Rows of the same case and configuration are repetitions, of
which the mean counts. A dash for the file reads standard input.

A score is a mean over the highest mean of all configurations in the case. The
total adds the scores up and subtracts those of LIB cases. So totals depend on
which configurations and cases are in the file; the geometric mean of ratios to
the baseline, above 1 where a configuration is better, does not depend on the
other configurations. Its 95 % interval says how much the ratio differs from case
to case. Warnings name what turns the order by total when it is left out.

A case that some configurations of its suite lack counts in no total, unless
--partial is given.`,
		Example: `  unnest score results.csv
  unnest score results.csv --baseline metal.local --json
  unnest score results.csv -o scores.html
  unnest score - < results.csv`,
		Args: usage.Args("FILE.csv"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.File = args[0]
			return runF(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Score.Baseline, "baseline", "", "`NAME` of the configuration that geometric means are taken against (default: the first of each suite)")
	cmd.Flags().BoolVar(&opts.Score.Partial, "partial", false, "count cases that some configurations lack, and mark the totals of those")
	opts.Output.AddFlags(cmd)
	opts.Output.AddJSONFlag(cmd, "print an object with suites by name")
	return cmd
}

func run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	suites, err := load(opts)
	if err != nil {
		return err
	}
	return opts.Output.Print(opts.Streams, report.Scores(suites))
}
