package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/testbed/guest"
)

// dryRun prints the executions of the first block and the expected duration of the run.
func dryRun(o Options) error {
	s, err := asked(o)
	if err != nil {
		return err
	}
	accel, err := guest.ChooseAccel(guest.Accel(o.Accel))
	if err != nil {
		return err
	}
	past, err := learn(document.RunsDir, string(accel.Accel))
	if err != nil {
		return err
	}
	seed, random := s.Seed, ""
	if seed == 0 {
		seed, random = drawSeed(), " (random: a run has another one unless the file sets seed)"
	}
	f := forecast{spec: s, past: past, schedule: experiment.Schedule(s, seed)}
	out := o.Streams.Out
	warmup := ""
	if n := len(s.Warmups()); n > 0 {
		warmup = fmt.Sprintf("%d executions to warm up, then ", n)
	}
	_, err = fmt.Fprintf(out, "%s: %s%d blocks × %d cases × %d configurations%s = %d executions\naccelerator %s (%s); seed %d%s\n\n",
		s.Name, warmup, s.Repetitions, len(s.Cases), len(s.Configurations), f.seldom(), len(f.schedule), accel.Accel, accel.Reason, seed, random)
	return errors.Join(err, f.printBlock(out), f.printTotal(out))
}

// history is the history of earlier runs.
type history struct {
	experiment.History
	runs       int
	unreadable int
}

// learn reads the runs in dir that have samples and used the accelerator.
func learn(dir, accel string) (h history, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("read earlier runs: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		run, samples, err := rundir.Load(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && (run.Accelerator != accel || len(samples) == 0) {
			continue
		}
		s, errPlanned := checked(experiment.FromRun(path, run))
		if err != nil || errPlanned != nil {
			h.unreadable++
			continue
		}
		h.runs++
		h.Add(s, samples)
	}
	return h, nil
}

// forecast predicts the duration of a schedule.
type forecast struct {
	spec     *experiment.Spec
	past     history
	schedule []experiment.Execution
}

// seldom says which cases are in the first blocks only.
func (f forecast) seldom() (text string) {
	for _, c := range f.spec.Cases {
		if c.Blocks > 0 {
			text += fmt.Sprintf(", case %s in %d blocks only,", c.Name, c.Blocks)
		}
	}
	return strings.TrimSuffix(text, ",")
}

// printBlock lists the first block in order. It prints the name of a case once.
func (f forecast) printBlock(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Block 1 of %d; the others have the same executions in different orders.\n", f.spec.Repetitions)
	previous := ""
	for i, x := range f.schedule[:len(f.spec.Cases)*len(f.spec.Configurations)] {
		name := x.Case.Name
		if name == previous {
			name = ""
		}
		previous = x.Case.Name
		took, n := f.past.Expect(x)
		source := "estimate"
		if n > 0 {
			source = fmt.Sprintf("learned from %d executions", n)
		}
		fmt.Fprintf(t, "%4d\t%s\t%s\t%s\t%s\n", i+1, name, x.Configuration.Name, took.Round(100*time.Millisecond), source)
	}
	return t.Flush()
}

// sum adds up the expected durations, and counts those that are learned.
func (f forecast) sum(schedule []experiment.Execution) (total time.Duration, learned int) {
	for _, x := range schedule {
		took, n := f.past.Expect(x)
		total += took
		if n > 0 {
			learned++
		}
	}
	return total, learned
}

// further is the expected duration of a block beyond the schedule, if all cases are in it.
func (f forecast) further() time.Duration {
	cases, _ := f.sum(slices.DeleteFunc(slices.Clone(f.schedule), func(x experiment.Execution) bool { return x.Block > 0 || x.Case.Blocks > 0 }))
	return cases + f.spec.Renewal()
}

// printTotal prints the expected duration of the run, and the warnings.
func (f forecast) printTotal(w io.Writer) error {
	blocks, learned := f.sum(f.schedule)
	blocks += f.spec.Renewal() * time.Duration(f.spec.Repetitions)
	warmup, _ := f.sum(f.spec.Warmups())
	if warmup > 0 {
		warmup += f.spec.Renewal()
	}
	text := fmt.Sprintf("\nExpected duration: %s without booting guests. It is learned for %d of %d executions, from %d runs in %s.\n",
		(blocks + warmup).Round(time.Second), learned, len(f.schedule), f.past.runs, document.RunsDir)
	if learned < len(f.schedule) && slices.ContainsFunc(f.schedule, func(x experiment.Execution) bool { return x.Case.Local != nil }) {
		text += "An estimate is what a case of a suite takes on a slow emulated processor. Most cases take less than half of it.\n"
	}
	if more := f.spec.Limit - f.spec.Repetitions; f.spec.Until > 0 && more > 0 {
		text += fmt.Sprintf("Up to %d more blocks follow for cases of which a ratio is not known to ± %.3g %%: %s more at most.\n",
			more, 100*f.spec.Until, (f.further() * time.Duration(more)).Round(time.Second))
	}
	if f.past.unreadable > 0 {
		text += fmt.Sprintf("Ignored %d unreadable runs in %s.\n", f.past.unreadable, document.RunsDir)
	}
	for _, warning := range f.spec.Warnings() {
		text += "warning: " + warning + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
