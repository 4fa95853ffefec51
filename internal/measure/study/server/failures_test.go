package server

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

const failingCases = `name: k
suite: applications
configurations: [{name: metal, stack: metal}]
cases:
  - {name: kafka, workload: kafka, warmup: 1s, duration: 1s, options: {rate: 10}, timeout: 2m}
  - {name: nginx, workload: nginx, duration: 1s, options: {rate: 10}}
  - {name: cache, workload: memcached, duration: 1s}
repetitions: 2
warmup: 0
retries: 0
`

// startOnly starts the server of a case, and measures nothing.
type startOnly struct{ *Service }

func (s startOnly) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	if err := s.Serving(ctx, e.Case); err != nil {
		return experiment.Outcome{}, err
	}
	return experiment.Outcome{Values: []workload.Value{{Metric: e.Case.Primary, Value: 1}}, Boot: "boot"}, nil
}

// commandOf returns the command of the server of a case, whose files are in a directory of the
// test, and whose program is another one.
func commandOf(t *testing.T, c experiment.Case, port int, program ...string) (args []string, dir string) {
	t.Helper()
	w := c.Workload()
	args = w.Server(c.Params, workload.Endpoint{Port: port})
	dir = t.TempDir()
	for i, a := range args {
		if strings.HasPrefix(a, "/tmp/unnest-") && !strings.Contains(a[1:], "properties") {
			args[i] = dir
		}
	}
	return append(args[:slices.Index(args, w.Programs()[0])], program...), dir
}

// full lets a server find the disk full when it writes a file.
func full(t *testing.T, dir, file string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink("/dev/full", path)); err != nil {
		t.Fatal(err)
	}
}

