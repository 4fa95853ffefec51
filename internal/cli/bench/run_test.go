package bench

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
)

// content returns the contents of the files in dir; directories have "/".
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			files[name] = "/"
			return nil
		}
		text, err := os.ReadFile(path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// createRun creates a run directory of the experiment small, with n samples.
func createRun(t *testing.T, path, text string, state result.State, n int) {
	t.Helper()
	spec, err := experiment.Parse("small.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	spec.Text = text
	createRunOf(t, path, spec, state, n)
}

// createRunOf creates a run directory of spec, with n samples.
func createRunOf(t *testing.T, path string, spec *experiment.Spec, state result.State, n int) {
	t.Helper()
	dir, err := rundir.Create(path, spec.NewRun("r1", 1, time.Unix(1000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	appendSamples(t, dir, spec, n)
	if err := dir.Update(func(r *result.Run) { r.State = state }); err != nil {
		t.Fatal(err)
	}
}

// appendSamples appends those of the first n executions of spec.
func appendSamples(t *testing.T, dir *rundir.Dir, spec *experiment.Spec, n int) {
	t.Helper()
	for i, x := range experiment.Schedule(spec, 1)[:n] {
		m := x.Case.Metrics[0]
		if err := dir.Append([]result.Sample{{
			Run: "r1", Configuration: x.Configuration.Name, Suite: x.Case.Suite, Case: x.Case.Name,
			Metric: m.Name, Unit: m.Unit, Order: m.Order, Value: 100 + float64(i),
			Block: x.Block, Repetition: x.Repetition, Boot: "b1", Start: time.Unix(1000, 0), Duration: 1,
		}}); err != nil {
			t.Fatal(err)
		}
	}
}

// beginSmall begins a run of the experiment small, whose measurement fails before its first execution.
func beginSmall(t *testing.T, streams terminal.Streams, directory string, failure error) error {
	t.Helper()
	spec, err := experiment.Parse("small.yaml", []byte(small))
	if err != nil {
		t.Fatal(err)
	}
	return begin(streams, directory, "unnest bench", spec, func(*rundir.Dir) (bool, error) { return false, failure })
}

// If the run directory cannot be created, or has another run, nothing is booted and no
// file changes.
func TestStartWithoutDirectory(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string)
		output  string
		is      error
		want    string
	}{
		{"below a file", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "file/run", nil, "create run directory"},
		{"a file", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "file"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "file", nil, "create run directory"},
		{"default below a file", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "runs"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "", nil, "create run directory"},
		{"holds a run", func(t *testing.T, dir string) {
			createRun(t, filepath.Join(dir, "run"), small, result.Interrupted, 2)
		}, "run", rundir.ErrHoldsRun, "continue it with --resume"},
		{"holds a journal", func(t *testing.T, dir string) {
			path := filepath.Join(dir, "run")
			if err := errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, rundir.SamplesFile), []byte("{}\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}, "run", rundir.ErrHoldsRun, "continue it with --resume"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			t.Setenv("UNNEST_STATE", filepath.Join(t.TempDir(), "state"))
			tt.prepare(t, dir)
			before := content(t, dir)
			var out, errOut bytes.Buffer
			err := beginSmall(t, terminal.Streams{Out: &out, Err: &errOut}, tt.output, errors.New("it measured"))
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if after := content(t, dir); !maps.Equal(before, after) {
				t.Errorf("before:\n%v\nafter:\n%v", before, after)
			}
			if out.Len()+errOut.Len() > 0 {
				t.Errorf("it prints %q, %q", &out, &errOut)
			}
		})
	}
}

// A run that fails before its first execution leaves no directory, and does not change
// other files.
func TestStartFailsEarly(t *testing.T) {
	for _, own := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "results", "mine")
		if own {
			if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(filepath.Join(path, "notes.txt"), []byte("mine"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		var out, errOut bytes.Buffer
		broken := errors.New("no guest boots")
		if err := beginSmall(t, terminal.Streams{Out: &out, Err: &errOut}, path, broken); !errors.Is(err, broken) {
			t.Errorf("got %v, want %v", err, broken)
		}
		want := map[string]string{"results": "/"}
		if own {
			want = map[string]string{"results": "/", "results/mine": "/", "results/mine/notes.txt": "mine"}
		}
		if got := content(t, dir); !maps.Equal(got, want) {
			t.Errorf("left: %v, want %v", got, want)
		}
	}
}

func TestStartUnknownExperiment(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := start(t.Context(), Options{Experiment: "none", Dir: "run"}); err == nil || len(content(t, dir)) > 0 {
		t.Errorf("got %v, left %v", err, content(t, dir))
	}
}

func TestDiscard(t *testing.T) {
	tests := []struct {
		name string
		more []string // other files in the directory
		left []string
	}{
		{"the run alone", nil, nil},
		{"a file of the user's", []string{"notes.txt"}, []string{"run", "run/notes.txt"}},
		{"a report of an earlier run", []string{"report.html"}, []string{"run", "run/report.html"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "run")
			createRun(t, path, small, result.Running, 0)
			for _, name := range tt.more {
				if err := os.WriteFile(filepath.Join(path, name), []byte("mine"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := discard(path); err != nil {
				t.Error(err)
			}
			var left []string
			for name := range content(t, dir) {
				left = append(left, name)
			}
			slices.Sort(left)
			if !slices.Equal(left, tt.left) {
				t.Errorf("left: %v, want %v", left, tt.left)
			}
		})
	}
	if err := discard(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: got %v", err)
	}
}

// A complete run is reported, not measured again.
func TestResumeComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	createRun(t, path, small, result.Complete, 12)
	before := content(t, path)
	var out, errOut bytes.Buffer
	if err := resume(t.Context(), Options{Streams: terminal.Streams{Out: &out, Err: &errOut}, Resume: path}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NoCont", "NAT", "run directory  " + path, filepath.Join(path, "report.html")} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
	after := content(t, path)
	if !strings.Contains(after["report.html"], "<html") {
		t.Errorf("report.html: %.100q", after["report.html"])
	}
	delete(after, "report.html")
	if !maps.Equal(before, after) {
		t.Errorf("the run has changed from %v to %v", before, after)
	}
}

// A complete run with unsupported executions tries them again; here it fails.
func TestResumeUnsupported(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	createRun(t, path, small, result.Complete, 11)
	dir, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Update(func(r *result.Run) {
		r.Failures = []result.Failure{{Configuration: "NAT", Case: "udp_rr/64", Block: 5, Attempts: 1, Error: "no tool"}}
	}); err != nil {
		t.Fatal(err)
	}
	dir.Close()
	var out, errOut bytes.Buffer
	err = resume(t.Context(), Options{Streams: terminal.Streams{Out: &out, Err: &errOut}, Resume: path, Accel: "xen"})
	if err == nil || !strings.Contains(err.Error(), `accelerator "xen"`) {
		t.Errorf("got %v; want it to try, and the accelerator refused", err)
	}
}

// The report of an A/A run ends with its rate of false positives.
func TestReportOfAA(t *testing.T) {
	s, err := load("aa", "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run")
	createRunOf(t, path, s, result.Complete, 240)
	var out, errOut bytes.Buffer
	if err := resume(t.Context(), Options{Streams: terminal.Streams{Out: &out, Err: &errOut}, Resume: path}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A/A: NoCont-a against NoCont-b", "udp_rr/1280 ", "in 6 blocks of its own"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, &out)
		}
	}
}

// A run that cannot continue keeps its samples, and the error has the fix.
func TestResumeRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, path string)
		want    []string
	}{
		{"no directory", func(*testing.T, string) {}, []string{"it holds no run"}},
		{"experiment that cannot be read", func(t *testing.T, path string) {
			createRun(t, path, "name: [\n", result.Interrupted, 2)
		}, []string{"experiment file:", "samples are kept"}},
		{"no experiment file", func(t *testing.T, path string) {
			spec, err := load("boot", "")
			if err != nil {
				t.Fatal(err)
			}
			run := spec.NewRun("r1", 1, time.Unix(1000, 0))
			run.File = ""
			dir, err := rundir.Create(path, run)
			if err != nil {
				t.Fatal(err)
			}
			dir.Close()
		}, []string{"experiment file:1: the file is empty"}},
		{"being written", func(t *testing.T, path string) {
			createRun(t, path, small, result.Interrupted, 2)
			dir, err := rundir.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dir.Close() })
		}, []string{rundir.ErrLocked.Error()}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			tt.prepare(t, path)
			samples, _ := os.ReadFile(filepath.Join(path, rundir.SamplesFile))
			var out, errOut bytes.Buffer
			err := resume(t.Context(), Options{Streams: terminal.Streams{Out: &out, Err: &errOut}, Resume: path})
			if err == nil {
				t.Fatal("got no error")
			}
			for _, w := range append(tt.want, path) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q is not in: %v", w, err)
				}
			}
			if after, _ := os.ReadFile(filepath.Join(path, rundir.SamplesFile)); !bytes.Equal(samples, after) {
				t.Errorf("the samples have changed from %q to %q", samples, after)
			}
		})
	}
}

