package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// answer is how a run of a plugin has ended.
type answer struct {
	exit           int // -1: killed
	stdout, stderr []byte
}

// orphanTime is how long a killed plugin's children may hold its output open.
const orphanTime = 5 * time.Second

// call runs a plugin in a process group of its own: an interrupt at the terminal
// is not for it, and when ctx ends its IPAM plugin is killed with it.
func call(ctx context.Context, path string, stdin []byte, env []string) (answer, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = orphanTime
	err := c.Run()
	a := answer{exit: c.ProcessState.ExitCode(), stdout: stdout.Bytes(), stderr: stderr.Bytes()}
	if ctx.Err() != nil {
		return a, fmt.Errorf("%s was killed: %w", path, context.Cause(ctx))
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return a, fmt.Errorf("run %s: %w", path, err)
	}
	return a, nil
}

// protocolError is an error object as section 5 describes it.
type protocolError struct {
	CNIVersion string `json:"cniVersion"`
	Code       *uint  `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// failure reads the error object of a run that was to fail.
func (a answer) failure() (protocolError, error) {
	var e protocolError
	if a.exit == 0 {
		return e, fmt.Errorf("it succeeded: %s", brief(a.stdout))
	}
	if err := json.Unmarshal(a.stdout, &e); err != nil {
		return e, fmt.Errorf("exit code %d, but the standard output is no error object: %w: %s", a.exit, err, brief(a.stdout))
	}
	if e.Code == nil || *e.Code == 0 || e.Msg == "" {
		return e, fmt.Errorf("error object without a code or msg: %s", brief(a.stdout))
	}
	return e, nil
}

// err is nil when the run has succeeded.
func (a answer) err() error {
	if a.exit == 0 {
		return nil
	}
	e, err := a.failure()
	if err != nil {
		return err
	}
	return types.NewError(*e.Code, e.Msg, e.Details)
}

// brief is output in an error message.
func brief(output []byte) string {
	const most = 300
	s := strings.Join(strings.Fields(string(output)), " ")
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// executor runs plugins for libcni by call. A context that ends does not end a
// plugin, unless it is a killing one: what a plugin has begun, it has to finish,
// so that it can be deleted.
type executor struct {
	invoke.DefaultExec
	timeout time.Duration
}

func newExecutor(timeout time.Duration) *executor {
	return &executor{invoke.DefaultExec{PluginDecoder: version.PluginDecoder{}}, timeout}
}

// killing marks a context whose end kills the plugin.
type killing struct{}

// ExecPlugin is what libcni calls.
func (e *executor) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	a, err := e.call(ctx, path, stdin, env)
	if err != nil {
		return nil, err
	}
	return a.stdout, a.err()
}

func (e *executor) call(ctx context.Context, path string, stdin []byte, env []string) (answer, error) {
	if ctx.Value(killing{}) == nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, fmt.Errorf("it has not ended after %v", e.timeout))
	defer cancel()
	return call(ctx, path, stdin, env)
}
