package place

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// engine is a container engine whose containers are this machine. It makes each command
// the leader of a session, as real engines do.
const engine = `#!/bin/sh
[ "$1" = exec ] || { echo "engine: no command $1" >&2; exit 125; }
shift
interactive=no
[ "$1" = --interactive ] && interactive=yes && shift
[ "$1" = web ] || { echo "engine: no such container: $1" >&2; exit 1; }
shift
[ $interactive = yes ] || exec </dev/null
exec setsid --wait "$@"
`

func newEngine(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "engine")
	if err := os.WriteFile(path, []byte(engine), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// eachPlace tests the contract of all places.
func eachPlace(t *testing.T, test func(t *testing.T, p Place)) {
	t.Helper()
	t.Run("local", func(t *testing.T) { test(t, Local{}) })
	t.Run("ssh", func(t *testing.T) {
		p, _ := newServer(t).dial(t)
		test(t, p)
	})
	t.Run("container", func(t *testing.T) { test(t, Container{Place: Local{}, Engine: newEngine(t), Name: "web"}) })
	t.Run("container behind ssh", func(t *testing.T) {
		p, _ := newServer(t).dial(t)
		test(t, Container{Place: p, Engine: newEngine(t), Name: "web"})
	})
}

func TestPlaceNames(t *testing.T) {
	behind, _ := newServer(t).dial(t)
	for _, tt := range []struct {
		place Place
		want  string
	}{
		{Local{}, "this host"},
		{Local{NetNS: "/run/netns/unnest-lab-client"}, "this host in unnest-lab-client"},
		{behind, "guest node1"},
		{Container{Place: behind, Name: "web"}, "container web in guest node1"},
	} {
		if got := tt.place.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestPlaceOutput(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		args := []string{"two words", "it's", "$HOME", "a\nb", "", `\`, "*"}
		out, err := Output(t.Context(), p, append([]string{"printf", "%s|"}, args...)...)
		if want := strings.Join(args, "|") + "|"; err != nil || string(out) != want {
			t.Errorf("got %q, %v; want %q: arguments must arrive as they are", out, err, want)
		}
	})
}

func TestPlaceStreams(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		var stdout, stderr bytes.Buffer
		process, err := p.Start(t.Context(), Command{
			Args:  []string{"sh", "-c", `cat; echo "$GREETING" >&2`},
			Env:   []string{"GREETING=it's $me; fine"},
			Stdin: strings.NewReader("given"), Stdout: &stdout, Stderr: &stderr,
		})
		if err == nil {
			err = process.Wait()
		}
		if err != nil || stdout.String() != "given" || stderr.String() != "it's $me; fine\n" {
			t.Errorf("got stdout %q, stderr %q, %v", &stdout, &stderr, err)
		}
	})
}

func TestPlaceNoInput(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		if out, err := Output(t.Context(), p, "cat"); err != nil || len(out) > 0 {
			t.Errorf("got %q, %v; want the empty input", out, err)
		}
	})
}

func TestPlaceExit(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		err := Run(t.Context(), p, "sh", "-c", "for n in one two three four; do echo $n >&2; done; exit 3")
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Code != 3 {
			t.Fatalf("got %v, want exit code 3", err)
		}
		if !strings.HasSuffix(err.Error(), p.String()+": exit code 3: two | three | four") {
			t.Errorf("got %q; want the place, the code and the last lines", err)
		}
	})
}

func TestPlaceMissingProgram(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		err := Run(t.Context(), p, "no-such-program")
		if err == nil || !strings.Contains(err.Error(), "no-such-program") || !strings.Contains(err.Error(), p.String()) {
			t.Errorf("got %v; want an error that names program and place", err)
		}
	})
}

// A cancelled command ends soon, with its children, and the error is the cause. It is
// cancelled while it runs, and before.
func TestPlaceCancel(t *testing.T) {
	for _, delay := range []time.Duration{0, 300 * time.Millisecond} {
		eachPlace(t, func(t *testing.T, p Place) {
			pids, before := filepath.Join(t.TempDir(), "pids"), notes(t)
			why := errors.New("told to stop")
			ctx, cancel := context.WithCancelCause(t.Context())
			process, err := p.Start(ctx, Command{Args: []string{"sh", "-c", `sleep 181.25 & echo $$ $! >"$0"; wait`, pids}})
			if err != nil {
				t.Fatal(err)
			}
			if delay > 0 {
				awaitContent(t, pids)
			}
			time.AfterFunc(delay, func() { cancel(why) })
			start := time.Now()
			if err := process.Wait(); err == nil {
				t.Error("the killed command ended without error")
			}
			if d := time.Since(start); d > patience {
				t.Errorf("took %v to stop", d)
			}
			time.Sleep(100 * time.Millisecond) // for one that comes late
			content, _ := os.ReadFile(pids)    // cancelled before, it wrote none
			for pid := range strings.FieldsSeq(string(content)) {
				assertGone(t, pid)
			}
			if left := notes(t); len(left) > len(before) {
				t.Errorf("a note is left: %v, before %v", left, before)
			}
		})
	}
}

// patience is for what must happen, on any machine. Commands that are to be killed sleep longer.
const patience = time.Minute

// awaitContent waits for what a command writes into a file at once.
func awaitContent(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if content, _ := os.ReadFile(file); len(content) > 0 {
			return
		}
	}
	t.Errorf("nothing is written to %s", file)
}

// assertGone checks that a process ends soon.
func assertGone(t *testing.T, pid string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err != nil || bytes.Contains(state, []byte(") Z ")) {
			return
		}
		if time.Now().After(end) {
			t.Errorf("process %s still runs: %s", pid, state)
			return
		}
	}
}

// notes lists the PID files.
func notes(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/tmp/.unnest-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestPlaceOutputCancelled(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		why, begun := errors.New("told to stop"), filepath.Join(t.TempDir(), "begun")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			awaitContent(t, begun)
			time.Sleep(300 * time.Millisecond) // for the way of the output
			cancel(why)
		}()
		out, err := Output(ctx, p, "sh", "-c", `echo begun | tee "$0"; sleep 181.25`, begun)
		if !errors.Is(err, why) || !strings.Contains(err.Error(), p.String()) || string(out) != "begun\n" {
			t.Errorf("got %q, %v; want what was printed, and the cause", out, err)
		}
	})
}

func TestPlacePut(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		dir := t.TempDir()
		path := filepath.Join(dir, "it's a file")
		for _, content := range []string{"first, and longer", "\x00binary\n", ""} {
			if err := p.Put(t.Context(), path, 0o640, strings.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil || string(got) != content || info.Mode() != 0o640 {
				t.Errorf("got %q, %v, mode %v; want %q", got, errors.Join(err, statErr), info.Mode(), content)
			}
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%v are left next to the file (%v)", entries, err)
		}
	})
}

func TestPlacePutFails(t *testing.T) {
	eachPlace(t, func(t *testing.T, p Place) {
		dir := t.TempDir()
		taken := filepath.Join(dir, "taken")
		if err := os.Mkdir(taken, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(taken, "file")
		err := p.Put(t.Context(), filepath.Join(path, "below"), 0o600, errorReader{})
		if err == nil || !strings.Contains(err.Error(), "put "+path) {
			t.Errorf("got %v; want an error that names the file", err)
		}
	})
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("no content") }

// cutting loses the connection of commands after three bytes of their input.
type cutting struct{ Local }

func (c cutting) Start(ctx context.Context, command Command) (Process, error) {
	command.Stdin = io.LimitReader(command.Stdin, 3)
	return c.Local.Start(ctx, command)
}

// Input that is cut off leaves the file as it was.
func TestPutCutOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), cutting{}, path, 0o600, strings.NewReader("content")); err == nil || !strings.Contains(err.Error(), "put "+path) {
		t.Errorf("got %v; want an error that names the file", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "before" {
		t.Errorf("the file has %q (%v), want what it had", content, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("%v are left next to the file (%v)", entries, err)
	}
}
