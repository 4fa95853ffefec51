package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestLocalOutput(t *testing.T) {
	out, err := Output(t.Context(), Local{}, "sh", "-c", "printf '%s' \"$0\"", "a 'b' $c")
	if err != nil || string(out) != "a 'b' $c" {
		t.Errorf("got %q, %v; arguments must arrive as they are", out, err)
	}
}

func TestLocalExit(t *testing.T) {
	err := Run(t.Context(), Local{}, "sh", "-c", "echo one >&2; echo two >&2; exit 3")
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Fatalf("got %v, want exit code 3", err)
	}
	if want := "sh on this host: exit code 3: one | two"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestLocalMissingProgram(t *testing.T) {
	err := Run(t.Context(), Local{}, "no-such-program")
	if err == nil || !strings.Contains(err.Error(), "start no-such-program on this host") {
		t.Errorf("got %v; want an error that names program and place", err)
	}
}

// A cancelled command ends soon, with its children, and the error is the cause.
func TestLocalCancel(t *testing.T) {
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	start := time.Now()
	out, err := Output(ctx, Local{}, "sh", "-c", "sleep 181.25 & echo $!; wait")
	if !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if d := time.Since(start); d > patience {
		t.Errorf("took %v to stop", d)
	}
	child := strings.TrimSpace(string(out))
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile(filepath.Join("/proc", child, "stat"))
		if err != nil || bytes.Contains(state, []byte(") Z ")) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("child %s still runs: %s", child, state)
		}
	}
}

// When Wait returns, every process of a killed command has ended, also those that init has to reap.
func TestLocalCancelAwaitsGroup(t *testing.T) {
	const children = 50
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		out, started := io.Pipe()
		p, err := Local{}.Start(ctx, Command{
			Args: []string{"sh", "-c", `for i in $(seq ` + strconv.Itoa(children) + `); do sleep 61.5 & done; echo $$; wait`}, Stdout: started,
		})
		if err != nil {
			t.Fatal(err)
		}
		var group int
		if _, err := fmt.Fscan(out, &group); err != nil {
			t.Fatal(err)
		}
		if !groupLives(group) {
			t.Errorf("no process of group %d lives before it is killed", group)
		}
		cancel()
		if err := p.Wait(); err == nil {
			t.Error("got no error of a killed command")
		}
		if groupLives(group) {
			t.Errorf("a process of group %d lives", group)
		}
	}
}

func TestLocalPut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := (Local{}).Put(t.Context(), path, 0o640, strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || string(content) != "content" || info.Mode().Perm() != 0o640 {
		t.Errorf("got %q, %v, mode %v", content, err, info.Mode())
	}
	if err := (Local{}).Put(t.Context(), "/no/such/dir/file", 0o600, strings.NewReader("")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func TestQuote(t *testing.T) {
	args := []string{"plain", "two words", "it's", "$HOME", "a\nb", "", `\`}
	out, err := exec.Command("sh", "-c", `printf '%s\0' `+quote(args)).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); strings.Join(got, "|") != strings.Join(args, "|") {
		t.Errorf("got %q, want %q", got, args)
	}
}

// A command with a PID file can be killed, with its children. The file is removed with
// the command.
func TestNotedAndKiller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "note")
	line := withPIDFile(file, []string{"GREETING=hello world"}, []string{"sh", "-c", `echo "$GREETING"; exit 7`})
	out, err := exec.Command("setsid", append([]string{"--wait"}, line...)...).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 || string(out) != "hello world\n" {
		t.Errorf("got %q, %v; want the output and exit code 7", out, err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the note is left: %v", err)
	}

	line = withPIDFile(file, nil, []string{"sh", "-c", "sleep 181.25 & wait"})
	cmd := exec.Command("setsid", append([]string{"--wait"}, line...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitContent(t, file)
	kill := killCommand(file)
	if out, err := exec.Command(kill[0], kill[1:]...).CombinedOutput(); err != nil {
		t.Errorf("kill: %v: %s", err, out)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("the killed command ended without error")
		}
	case <-time.After(patience):
		t.Error("the command was not killed")
		_ = cmd.Process.Kill()
	}
}
