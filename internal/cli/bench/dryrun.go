package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/testbed/guest"
)

// runsDir is where runs go unless the user says otherwise.
const runsDir = "runs"

// dryRun prints what an experiment would run, in which order, and how long it would
// take by what earlier runs took.
func dryRun(o Options) error {
	s, err := asked(o)
	if err != nil {
		return err
	}
	accel, err := guest.ChooseAccel(guest.Accel(o.Accel))
	if err != nil {
		return err
	}
	past, err := learn(runsDir, string(accel.Accel))
	if err != nil {
		return err
	}
	seed, drawn := s.Seed, ""
	if seed == 0 {
		seed, drawn = drawSeed(), ", drawn for this list: a run draws its own unless the file says seed"
	}
	f := forecast{spec: s, past: past, plan: experiment.Schedule(s, seed)}
	out := o.Streams.Out
	warmup := ""
	if n := len(s.Warmups()); n > 0 {
		warmup = fmt.Sprintf("%d executions to warm up, then ", n)
	}
	_, err = fmt.Fprintf(out, "%s: %s%d blocks × %d cases × %d configurations = %d executions\naccelerator %s (%s); seed %d%s\n\n",
		s.Name, warmup, s.Repetitions, len(s.Cases), len(s.Configurations), len(f.plan), accel.Accel, accel.Reason, seed, drawn)
	if err != nil {
		return err
	}
	return errors.Join(f.printBlock(out), f.printTotal(out))
}

// history is what was learned from earlier runs.
type history struct {
	experiment.History
	runs   int
	others int // that could not be read
}

// learn reads the runs below dir that were made with the accelerator. A run that
// cannot be read any more is counted, and teaches nothing.
func learn(dir, accel string) (h history, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("learn from earlier runs: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		run, samples, err := result.Load(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && (run.Accelerator != accel || len(samples) == 0) {
			continue
		}
		s, errPlanned := planned(path, run)
		if err != nil || errPlanned != nil {
			h.others++
			continue
		}
		h.runs++
		h.Add(s, samples)
	}
	return h, nil
}

// forecast tells what a plan will take.
type forecast struct {
	spec *experiment.Spec
	past history
	plan []experiment.Execution
}

// printBlock lists the first block in its order, the case only in its first line.
func (f forecast) printBlock(w io.Writer) error {
	_, err := fmt.Fprintf(w, "Block 1 of %d; the others have the same executions in other orders.\n", f.spec.Repetitions)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	name := ""
	for i, x := range f.plan[:len(f.spec.Cases)*len(f.spec.Configurations)] {
		shown := ""
		if x.Case.Name != name {
			shown, name = x.Case.Name, x.Case.Name
		}
		took, n := f.past.Expect(x)
		source := "estimate"
		if n > 0 {
			source = fmt.Sprintf("learned from %d executions", n)
		}
		fmt.Fprintf(t, "%4d\t%s\t%s\t%s\t%s\n", i+1, shown, x.Configuration.Name, took.Round(100*time.Millisecond), source)
	}
	return t.Flush()
}

// sum adds up what executions will take, and counts those that are learned.
func (f forecast) sum(plan []experiment.Execution) (total time.Duration, learned int) {
	for _, x := range plan {
		took, n := f.past.Expect(x)
		total += took
		if n > 0 {
			learned++
		}
	}
	return total, learned
}

// printTotal says how long all takes, and how that is known.
func (f forecast) printTotal(w io.Writer) error {
	planned, learned := f.sum(f.plan)
	planned += f.spec.Renewal() * time.Duration(f.spec.Repetitions)
	warmup, _ := f.sum(f.spec.Warmups())
	if warmup > 0 {
		warmup += f.spec.Renewal()
	}
	text := fmt.Sprintf("\nIt takes about %s without the boot of guests: of %d executions, the times of %d are learned from %d runs in %s, those of %d are estimates.\n",
		(planned + warmup).Round(time.Second), len(f.plan), learned, f.past.runs, runsDir, len(f.plan)-learned)
	if more := f.spec.Limit - f.spec.Repetitions; f.spec.Until > 0 && more > 0 {
		block := planned / time.Duration(f.spec.Repetitions)
		text += fmt.Sprintf("Up to %d blocks more follow of the cases whose mean is not known to %.3g %%: %s more at most.\n",
			more, 100*f.spec.Until, (block * time.Duration(more)).Round(time.Second))
	}
	if f.past.others > 0 {
		text += fmt.Sprintf("%d runs in %s could not be read and teach nothing.\n", f.past.others, runsDir)
	}
	for _, warning := range f.spec.Warnings() {
		text += "warning: " + warning + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
