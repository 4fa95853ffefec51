package e2e

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// The cases of these tests need one Debian package, so that the experiments share an image.
// Every Debian has gzip.
const (
	memoryRead  = "sysbench-memory-read"
	memoryWrite = "sysbench-memory-write"
	primes      = "sysbench-cpu"
	gzipFile    = "gzip-file"
)

// measureText runs an experiment by the command bench within a limit, and returns its run directory.
func measureText(t *testing.T, bench []string, text string, limit time.Duration) (dir string) {
	t.Helper()
	file, dir := filepath.Join(t.TempDir(), "experiment.yaml"), filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launch(t, slices.Concat(bench, []string{file, "-o", dir})...)
	code := r.end(t, limit)
	t.Log(r.out.String())
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	return dir
}

// writeExperiment writes an experiment file with the named cases and with configurations in
// YAML. It returns the path of the file and a run directory.
func writeExperiment(t *testing.T, cases []string, configurations ...string) (file, dir string) {
	t.Helper()
	text := "name: suites\nguest: {vcpus: 1, memory: 1GiB}\nrepetitions: 2\nwarmup: 0\nretries: 0\nconfigurations:\n"
	for _, c := range configurations {
		text += "  - " + c + "\n"
	}
	text += "cases:\n"
	for _, name := range cases {
		i := slices.IndexFunc(suite.All(), func(c suite.Case) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("no case is called %s", name)
		}
		text += "  - {suite: " + suite.All()[i].Suite + ", only: [" + name + "]}\n"
	}
	file = filepath.Join(t.TempDir(), "suites.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, filepath.Join(t.TempDir(), "run")
}

// measured returns the number of executions by "configuration case".
func measured(t *testing.T, dir string) map[string]int {
	t.Helper()
	_, samples, err := rundir.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen, counts := map[result.Execution]bool{}, map[string]int{}
	for _, s := range samples {
		if !seen[s.Execution()] {
			seen[s.Execution()] = true
			counts[s.Configuration+" "+s.Case]++
		}
	}
	return counts
}

// assertMeasured checks that each case was run twice in each configuration.
func assertMeasured(t *testing.T, dir string, cases []string, configurations ...string) {
	t.Helper()
	counts := measured(t, dir)
	for _, c := range configurations {
		for _, k := range cases {
			if counts[c+" "+k] != 2 {
				t.Errorf("%s in %s ran %d times, want 2", k, c, counts[c+" "+k])
			}
		}
	}
}

// suiteLimit bounds the time for building an image and for a run.
const suiteLimit = 20 * time.Minute

// The local configurations of Lubomski et al., Table 2: on the host and in a VM, each without a
// container, in a container, and on a volume.
func TestSuitesMatrix(t *testing.T) {
	unnest := unnestBinary(t)
	names := []string{"metal.local", "metal.aufs", "metal.mnt", "vm.local", "vm.aufs", "vm.mnt"}
	var configurations []string
	for _, n := range names {
		configurations = append(configurations, "{name: "+n+"}")
	}
	cases := []string{memoryRead, memoryWrite}
	file, dir := writeExperiment(t, cases, configurations...)
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	runs := labs(t)
	if code := r.end(t, suiteLimit); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, names...)
	run, samples, err := rundir.Load(dir)
	if err != nil || run.Tools["sysbench"] == "" || run.Image == "" || len(run.Guests) != 1 {
		t.Errorf("provenance is incomplete: %v, %+v", err, run)
	}
	boots := map[string]string{}
	for _, s := range samples {
		machine, _, _ := strings.Cut(s.Configuration, ".")
		if other := boots[machine]; s.Boot == "" || other != "" && other != s.Boot {
			t.Errorf("%s was measured in the boots %q and %q, want one", machine, s.Boot, other)
		}
		boots[machine] = s.Boot
	}
	if boots["metal"] == boots["vm"] {
		t.Errorf("host and guest have the same boot ID: %v", boots)
	}
	text := mustRun(t, unnest, "report", dir)
	for _, want := range append(names, memoryRead, "total", "score") {
		if !strings.Contains(strings.ToLower(text), strings.ToLower(want)) {
			t.Errorf("the report does not contain %s:\n%s", want, text)
		}
	}
}

// labs returns the labs of this test.
func labs(t *testing.T) []string {
	t.Helper()
	names, err := lab.List()
	if err != nil || len(names) == 0 {
		t.Fatalf("labs: %v, %v; want the lab of the run", names, err)
	}
	return names
}

// assertWorkGone checks that the runs in these labs have left no files on this host and no
// control groups of containers.
func assertWorkGone(t *testing.T, labs []string) {
	t.Helper()
	for _, name := range labs {
		for _, pattern := range []string{
			filepath.Join(image.CacheDir(), "*"+name+"*"), "/sys/fs/cgroup/*" + name + "*", "/sys/fs/cgroup/*/*" + name + "*", "/run/netns/*" + name + "*",
		} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				t.Errorf("left of lab %s: %v, %v", name, left, err)
			}
		}
	}
}

