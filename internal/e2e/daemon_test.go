package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/status"
)

// status returns the status of the daemon.
func (n *nodes) status() status.Status {
	n.t.Helper()
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		s, err := status.Ask(n.t.Context(), n.fleet.Lab.Dir)
		if err == nil {
			return s
		}
		n.t.Log(err)
		if time.Since(begin) > time.Minute {
			n.t.Fatal(err)
		}
	}
}

// guestStatus returns the status of a guest, after the daemon has found the guest.
func (n *nodes) guestStatus(name string) (s status.Guest) {
	n.t.Helper()
	n.eventually("the daemon knows "+name, func() bool {
		for _, g := range n.status().Guests {
			if g.Name == name && g.Error == "" {
				s = g
				return true
			}
		}
		return false
	})
	return s
}

// daemonPID returns the process ID of the daemon.
func (n *nodes) daemonPID() int {
	n.t.Helper()
	pid, err := n.findDaemon()
	n.check(err)
	return pid
}

func (n *nodes) findDaemon() (int, error) {
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range paths {
		line, _ := os.ReadFile(path)
		if bytes.Contains(line, []byte("\x00hostd\x00--")) && bytes.Contains(line, []byte(n.fleet.Lab.Dir)) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil {
				return pid, nil
			}
		}
	}
	return 0, errors.New("find the daemon: no process has its command line")
}

// killDaemon kills the daemon and waits for its end.
func (n *nodes) killDaemon() {
	n.t.Helper()
	n.check(n.tryKillDaemon())
}

func (n *nodes) tryKillDaemon() error {
	pid, err := n.findDaemon()
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(time.Minute); !ended(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("kill the daemon (pid %d): it did not end within a minute", pid)
		}
	}
	return nil
}

// killDaemons kills the daemon each time that wait returns true, and starts another one after
// at most 1.5 s. When wait returns false, a daemon is running.
func (n *nodes) killDaemons(wait func() bool) (kills int, err error) {
	for ; wait(); kills++ {
		if err := n.tryKillDaemon(); err != nil {
			return kills, err
		}
		time.Sleep(time.Duration(mathrand.IntN(1500)) * time.Millisecond)
		if err := n.fleet.StartDaemon(n.t.Context(), filepath.Join(n.binaries, "unnest")); err != nil {
			return kills, err
		}
	}
	return kills, nil
}

// ended reports whether a process has ended with all its threads. Its files are closed when the
// last thread ends; the first thread may be a zombie before that.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return strings.Contains(string(stat), ") Z ") && len(threads) <= 1 || errors.Is(err, fs.ErrNotExist)
}
