package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/cli/version"
	"unnest.io/unnest/internal/measure/bench"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/noise/procfs"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
	page "unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/render/text"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// start creates a run and measures it.
func start(ctx context.Context, o Options) error {
	spec, err := asked(o)
	if err != nil {
		return err
	}
	accel, err := ready(ctx, o)
	if err != nil {
		return err
	}
	spec.AddMetrics(bench.Metrics(spec)...)
	return begin(o.Streams, o.Dir, "unnest bench", spec, func(dir *rundir.Dir) (bool, error) { return measure(ctx, o, accel, spec, dir) })
}

// ready chooses the accelerator, and returns an error unless this machine can run experiments. It makes nothing.
func ready(ctx context.Context, o Options) (guest.Choice, error) {
	accel, err := guest.ChooseAccel(guest.Accel(o.Accel))
	if err == nil {
		err = doctor.Preflight(ctx, doctor.System(image.CacheDir()), doctor.ForMeasurements)
	}
	return accel, err
}

// begin measures a run in directory, or in a new one named after time and experiment if directory is empty. It removes the run if no
// execution has begun.
func begin(streams terminal.Streams, directory, command string, spec *experiment.Spec, measure func(*rundir.Dir) (begun bool, err error)) error {
	now, seed := time.Now(), spec.Seed
	if seed == 0 {
		seed = drawSeed()
	}
	dir, err := create(directory, func(path string) result.Run { return spec.NewRun(filepath.Base(path), seed, now) },
		filepath.Join(document.RunsDir, now.Format("20060102-150405")+"-"+spec.Name))
	if err != nil {
		return err
	}
	path := dir.Path()
	begun, err := measure(dir)
	err = errors.Join(err, dir.Close())
	if !begun {
		return errors.Join(err, discard(path))
	}
	return finish(streams, path, command, err)
}

func asked(o Options) (*experiment.Spec, error) {
	s, err := load(o.Experiment, suite.Profile(o.Profile), o.Suites...)
	if err == nil && len(o.Cases) > 0 {
		if err = s.Choose(o.Cases); err != nil {
			err = usage.Wrap(err)
		}
	}
	if err == nil && o.Repetitions > 0 {
		err = s.Repeat(o.Repetitions)
	}
	return s, err
}

// create creates the run directory wanted, or if that is empty, proposed. It appends a
// number to proposed if another run of the same second has that name.
func create(wanted string, run func(path string) result.Run, proposed string) (*rundir.Dir, error) {
	if wanted != "" {
		return rundir.Create(wanted, run(wanted))
	}
	for path, n := proposed, 2; ; path, n = fmt.Sprintf("%s-%d", proposed, n), n+1 {
		dir, err := rundir.Create(path, run(path))
		if !errors.Is(err, rundir.ErrHoldsRun) && !errors.Is(err, rundir.ErrLocked) {
			return dir, err
		}
	}
}

// discard removes the run in path, which has no sample, and the directory if it has no
// other files.
func discard(path string) error {
	err := os.Remove(filepath.Join(path, rundir.RunFile))
	err = errors.Join(err, os.Remove(filepath.Join(path, rundir.SamplesFile)))
	if errDir := os.Remove(path); !errors.Is(errDir, os.ErrExist) {
		err = errors.Join(err, errDir)
	}
	return err
}

// needsVirtualization reports whether a configuration has PVH or HVM domains of a Xen host that the run boots.
func needsVirtualization(c stack.Configuration) bool {
	return c.Host == "" && slices.ContainsFunc(c.Singles(), func(one stack.Configuration) bool {
		return one.Stack[0] == stack.XenPVH || one.Stack[0] == stack.XenHVM
	})
}

// measure brings the experiment up, runs it and takes it down. begun reports whether the
// executions began.
func measure(ctx context.Context, o Options, accel guest.Choice, s *experiment.Spec, dir *rundir.Dir) (begun bool, err error) {
	build := version.Get()
	now := result.Run{Accelerator: string(accel.Accel), AccelReason: accel.Reason, Start: string(o.Start), Version: build.Version, Revision: build.Revision}
	if now.Host, err = machine.DescribeHost(ctx); err == nil {
		err = sameMachines(dir, now) // before guests boot
	}
	if err != nil {
		return false, err
	}
	binaries, err := guestimage.BinariesDir()
	if err != nil {
		return false, err
	}
	if _, err := os.Stat(filepath.Join(binaries, "unnest-cni")); err != nil { // before it waits for a quiet machine
		return false, fmt.Errorf("find the programs of guests: %w: run `make build`, or install a package", err)
	}
	notes, err := tidy(ctx, o.Streams)
	if err != nil {
		return false, err
	}
	s.Noisy = o.Noisy
	if !o.Noisy {
		if err := awaitQuiet(ctx, o.Streams, look); err != nil {
			return false, err
		}
	}
	fmt.Fprintf(o.Streams.Err, "%s: %d executions; accelerator %s (%s)\n", s.Name, dir.Run().Planned, accel.Accel, accel.Reason)
	for _, w := range s.Warnings() {
		fmt.Fprintln(o.Streams.Err, "warning: "+w)
	}
	if accel.Accel == guest.TCG && slices.ContainsFunc(s.Configurations, needsVirtualization) {
		if limits := doctor.XenDomains(ctx, doctor.System(image.CacheDir())); limits != "" {
			fmt.Fprintln(o.Streams.Err, "warning: "+limits)
		}
	}
	progress := newProgress(o.Streams.Err, o.Streams.ErrWidth)
	b, err := bench.Up(ctx, s, machines.Options{
		Lab: "run-" + strings.ToLower(rand.Text()[:8]), Accel: accel.Accel, Binaries: binaries, Progress: progress, Restore: o.Start == stack.Restored || o.Start == "" && s.Fresh,
	})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, b.Down()) }()
	facts := b.Facts()
	now.Guests, now.Image, now.Tools = facts.Guests, facts.Image, facts.Tools
	now.Notes, now.Conditions = slices.Concat(notes, facts.Notes), facts.Conditions
	if err := record(dir, now); err != nil {
		return false, err
	}
	return true, experiment.Run(ctx, s, dir, b, &firstReport{progress: progress, path: dir.Path()})
}