// The host, a VM, and a VM in a VM, as in FitzGerald 2014. The run records the accelerator of the
// inner VM.
func TestSuitesLevels(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := writeExperiment(t, []string{primes}, "{name: L0}", "{name: L1}", "{name: L2}")
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	if code := r.end(t, suiteLimit); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{primes}, "L0", "L1", "L2")
	run, samples, err := rundir.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	says := regexp.MustCompile(`The guest of L2 runs on (kvm|tcg) in its own hypervisor: .`)
	if !slices.ContainsFunc(run.Notes, says.MatchString) {
		t.Errorf("the notes do not name the accelerator of L2: %q", run.Notes)
	}
	boots := map[string]string{}
	for _, s := range samples {
		boots[s.Boot] = s.Configuration
	}
	if len(boots) != 3 || len(run.Guests) != 2 {
		t.Errorf("got the boots %v and %d guests, want 3 and 2", boots, len(run.Guests))
	}
}

// A run that is interrupted by Ctrl-C, and later killed, can be resumed each time. Leftovers of
// the killed run are removed.
func TestSuitesInterruptKillResume(t *testing.T) {
	unnest := unnestBinary(t)
	cases := []string{memoryRead, memoryWrite}
	file, dir := writeExperiment(t, cases, "{name: metal.aufs}", "{name: vm.local}")

	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	runs := labs(t)
	r.interrupt(t)
	if !strings.Contains(r.out.String(), "--resume "+dir) {
		t.Errorf("the interrupted run does not say how to resume:\n%s", r.out.String())
	}
	assertNothingLeft(t)
	assertWorkGone(t, runs)
	assertState(t, dir, result.Interrupted)

	r = launch(t, unnest, "bench", "--noisy", "--resume", dir)
	r.awaitExecutions(t, dir, executions(dir)+1)
	runs = labs(t)
	r.kill(t)

	r = launch(t, unnest, "bench", "--noisy", "--resume", dir)
	if code := r.end(t, suiteLimit); code != 0 {
		t.Fatalf("resumed: exit code %d:\n%s", code, r.out.String())
	}
	if !strings.Contains(r.out.String(), "removed the remains of "+runs[0]) {
		t.Errorf("the resumed run does not say that it removed the killed one:\n%s", r.out.String())
	}
	assertWorkGone(t, runs)
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, cases, "metal.aufs", "vm.local")
}

// Ctrl-C during bring-up leaves nothing either.
func TestSuitesInterruptBringUp(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := writeExperiment(t, []string{memoryRead}, "{name: metal.mnt}", "{name: vm.local}")
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	for end := time.Now().Add(bringUp); !containerStarts(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = r.Process.Signal(unix.SIGINT)
			t.Fatalf("no container after %v; interrupted: %v:\n%s", bringUp, <-r.ended, r.out.String())
		}
	}
	runs := labs(t)
	r.interrupt(t)
	assertNothingLeft(t)
	assertWorkGone(t, runs)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run without samples has left its directory: %v", err)
	}
}

// If a guest dies while a case runs, the run repeats the execution in a new guest and records a
// note.
func TestSuitesGuestDies(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := writeExperiment(t, []string{primes}, "{name: metal.local}", "{name: vm.local}", "{name: vm.mnt}")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, bytes.Replace(text, []byte("retries: 0"), []byte("retries: 1"), 1), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	killGuest(t)
	for end := time.Now().Add(endLimit); !strings.Contains(r.out.String(), "restart the machine of"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("the run did not notice:\n%s", r.out.String())
			break
		}
	}
	if code := r.end(t, suiteLimit); code != 0 || !strings.Contains(r.out.String(), "guest died: node1") {
		t.Errorf("exit code %d, want 0 and a message that the guest died:\n%s", code, r.out.String())
	}
	assertState(t, dir, result.Complete)
	assertMeasured(t, dir, []string{primes}, "metal.local", "vm.local", "vm.mnt")
	run, _, err := rundir.Load(dir)
	if err != nil || !slices.ContainsFunc(run.Notes, regexp.MustCompile("^The machine of vm.(local|mnt) was restarted in case "+primes+": .*guest died: node1").MatchString) {
		t.Errorf("no note says that a guest died: %v, %q", err, run.Notes)
	}
}

// containerStarts reports whether a run of this test has control groups of containers on this
// host, in the hierarchy of version 2 or in those of version 1.
func containerStarts() bool {
	names, _ := lab.List() // there are none yet
	return slices.ContainsFunc(names, func(name string) bool {
		one, _ := filepath.Glob("/sys/fs/cgroup/unnest-" + name + "*") // the patterns are right
		many, _ := filepath.Glob("/sys/fs/cgroup/*/unnest-" + name + "*")
		return len(one)+len(many) > 0
	})
}