// freePortOf returns a port on which nothing listens.
func freePortOf(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// A server that ends at once in every attempt stops the run. The error is one line that names the
// configuration, the server, its machine and the cause.
func TestServerFailures(t *testing.T) {
	withBusybox(t)
	spec := benchtest.Parse(t, failingCases)
	spec.Noisy = true
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	const java = "/nowhere/java-17/bin/java"
	for _, tt := range []struct {
		name, of string
		command  func(t *testing.T, c experiment.Case) []string
		want     string
	}{
		{"does not come up", "kafka", func(t *testing.T, c experiment.Case) []string {
			args, _ := commandOf(t, c, freePortOf(t), "/bin/sh", "-c", "echo OpenJDK warning; echo ERROR cannot allocate memory; exit 1")
			return args
		}, "it ended at once: OpenJDK warning; ERROR cannot allocate memory; exit code 1"},
		{"wrong Java", "kafka", func(t *testing.T, c experiment.Case) []string {
			args, _ := commandOf(t, c, freePortOf(t), java)
			return args
		}, "there is no " + java + ": install the Debian package openjdk-17-jre-headless; exit code 127"},
		{"port in use", "kafka", func(t *testing.T, c experiment.Case) []string {
			args, _ := commandOf(t, c, taken.Addr().(*net.TCPAddr).Port, java)
			return args
		}, "is in use by another program; exit code 98"},
		{"port in use", "nginx", func(t *testing.T, c experiment.Case) []string {
			args, _ := commandOf(t, c, taken.Addr().(*net.TCPAddr).Port, "sleep", "61.25")
			return args
		}, "is in use by another program; exit code 98"},
		{"full disk", "kafka", func(t *testing.T, c experiment.Case) []string {
			args, dir := commandOf(t, c, freePortOf(t), "/bin/sh", "-c", "exec sleep 61.25")
			full(t, dir, "server.properties")
			args[slices.Index(args, "-c")+1] = strings.Replace(args[slices.Index(args, "-c")+1], `busybox rm -rf "$dir" && `, "", 1)
			return args
		}, "o space left on device; exit code "},
		{"full disk", "nginx", func(t *testing.T, c experiment.Case) []string {
			args, dir := commandOf(t, c, freePortOf(t), "sleep", "61.25")
			full(t, dir, "html/file")
			return args
		}, "o space left on device; exit code "},
		{"full disk later", "nginx", func(t *testing.T, c experiment.Case) []string {
			args, dir := commandOf(t, c, freePortOf(t), "sleep", "61.25")
			full(t, dir, "nginx.conf")
			return args
		}, "o space left on device; exit code "},
	} {
		t.Run(tt.of+", "+tt.name, func(t *testing.T) {
			i := slices.IndexFunc(spec.Cases, func(c experiment.Case) bool { return c.Name == tt.of })
			broken := newServer(t, "")
			broken.Command.Args, broken.Command.Ready, broken.Command.Name, broken.Command.Alone = tt.command(t, spec.Cases[i]), "never", tt.of, true
			broken.Key = Key(spec.Cases[i])
			run, _, err := runOnly(t, spec, startOnly{&Service{Place: place.Local{}, Servers: []*Server{broken}}})
			if !errors.Is(err, experiment.ErrDied) || run.State != result.Failed || len(run.Failures) != 1 {
				t.Fatalf("got %v, state %s, %d failures", err, run.State, len(run.Failures))
			}
			text := run.Error
			if !benchtest.ContainsAll(text, "configuration metal, case "+tt.of+", all 2 attempts: start server "+tt.of+" on this host: it ended at once: ", tt.want) ||
				strings.Contains(text, "\n") || len(text) > 300 {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}

// A server that does not become ready is one line that names the cause, in the place of each of its
// samples. The other cases are measured.
func TestServerThatIsNotReady(t *testing.T) {
	spec := benchtest.Parse(t, failingCases)
	spec.Noisy = true
	slow := newServer(t, "echo warming up; exec sleep 61.25")
	slow.Command.Alone, slow.Timeout, slow.Key = true, 2*time.Second, Key(spec.Cases[2])
	run, samples, err := runOnly(t, spec, startOnly{&Service{Place: place.Local{}, Servers: []*Server{slow}}})
	if !errors.Is(err, experiment.ErrIncomplete) || run.State != result.Failed || len(run.Failures) != 2 || len(samples) != 4 {
		t.Fatalf("got %v, state %s, %d failures, %d samples", err, run.State, len(run.Failures), len(samples))
	}
	for _, f := range run.Failures {
		if f.Case != "cache" || !benchtest.ContainsAll(f.Error, "on this host: it does not print ", "warming up") || strings.Contains(f.Error, "\n") {
			t.Errorf("%s: got %q", f.Case, f.Error)
		}
	}
}

// A container that has ended is named with its exit code and its last output.
func TestContainerEnd(t *testing.T) {
	dir := t.TempDir()
	benchtest.Write(t, filepath.Join(dir, "engine"), `#!/bin/sh
case "$1 $3" in
"inspect {{.State.Status}} {{.State.ExitCode}}") echo "$STATE" ;;
"logs 5") echo "*** stack smashing detected ***: terminated" >&2 ;;
esac
`)
	if err := os.Chmod(filepath.Join(dir, "engine"), 0o700); err != nil {
		t.Fatal(err)
	}
	why := errors.New("cannot exec in a stopped container")
	for state, want := range map[string]string{
		"exited 134": "cannot exec in a stopped container; it ended at once: container nat in this host: exit code 134: *** stack smashing detected ***: terminated",
		"running 0":  "cannot exec in a stopped container",
	} {
		in := place.Within{Place: place.Local{}, Env: []string{"STATE=" + state}, Name: "this host"}
		err := machine.WithContainerEnd(t.Context(), place.Container{Place: in, Engine: filepath.Join(dir, "engine"), Name: "nat"}, why)
		if !errors.Is(err, why) || err.Error() != want || errors.Is(err, experiment.ErrDied) != strings.HasPrefix(state, "exited") {
			t.Errorf("%s: got %v, want %s", state, err, want)
		}
	}
}

// runOnly runs an experiment in a new directory and returns what that has, and the error of the run.
func runOnly(t *testing.T, spec *experiment.Spec, b experiment.Bench) (result.Run, []result.Sample, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run")
	dir, err := rundir.Create(path, spec.NewRun("r", 1, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	runErr := errors.Join(experiment.Run(t.Context(), spec, dir, b, new(benchtest.Phases)), dir.Close())
	run, samples, err := rundir.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return run, samples, runErr
}
