// Package papers is the command "unnest papers": it tests what papers claim against runs.
package papers

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/docs/results"
	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/claims"
	"unnest.io/unnest/internal/report/provenance"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dirs    []string // run directories that replace published runs
	Run     string   // directory of runs that are measured; empty: none
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
replaces the published run of its experiment.

With --run, unnest bench measures the experiments that the claims need, each into
a directory below DIR, that with the most claims for its time first: 7 hours in
all. Ctrl-C stops it, and the same command goes on.`,
		Example: `  unnest papers
  unnest papers -o papers.html
  unnest papers runs/20260314-092653-brfusion runs/20260314-113012-hostlo
  unnest papers --run runs/papers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dirs = args
			return runF(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Run, "run", "", "measure what has no complete run below `DIR`, and test the claims against the runs there")
	opts.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = document.CompleteRuns
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

func run(ctx context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	runs, err := published()
	if err != nil {
		return err
	}
	var failed error
	if opts.Run != "" {
		program, err := os.Executable()
		if err != nil {
			return err
		}
		all := studies(runs)
		if failed = measure(ctx, opts, program, all); ctx.Err() != nil {
			return failed
		}
		opts.Dirs = append(opts.Dirs, complete(opts.Run, all)...)
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
	return errors.Join(opts.Output.Print(opts.Streams, claims.Build(runs)), failed)
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
