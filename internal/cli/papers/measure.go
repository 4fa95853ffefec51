package papers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/claims"
	"unnest.io/unnest/internal/report/provenance"
)

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

// measure measures each experiment by program, this one, into a directory below opts.Run, unless a run there is complete.
// It continues a run that is not. The error names the experiments that failed; the others have been measured.
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
		fmt.Fprintf(opts.Streams.Err, "[%d/%d] unnest %s (%d claims)\n", i+1, len(all), strings.Join(args, " "), s.claims)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stderr = opts.Streams.Err
		// It removes what it has made, and its run can be continued.
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
		err := cmd.Run()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = append(failed, s.experiment)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("measure for %s: %s failed; repeat the command to go on", opts.Run, strings.Join(failed, ", "))
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
