// Package score is the command "unnest score": it reads results from a CSV file and
// prints their scores.
package score

import (
	"context"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/scores"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	File    string // - is standard input
	Score   score.Options
	Output  document.Output
}

// NewCmd returns the command. Tests pass a runF that receives the options.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "score FILE.csv",
		Short: "Compute the total scores of suites, and say what the totals hide",
		Long: `Compute the total scores of suites of results, and say what the totals hide.

The file has a header with the columns suite, case, order, unit, configuration
and value, in any order. Other columns and lines that begin with # are ignored.
order is HIB (higher is better) or LIB (lower is better), value a positive number.
Rows of the same case and configuration are repetitions; their mean counts. The
file - is standard input.

A score is a mean divided by the highest mean of all configurations in the case.
The total is the sum of the scores less those of LIB cases. Totals depend on which
configurations and cases are in the file. The geometric mean of the ratios to the
baseline, above 1 where a configuration is better, does not depend on the other
configurations. Its 95 % interval says how much the ratio differs from case to
case. Warnings name the cases and configurations without which the order by total
is different.

A case without results in some configuration counts in no total, unless --partial
is given.`,
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
	cmd.Flags().StringVar(&opts.Score.Baseline, "baseline", "", "`NAME` of the configuration that geometric means are relative to (default: the first of each suite)")
	cmd.Flags().BoolVar(&opts.Score.Partial, "partial", false, "count cases without results in some configuration, and mark those totals as partial")
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
	return opts.Output.Print(opts.Streams, scores.Build(suites))
}
