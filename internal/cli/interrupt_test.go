package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
)

// waiter is the name of a program that is unnest with a command more, which
// says on standard output that it has begun, waits for the end of its context
// and cleans up until a file is there.
const waiter = "unnest-waiter"

func waiterMain() int {
	ctx, streams, stop := interruptible(context.Background(), terminal.System(), os.Exit)
	defer stop()
	root := newRootCmd(streams)
	root.AddCommand(&cobra.Command{
		Use: "wait FILE",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := fmt.Fprintln(streams.Out, "waiting"); err != nil {
				return err
			}
			<-cmd.Context().Done()
			for {
				if _, err := os.Stat(args[0]); err == nil {
					return fmt.Errorf("boot guest node1: %w", cmd.Context().Err())
				}
				time.Sleep(5 * time.Millisecond)
			}
		},
	})
	root.AddCommand(&cobra.Command{
		Use: "make FILE", // makes FILE, writes until its context ends, and removes FILE
		RunE: func(cmd *cobra.Command, args []string) error {
			err := os.WriteFile(args[0], nil, 0o600)
			for err == nil && cmd.Context().Err() == nil {
				fmt.Fprintln(streams.Err, "booting")
				_, _ = fmt.Fprintln(streams.Out, "waiting")
			}
			return errors.Join(err, os.Remove(args[0]), fmt.Errorf("boot guest node1: %w", cmd.Context().Err()))
		},
	})
	return execute(ctx, root, streams.Err)
}

// A command removes what it has made when the reader of its output ends, as in
// "unnest vm up node1 2>&1 | tee log" after Ctrl-C, and with | head and | true.
func TestClosedPipe(t *testing.T) {
	const unread = "unnest: boot guest node1: interrupted: nobody reads the output any more\n"
	for _, tt := range []struct {
		name, script, codes, stderr string
	}{
		{"stdout", `unnest-waiter make "$0" 2>stderr | head -n 1; echo ${PIPESTATUS[@]}`, "waiting\n141 0\n", unread},
		{"stderr", `unnest-waiter make "$0" 2> >(head -n 1 >&2) >stdout; echo $?`, "141\n", ""},
		{"both", `unnest-waiter make "$0" 2>&1 | true; echo ${PIPESTATUS[@]}`, "141 0\n", ""},
		{"Ctrl-C", `trap : INT; unnest-waiter make "$0" 2>&1 | { read; kill -INT 0; }; [[ ${PIPESTATUS[0]} = 1[34][01] ]] && echo ok`, "ok\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			made := filepath.Join(dir, "made")
			cmd := exec.CommandContext(t.Context(), "bash", "-c", tt.script, made)
			cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true} // for kill 0
			out, err := cmd.Output()
			if err != nil || string(out) != tt.codes {
				t.Errorf("got %q, %v; want %q", out, err, tt.codes)
			}
			if _, err := os.Stat(made); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("what the command made is left (%v)", err)
			}
			if stderr, err := os.ReadFile(filepath.Join(dir, "stderr")); tt.stderr != "" && (err != nil || !strings.HasSuffix(string(stderr), tt.stderr)) {
				t.Errorf("stderr %q, %v; want %q at its end", stderr[max(0, len(stderr)-200):], err, tt.stderr)
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	const (
		undoing = "unnest: interrupted: removing what was made; interrupt again to exit at once\n"
		ended   = "unnest: boot guest node1: interrupted\n"
		remains = "unnest: interrupted again: guests, network namespaces and TAP devices of this run may remain; unnest clean removes them\n"
	)
	tests := []struct {
		name    string
		signals []syscall.Signal
		code    int
		stderr  string
	}{
		{"once", []syscall.Signal{syscall.SIGINT}, 130, undoing + ended},
		{"terminated", []syscall.Signal{syscall.SIGTERM}, 143, undoing + ended},
		{"hung up", []syscall.Signal{syscall.SIGHUP}, 129, undoing + ended},
		{"twice", []syscall.Signal{syscall.SIGINT, syscall.SIGINT}, 130, undoing + remains},
		{"two kinds", []syscall.Signal{syscall.SIGTERM, syscall.SIGINT}, 130, undoing + remains},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			goOn := filepath.Join(t.TempDir(), "go-on")
			// Where the tests run under nohup, it would ignore a hang-up.
			p := startWaiter(t, "env", "--default-signal=HUP", waiter, "wait", goOn)
			for i, s := range tt.signals {
				if i > 0 {
					time.Sleep(repeatAfter)
				}
				p.signal(s)
				p.await(&p.stderr, strings.Join(strings.SplitAfter(tt.stderr, "\n")[:i+1], ""))
			}
			if len(tt.signals) == 1 {
				if err := os.WriteFile(goOn, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if code := p.exitCode(); code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if got := p.stderr.String(); got != tt.stderr {
				t.Errorf("stderr %q, want %q", got, tt.stderr)
			}
		})
	}
}

// timeout(1) sends its signal to the command and then to the command's process group.
// The command gets two signals, and must still remove what it has made.
func TestInterruptTwiceAtOnce(t *testing.T) {
	for try := 1; ; try++ { // on a busy machine the second signal may come after repeatAfter
		goOn := filepath.Join(t.TempDir(), "go-on")
		p := startWaiter(t, waiter, "wait", goOn)
		p.signal(syscall.SIGTERM)
		p.await(&p.stderr, "unnest: interrupted")
		p.signal(syscall.SIGTERM)
		time.Sleep(50 * time.Millisecond)
		if err := os.WriteFile(goOn, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		code := p.exitCode()
		if code == 143 && strings.HasSuffix(p.stderr.String(), "\nunnest: boot guest node1: interrupted\n") {
			return
		}
		if try == 3 {
			t.Fatalf("exit code %d, stderr %q; want 143 after the clean-up", code, p.stderr.String())
		}
	}
}

// A process under nohup survives a hang-up.
func TestInterruptLeavesIgnoredSignals(t *testing.T) {
	goOn := filepath.Join(t.TempDir(), "go-on")
	p := startWaiter(t, "sh", "-c", `trap "" HUP; exec `+waiter+` wait "$0"`, goOn)
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGTERM)
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := p.exitCode(); code != 143 {
		t.Errorf("exit code %d, want 143; stderr %q", code, p.stderr.String())
	}
}

// process is a waiter under test.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr safeBuffer
}

// startWaiter returns when the waiter waits.
func startWaiter(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	p := &process{t: t, cmd: exec.CommandContext(ctx, args[0], args[1:]...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.await(&p.stdout, "waiting\n")
	return p
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// await returns when buf begins with want.
func (p *process) await(buf *safeBuffer, want string) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if strings.HasPrefix(buf.String(), want) {
			return
		}
	}
	p.t.Fatalf("got %q, still waiting for %q", buf.String(), want)
}

func (p *process) exitCode() int {
	p.t.Helper()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// safeBuffer is a buffer that one goroutine writes while another reads.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