// A run goes on only with the accelerator, host and start of guests that its samples have. It begins as it began if the command line
// leaves that open.
func TestResumeElsewhere(t *testing.T) {
	was := result.Run{
		Accelerator: "kvm", AccelReason: "it works", Host: result.Machine{CPU: "EPYC", Kernel: "6.1"}, Start: "booted", Version: "v1", Image: "i1",
		Tools:  map[string]string{"iperf3": "3.12"},
		Guests: []result.Machine{{Name: "node1", Start: result.Booted}, {Name: "ssh", Kernel: "5"}, {Name: "ssh", Kernel: "6"}},
	}
	for _, tt := range []struct {
		name    string
		samples int
		change  func(*result.Run)
		want    string
		notes   []string
	}{
		{"the same", 2, func(*result.Run) {}, "", nil},
		{"the accelerator", 2, func(r *result.Run) { r.Accelerator = "tcg" }, "the accelerator is tcg, and was kvm for its samples: give --accel kvm, or measure anew", nil},
		{"the CPU", 2, func(r *result.Run) { r.Host.CPU = "Xeon" }, "the CPU of the host is Xeon, and was EPYC", nil},
		{"the kernel", 2, func(r *result.Run) { r.Host.Kernel = "6.2" }, "the kernel of the host is 6.2, and was 6.1", nil},
		{"the start", 2, func(r *result.Run) { r.Guests = []result.Machine{{Name: "node1", Start: result.Restored}} },
			"the start of node1 is restored from a snapshot, and was booted for its samples: give --cold=true", nil},
		{"without samples", 0, func(r *result.Run) { r.Accelerator = "tcg" }, "", nil},
		{"one of the hosts", 2, func(r *result.Run) { r.Guests = []result.Machine{{Name: "ssh", Kernel: "6"}} }, "", nil},
		{"versions", 2, func(r *result.Run) {
			r.Version, r.Image, r.Tools = "v2", "i2", map[string]string{"iperf3": "3.13", "wrk": "4"}
		}, "", []string{
			"Resumed with another guest image: i2, at first i1.", "Resumed with another version of unnest: v2, at first v1.",
			"Resumed with another version of iperf3: 3.13, at first 3.12."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run")
			createRun(t, path, small, result.Interrupted, 0)
			dir, err := rundir.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if err := record(dir, was); err != nil {
				t.Fatal(err)
			}
			spec, err := experiment.Parse("small.yaml", []byte(small))
			if err != nil {
				t.Fatal(err)
			}
			appendSamples(t, dir, spec, tt.samples)
			now := was
			tt.change(&now)
			err = record(dir, now)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			want := was.Accelerator
			if tt.samples == 0 {
				want = now.Accelerator
			}
			if run := dir.Run(); run.Accelerator != want || run.Image != "i1" || run.Start != "booted" || !slices.Equal(run.Notes, tt.notes) {
				t.Errorf("the run is %+v, want notes %q", run, tt.notes)
			}
		})
	}
}

