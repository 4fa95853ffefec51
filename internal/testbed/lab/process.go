package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killGrace = 2 * time.Second       // for a process to end after SIGTERM
	killPoll  = 20 * time.Millisecond //
)

// killProcesses ends every process whose command line names the lab's state
// directory, its guests and its host daemon, and every one that is in its network
// namespaces: clients whose owner was killed. What they are, not a noted pid, says
// that they are the lab's, so that a recycled pid is never hit.
func (l *Lab) killProcesses() error {
	pids, err := l.processes()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("stop process %d: %w", pid, err)
		}
	}
	for end := time.Now().Add(killGrace); len(pids) > 0 && time.Now().Before(end); time.Sleep(killPoll) {
		if pids, err = l.processes(); err != nil {
			return err
		}
	}
	for _, pid := range pids {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// processes returns the living processes, other than this one, that have the
// lab's state directory in an argument or are in its network namespaces.
func (l *Lab) processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var namespaces []os.FileInfo
	for _, path := range []string{l.HostNS(), l.ClientNS()} {
		if info, err := os.Stat(path); err == nil {
			namespaces = append(namespaces, info)
		}
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		in, err := os.Stat(filepath.Join("/proc", e.Name(), "ns/net"))
		inside := err == nil && slices.ContainsFunc(namespaces, func(ns os.FileInfo) bool { return os.SameFile(ns, in) })
		if inside || namesDir(line, l.Dir) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// namesDir reports whether a NUL-separated command line has dir, or a path
// below it, in an argument.
func namesDir(cmdline []byte, dir string) bool {
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		for rest := arg; ; {
			i := bytes.Index(rest, []byte(dir))
			if i < 0 {
				break
			}
			rest = rest[i+len(dir):]
			if len(rest) == 0 || rest[0] == '/' || rest[0] == ',' {
				return true
			}
		}
	}
	return false
}