// tidy removes the remains of killed runs from this machine. It returns a note if other
// runs are active, because they disturb this one.
func tidy(ctx context.Context, streams terminal.Streams) (notes []string, err error) {
	reaped, err := lab.Reap(ctx)
	for _, name := range reaped {
		fmt.Fprintf(streams.Err, "removed the remains of %s, which was killed\n", name)
	}
	if err != nil { // what is left may disturb the run: the note says so
		fmt.Fprintf(streams.Err, "warning: remove the remains of killed runs: %v\n", err)
	}
	others, err := lab.List()
	if err == nil && len(others) > 0 {
		notes = append(notes, fmt.Sprintf("other labs were active on this machine when the run began (%s) and may have disturbed the results", strings.Join(others, ", ")))
		fmt.Fprintln(streams.Err, "warning: "+notes[0])
	}
	return notes, err
}

// finish reports the run of a command, complete or not, and returns its error why.
func finish(streams terminal.Streams, path, command string, why error) error {
	input, notes, err := document.Load(path)
	if err != nil {
		return errors.Join(why, err)
	}
	if len(input.Samples) > 0 {
		doc := document.Build(input, notes)
		html := filepath.Join(path, reportFile)
		err = errors.Join(
			text.Print(streams.Out, doc, text.Options{Width: streams.OutWidth, Colour: streams.Colour, Brief: true}),
			writeReport(html, doc),
			aa(streams.Out, input.Run, input.Samples))
		if err == nil {
			_, err = fmt.Fprintf(streams.Out, "\nrun directory  %s\nreport         %s\nall tables     unnest report %s\n", path, html, path)
		}
	}
	if why != nil && !errors.As(why, new(elsewhereError)) {
		why = fmt.Errorf("%w; the samples are kept: continue with `%s --resume %s`", why, command, path)
	}
	return errors.Join(why, err)
}

// Times of the look at the machine before a run.
const (
	lookTime = time.Second
	waitTime = 30 * time.Second
)

// awaitQuiet looks at this machine until no other process keeps it busy, for at most
// waitTime.
func awaitQuiet(ctx context.Context, streams terminal.Streams, look func(context.Context) (noise.Reading, error)) error {
	end := time.Now().Add(waitTime)
	for told := false; ; told = true {
		r, err := look(ctx)
		if err != nil || !r.Disturbed() {
			return err
		}
		if time.Now().After(end) {
			fmt.Fprintf(streams.Err, "warning: %s: this run may be too noisy to conclude\n", r)
			return nil
		}
		if !told {
			fmt.Fprintf(streams.Err, "%s: waiting up to %s for a quiet machine; --noisy begins at once\n", r, waitTime)
		}
	}
}

// look says what other processes do for a moment.
func look(ctx context.Context) (noise.Reading, error) {
	before, err := procfs.Read()
	if err != nil {
		return noise.Reading{}, err
	}
	select {
	case <-ctx.Done():
		return noise.Reading{}, context.Cause(ctx)
	case <-time.After(lookTime):
	}
	after, err := procfs.Read()
	if err != nil {
		return noise.Reading{}, err
	}
	return after.Since(before, os.Getpid())
}

const reportFile = "report.html"

func writeReport(path string, doc page.Document) error {
	return document.WriteFile(path, func(w io.Writer) error { return html.Print(w, doc) })
}

// firstReport prints and writes the report of a run that has its least number of blocks and goes on
// for precision, so that nobody has to wait for the end.
type firstReport struct {
	*progress
	path string // of the run directory
	done bool
}

// Report shows the event. It runs between two executions, so that it disturbs none.
func (r *firstReport) Report(e experiment.Event) {
	if e.Kind == experiment.Extended && !r.done {
		r.done = true
		r.note(r.write())
	}
	r.progress.Report(e)
}

func (r *firstReport) write() string {
	var out strings.Builder
	input, notes, err := document.Load(r.path)
	path := filepath.Join(r.path, reportFile)
	if err == nil {
		doc := document.Build(input, notes)
		err = errors.Join(text.Print(&out, doc, text.Options{Width: r.width, Brief: true}), writeReport(path, doc))
	}
	if err != nil {
		return fmt.Sprintf("write first report: %v", err)
	}
	return fmt.Sprintf("first report, also %s:\n\n%s\nfurther blocks make it more precise; Ctrl-C keeps it", path, &out)
}
