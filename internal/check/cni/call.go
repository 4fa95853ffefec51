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
)

// answer is the outcome of one plugin call.
type answer struct {
	exit           int // -1: killed
	stdout, stderr []byte
}

// orphanTime is how long the children of a killed plugin may keep its output open.
const orphanTime = 5 * time.Second

// execute runs a plugin in its own process group. An interrupt at the terminal does not
// reach it. When ctx ends, the plugin is killed together with its IPAM plugin.
func execute(ctx context.Context, path string, stdin []byte, env []string) (answer, error) {
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(ctx, path)
	c.Env, c.Stdin, c.Stdout, c.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = orphanTime
	err := c.Run()
	a := answer{exit: c.ProcessState.ExitCode(), stdout: stdout.Bytes(), stderr: stderr.Bytes()}
	if ctx.Err() != nil {
		return a, fmt.Errorf("run %s: killed: %w", path, context.Cause(ctx))
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return a, fmt.Errorf("run %s: %w", path, err)
	}
	return a, nil
}

// protocolError is an error object of section 5.
type protocolError struct {
	CNIVersion string `json:"cniVersion"`
	Code       *uint  `json:"code"`
	Msg        string `json:"msg"`
	Details    string `json:"details"`
}

// failure returns the error object of a call that must fail.
func (a answer) failure() (protocolError, error) {
	var e protocolError
	if a.exit == 0 {
		return e, fmt.Errorf("the plugin succeeded, but must fail: %s", brief(a.stdout))
	}
	if err := json.Unmarshal(a.stdout, &e); err != nil {
		return e, fmt.Errorf("exit code %d, but the output is not an error object: %w: %s", a.exit, err, brief(a.stdout))
	}
	if e.Code == nil || *e.Code == 0 || e.Msg == "" {
		return e, fmt.Errorf("the error object has no code or no msg: %s", brief(a.stdout))
	}
	return e, nil
}

// err returns nil if the call succeeded.
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

// brief quotes output for an error message.
func brief(output []byte) string {
	const most = 300
	s := strings.Join(strings.Fields(string(output)), " ")
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// executor runs plugins for libcni. The end of a context does not end a plugin, so that
// what it creates can be deleted, unless the context is marked with killing.
type executor struct {
	invoke.DefaultExec
	timeout time.Duration
}

// killing marks a context that kills the plugin when it ends.
type killing struct{}

// ExecPlugin implements invoke.Exec.
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
	ctx, cancel := context.WithTimeoutCause(ctx, e.timeout, fmt.Errorf("the plugin did not end within %v", e.timeout))
	defer cancel()
	return execute(ctx, path, stdin, env)
}
