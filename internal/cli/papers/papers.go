// Package papers is the command "unnest papers": it tests what papers claim against runs.
package papers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/docs/results"
	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/claims"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/image"
)

// Options are the arguments and flags of the command.
type Options struct {
	Streams terminal.Streams
	Dirs    []string // run directories that replace published runs
	Run     string   // directory of runs that are measured; empty: none
	Output  document.Output
}

// NewCmd returns the command, which calls run.
func NewCmd(streams terminal.Streams, run func(context.Context, Options) error) *cobra.Command {
	opts := Options{Streams: streams}
	cmd := &cobra.Command{
		Use:   "papers [DIR]...",
		Short: "Test what the papers claim",
		Long: `Test every claim of the four papers that has a number or an order: what the paper
says, what was measured here with its interval, whether they agree, and the
command that measures it again.

The runs are those that are published with this program. A run of yours in DIR
replaces the published run of its experiment. Name one run of each. A run of only
some cases decides no claim about all of them.

With --run, unnest bench measures the experiments that the claims need, each into
a directory below DIR, that with the most claims for its time first: 7 hours in
all. Ctrl-C stops it, and the same command goes on.`,
		Example: `  unnest papers
  unnest papers -o papers.html
  unnest papers runs/20260314-092653-brfusion runs/20260314-113012-hostlo
  unnest papers --run runs/papers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Dirs = args
			return run(cmd.Context(), opts)
		},
	}
	cmd.Flags().StringVar(&opts.Run, "run", "", "measure what has no complete run below `DIR`, and test the claims against the runs there")
	opts.Output.AddFlags(cmd)
	cmd.ValidArgsFunction = document.CompleteRuns
	opts.Output.AddJSONFlag(cmd, "the same as --format json")
	return cmd
}

// Run prints the papers' claims with what the runs show.
func Run(ctx context.Context, opts Options) error {
	if err := opts.Output.Check(); err != nil {
		return err
	}
	runs, err := published()
	if err != nil {
		return err
	}
	all, g := studies(runs), given{runs: runs, dirs: map[string]string{}}
	if err := g.replace(opts.Dirs); err != nil {
		return err
	}
	var failed error
	if opts.Run != "" {
		has := func(s study) bool { return g.dirs[s.experiment] != "" }
		all = slices.DeleteFunc(all, has)
		if err := g.replace(complete(opts.Run, all)); err != nil {
			return err
		}
		rest := slices.DeleteFunc(all, has)
		program, err := os.Executable()
		if err == nil && len(rest) > 0 {
			err = doctor.Preflight(ctx, doctor.System(image.CacheDir()), doctor.ForMeasurements)
		}
		if err != nil {
			return err
		}
		if failed = measure(ctx, opts, program, rest); ctx.Err() != nil || errors.Is(failed, errNotBegun) {
			return failed
		}
		if err := g.replace(complete(opts.Run, rest)); err != nil {
			return errors.Join(err, failed)
		}
	}
	return errors.Join(opts.Output.Print(opts.Streams, claims.Build(g.runs, g.warnings)), failed)
}

// given is what the claims are tested against.
type given struct {
	runs     map[string]provenance.Source // by the names of the published runs
	dirs     map[string]string            // of the user's runs, by experiment
	warnings []string                     // of the user's runs
}

// replace puts each run in dirs in place of the published run of its experiment. A second run of one is an error.
func (g *given) replace(dirs []string) error {
	for _, dir := range dirs {
		input, notes, err := document.Load(dir)
		if err != nil {
			return err
		}
		experiment := input.Run.Experiment
		if other := g.dirs[experiment]; other != "" {
			return fmt.Errorf("read run %s: %s is a run of experiment %s, too; name one run of each experiment", dir, other, experiment)
		}
		used, warnings := false, slices.Concat(provenance.Warnings(input.Run, input.Samples), notes)
		for name, published := range g.runs {
			if published.Run.Experiment != experiment {
				continue
			}
			claimed := input // claims about all cases are about those of the published run, too
			claimed.Run.Cases = slices.Concat(input.Run.Cases, slices.DeleteFunc(slices.Clone(published.Run.Cases), func(c result.Case) bool {
				return slices.ContainsFunc(input.Run.Cases, func(has result.Case) bool { return has.Name == c.Name })
			}))
			g.runs[name], used = claimed, true
			if difference := comparison.SetupDifference(published.Run, input.Run); difference != "" {
				warnings = append(warnings, fmt.Sprintf("The run (B) is not set up as the published one (A): %s.", difference))
			}
		}
		if !used {
			return fmt.Errorf("read run %s: no claim is about experiment %s", dir, experiment)
		}
		g.dirs[experiment] = dir
		for _, w := range warnings {
			g.warnings = append(g.warnings, dir+": "+w)
		}
	}
	return nil
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

// study is an experiment that claims need.
type study struct {
	experiment string
	claims     int
	worth      float64 // claims per second of the published runs
}

// studies returns the experiments of the published runs, the one with the most claims for its time first.
func studies(runs map[string]provenance.Source) []study {
	var all []study
	seconds := map[string]float64{}
	for _, c := range claims.All() {
		if c.Run == "" {
			continue
		}
		run := runs[c.Run].Run
		i := slices.IndexFunc(all, func(s study) bool { return s.experiment == run.Experiment })
		if i < 0 {
			i, all = len(all), append(all, study{experiment: run.Experiment})
			seconds[run.Experiment] = run.Ended.Sub(run.Started).Seconds()
		}
		all[i].claims++
	}
	for i, s := range all {
		all[i].worth = float64(s.claims) / seconds[s.experiment]
	}
	slices.SortStableFunc(all, func(a, b study) int {
		return cmp.Or(cmp.Compare(b.worth, a.worth), strings.Compare(a.experiment, b.experiment))
	})
	return all
}

// errNotBegun says that the first experiment made no run, as the next ones would not either.
var errNotBegun = errors.New("it failed before it began")

// measure measures each experiment by program, this one, into a directory below opts.Run, unless a run there is complete.
// It continues a run that is not. The error names the experiments that failed; the others have been measured, unless it is errNotBegun.
func measure(ctx context.Context, opts Options, program string, all []study) error {
	var failed []string
	for i, s := range all {
		dir := filepath.Join(opts.Run, s.experiment)
		args := append(append([]string{"bench"}, strings.Fields(experiments.Command(s.experiment))...), "--output", dir)
		switch run, err := rundir.ReadRun(dir); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case run.State == result.Complete:
			continue
		default:
			args = []string{"bench", "--resume", dir}
		}
		fmt.Fprintf(opts.Streams.Err, "[%d/%d] unnest %s (claims: %d)\n", i+1, len(all), strings.Join(args, " "), s.claims)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stderr = opts.Streams.Err
		// It removes what it has made, and its run can be continued.
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		err := cmd.Run()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, none := rundir.ReadRun(dir); err != nil && none != nil && i == 0 {
			return fmt.Errorf("measure for %s: %s: %w", opts.Run, s.experiment, errNotBegun)
		}
		if err != nil {
			failed = append(failed, s.experiment)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("measure for %s: %s failed; repeat the command to go on, without the directory of a run that is refused", opts.Run, strings.Join(failed, ", "))
	}
	return nil
}

// complete returns the directories of the complete runs of experiments below dir.
func complete(dir string, all []study) (dirs []string) {
	for _, s := range all {
		one := filepath.Join(dir, s.experiment)
		if run, err := rundir.ReadRun(one); err == nil && run.State == result.Complete {
			dirs = append(dirs, one)
		}
	}
	return dirs
}
