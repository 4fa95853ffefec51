// Package papers is the command "unnest papers": it tests what papers claim against runs.
package papers

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"unnest/docs/results"
	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/measure/noise"
	"unnest/internal/measure/rundir"
	"unnest/internal/report/claims"
	"unnest/internal/report/provenance"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dirs    []string // run directories that replace published runs
	Output  document.Output
}

// NewCmd returns the command. Tests pass a runF that receives the options.
func NewCmd(streams terminal.Streams, runF func(context.Context, Options) error) *cobra.Command {
	if runF == nil {
		runF = run
	}
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "papers [DIR]...",
		Short: "Test what the papers claim",
		Long: `Test every claim of the four papers that has a number or an order: what the paper
says, what was measured here with its interval, whether they agree, and the
command that measures it again.

The runs are those that are published with this program. A run of yours in DIR
replaces the published run of its experiment.`,
		Example: `  unnest papers
  unnest papers -o papers.html
  unnest papers runs/20260314-092653-brfusion runs/20260314-113012-hostlo`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dirs = args
			return runF(cmd.Context(), opts)
		},
	}
	opts.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = document.CompleteRuns
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

func run(_ context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	runs, err := published()
	if err != nil {
		return err
	}
	for _, dir := range opts.Dirs {
		input, _, err := document.Load(dir)
		if err != nil {
			return err
		}
		used := false
		for name, other := range runs {
			if other.Run.Experiment == input.Run.Experiment {
				runs[name], used = input, true
			}
		}
		if !used {
			return fmt.Errorf("read run %s: no claim is about experiment %s", dir, input.Run.Experiment)
		}
	}
	return opts.Output.Print(opts.Streams, claims.Build(runs))
}

// published returns the published runs that the claims need.
func published() (map[string]provenance.Source, error) {
	names := claims.Runs()
	inputs := make([]provenance.Source, len(names))
	var all errgroup.Group
	for i, name := range names {
		all.Go(func() error {
			dir := "runs/" + name
			run, journal, err := rundir.ReadFS(results.Runs, dir)
			inputs[i] = provenance.Source{Dir: "docs/results/" + dir, Run: run, Samples: noise.Select(journal)}
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	runs := map[string]provenance.Source{}
	for i, name := range names {
		runs[name] = inputs[i]
	}
	return runs, nil
}