// A resumed run is refused before anything is made.
func TestResumeWithAnotherAccelerator(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	createRun(t, path, small, result.Interrupted, 2)
	dir, err := rundir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := dir.Update(func(r *result.Run) { r.Accelerator = "kvm" }); err != nil {
		t.Fatal(err)
	}
	spec, err := experiment.FromRun(path, dir.Run())
	if err != nil {
		t.Fatal(err)
	}
	begun, err := measure(t.Context(), Options{Streams: discarded()}, guest.Choice{Accel: guest.TCG}, spec, dir)
	if begun || err == nil || !strings.Contains(err.Error(), "the accelerator is tcg, and was kvm for its samples") {
		t.Errorf("got %v", err)
	}
}

func TestContinued(t *testing.T) {
	for _, tt := range []struct {
		given Options
		run   result.Run
		want  Options
	}{
		{Options{}, result.Run{Accelerator: "tcg", Start: "booted"}, Options{Accel: "tcg", Start: stack.Booted}},
		{Options{}, result.Run{Accelerator: "kvm"}, Options{}},
		{Options{Accel: "auto", Start: stack.Restored}, result.Run{Accelerator: "tcg", Start: "booted"}, Options{Accel: "auto", Start: stack.Restored}},
	} {
		if got := tt.given.continued(tt.run); got.Accel != tt.want.Accel || got.Start != tt.want.Start {
			t.Errorf("%+v of %+v: got %+v", tt.given, tt.run, got)
		}
	}
}

