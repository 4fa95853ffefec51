package place

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// killDelay is how long Wait waits for the output of a killed command, and for its process group, at
// which it looks every killPoll.
const (
	killDelay = time.Second
	killPoll  = 5 * time.Millisecond
)

// Local is this machine, seen from one of its network namespaces.
type Local struct {
	NetNS string // path of a network namespace; empty: the one of this process
}

// String names the place.
func (l Local) String() string {
	if l.NetNS == "" {
		return "this host"
	}
	return "this host in " + filepath.Base(l.NetNS)
}

// Start starts c in a process group of its own, which is killed when ctx ends.
func (l Local) Start(ctx context.Context, c Command) (Process, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = append(os.Environ(), c.Env...)
	cmd.Stdin, cmd.Stdout = c.Stdin, c.Stdout
	p := &localProcess{cmd: cmd, place: l.String(), args: c.Args}
	cmd.Stderr = &p.tail
	if c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(c.Stderr, &p.tail)
	}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		p.killed.Store(true)
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); !errors.Is(err, unix.ESRCH) {
			return err
		}
		return os.ErrProcessDone
	}
	cmd.WaitDelay = killDelay
	start := cmd.Start
	if l.NetNS != "" {
		start = func() error { return InNetNS(l.NetNS, cmd.Start) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", c.Args[0], l, err)
	}
	return p, nil
}

// Put writes a file on this machine.
func (l Local) Put(_ context.Context, path string, mode fs.FileMode, content io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".put-*")
	if err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	_, err = io.Copy(f, content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("put %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

type localProcess struct {
	cmd    *exec.Cmd
	killed atomic.Bool // with its process group
	place  string
	args   []string
	tail   tail
}

// Wait waits for the command. If it was killed, Wait waits for the rest of its process group, too: a large
// process takes a while to die, and belongs to init by then, so nobody could tell any more whose it was.
func (p *localProcess) Wait() error {
	err := p.cmd.Wait()
	if p.killed.Load() {
		for end := time.Now().Add(killDelay); groupLives(p.cmd.Process.Pid) && time.Now().Before(end); {
			time.Sleep(killPoll)
		}
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return &ExitError{Place: p.place, Args: p.args, Code: exit.ExitCode(), Stderr: p.tail.String()}
	}
	return err
}

// groupLives reports whether a process of a group has not ended. One that init has not reaped yet has ended.
func groupLives(group int) bool {
	if errors.Is(unix.Kill(-group, 0), unix.ESRCH) {
		return false
	}
	all, _ := procfs.AllProcs()
	return slices.ContainsFunc(all, func(p procfs.Proc) bool {
		stat, err := p.Stat()
		return err == nil && stat.PGRP == group && stat.State != "Z" && stat.State != "X"
	})
}

// InNetNS runs f on a thread of its own in the network namespace at path. A process that
// f starts stays there; goroutines that f starts do not.
func InNetNS(path string, f func() error) error {
	return thread.Do(func() error {
		ns, err := netns.GetFromPath(path)
		if err == nil {
			err = errors.Join(netns.Set(ns), ns.Close())
		}
		if err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		return f()
	})
}

// tail keeps the last tailSize bytes that are written to it.
type tail struct{ b []byte }

const tailSize = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if extra := len(t.b) - tailSize; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(t.b)) }