// Runs of the same second have different directories, unless the user names one.
func TestCreate(t *testing.T) {
	proposed := filepath.Join(t.TempDir(), "runs", "20260314-092653-small")
	run := func(path string) result.Run { return result.Run{ID: filepath.Base(path)} }
	for _, want := range []string{proposed, proposed + "-2", proposed + "-3"} {
		dir, err := create("", run, proposed)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if dir.Path() != want || dir.Run().ID != filepath.Base(want) {
			t.Errorf("got %s with the run %s, want %s", dir.Path(), dir.Run().ID, want)
		}
	}
	if _, err := create(proposed, run, proposed); !errors.Is(err, rundir.ErrLocked) {
		t.Errorf("a directory that is named: got %v, want ErrLocked", err)
	}
}

// The first report is there as soon as a run goes on for precision only, and is written once.
func TestFirstReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	createRun(t, path, small, result.Running, 2)
	var log bytes.Buffer
	r := &firstReport{progress: newProgress(&log, 0), path: path}
	html := filepath.Join(path, reportFile)
	r.Report(experiment.Event{Kind: experiment.Begun, Planned: 2})
	if _, err := os.Stat(html); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the least number of blocks: %v", err)
	}
	r.Report(experiment.Event{Kind: experiment.Extended, Planned: 4})
	if text, err := os.ReadFile(html); err != nil || !bytes.Contains(text, []byte("</html>")) {
		t.Errorf("the first report: %v: %.40q", err, text)
	}
	r.Report(experiment.Event{Kind: experiment.Extended, Planned: 6})
	if got := strings.Count(log.String(), "first report, also "+html+":\n\nsmall\n"); got != 1 || strings.Count(log.String(), "verdict") == 0 {
		t.Errorf("the report was named %d times: %s", got, &log)
	}
}

// A machine that lacks programs is refused before anything is made, with one command to install them.
func TestStartChecksTheMachine(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	o := Options{Streams: discarded(), Experiment: "selftest", Dir: filepath.Join(dir, "runs", "run"), Accel: "tcg"}
	if err := start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "apt-get install ") || !strings.Contains(err.Error(), " sockperf") {
		t.Errorf("got %v", err)
	}
	o.Accel = "xen"
	if err := start(t.Context(), o); err == nil || !strings.Contains(err.Error(), `accelerator "xen"`) {
		t.Errorf("got %v; want the accelerator refused", err)
	}
	if left := content(t, dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// Only PVH and HVM domains that the run creates itself need hardware virtualization.
func TestNeedsVirtualization(t *testing.T) {
	for _, tt := range []struct {
		c    stack.Configuration
		want bool
	}{
		{stack.Configuration{Stack: stack.Stack{stack.XenPVH}}, true},
		{stack.Configuration{Domains: []stack.Domain{{Type: "xen-pv"}, {Type: "xen-hvm"}}}, true},
		{stack.Configuration{Stack: stack.Stack{stack.XenPV}}, false},
		{stack.Configuration{Stack: stack.Stack{stack.XenPVH}, Host: "ssh://root@xen"}, false},
		{stack.Configuration{Stack: stack.Stack{stack.VM}}, false},
	} {
		if got := needsVirtualization(tt.c); got != tt.want {
			t.Errorf("%+v: got %t", tt.c, got)
		}
	}
}

// A lab of a killed run that cannot be removed does not keep others from measuring.
func TestTidyGoesOn(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	dead := filepath.Join(lab.Root(), "run-dead")
	busy := filepath.Join(dead, "busy")
	if err := errors.Join(os.MkdirAll(busy, 0o700), os.WriteFile(filepath.Join(dead, "unnest-lab"), nil, 0o600), unix.Mount("tmpfs", busy, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(busy, 0) }()
	var stderr bytes.Buffer
	notes, err := tidy(t.Context(), terminal.Streams{Err: &stderr})
	if err != nil || len(notes) != 1 || !strings.HasPrefix(stderr.String(), "warning: remove the remains of killed runs: ") {
		t.Errorf("got %q, %v, stderr %q", notes, err, &stderr)
	}
}
