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
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/identity"
)

const (
	killGrace = 2 * time.Second       // for a process to end after SIGTERM
	killTime  = 30 * time.Second      // and after SIGKILL: a busy machine takes seconds to free the memory of a guest
	killPoll  = 20 * time.Millisecond //
)

// RemoveGuest removes the state directory of a guest, and first kills the programs of guests whose
// command lines name it.
func (l *Lab) RemoveGuest(name string) error {
	dir := l.GuestDir(name)
	err := identity.CheckGuestName(name)
	if err == nil { // else dir is not that of a guest
		err = errors.Join(kill(func(p process) bool { return p.uses(dir) }), os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove guest %s: %w", name, err)
	}
	return nil
}

// killProcesses kills the processes of the lab: guests and the host daemon, whose
// command lines name the state directory, and everything in its network
// namespaces. It uses no saved process IDs, so it cannot hit a recycled one.
func (l *Lab) killProcesses(names []string) error {
	var namespaces []os.FileInfo
	for _, name := range names {
		if info, err := os.Stat(nsPath(name)); err == nil {
			namespaces = append(namespaces, info)
		}
	}
	return kill(func(p process) bool {
		return p.uses(l.Dir) ||
			p.netNS != nil && slices.ContainsFunc(namespaces, func(ns os.FileInfo) bool { return os.SameFile(ns, p.netNS) })
	})
}

// kill ends the processes, other than this one and its ancestors, that match, and waits for their end: by
// SIGTERM, and by SIGKILL after killGrace.
func kill(match func(process) bool) error {
	left, err := signal(match, unix.SIGTERM, killGrace)
	if err == nil && len(left) > 0 {
		left, err = signal(match, unix.SIGKILL, killTime)
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("kill processes %v: they have not ended within %v: look for their state in /proc/PID/status", left, killTime)
	}
	return err
}

// signal sends a signal to the processes that match, and waits for their end. It returns
// those that are left at the limit.
func signal(match func(process) bool, s unix.Signal, limit time.Duration) (left []int, err error) {
	if left, err = find(match); err != nil {
		return nil, err
	}
	for _, pid := range left {
		if err := unix.Kill(pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
			return nil, fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	for end := time.Now().Add(limit); len(left) > 0 && time.Now().Before(end); time.Sleep(killPoll) {
		if left, err = find(match); err != nil {
			return nil, err
		}
	}
	return left, nil
}

type process struct {
	cmdline []byte      // NUL-separated
	netNS   os.FileInfo // nil: unknown
}

// program is the name of the process's program.
func (p process) program() string {
	path, _, _ := bytes.Cut(p.cmdline, []byte{0})
	return filepath.Base(string(path))
}

// uses reports whether the process is a program of a lab, by its name, and its command line names dir. A shell or an editor
// that names dir is the user's.
func (p process) uses(dir string) bool {
	name := p.program()
	return (strings.HasPrefix(name, "qemu-system-") || name == "unnest" || name == "virtiofsd") && namesDir(p.cmdline, dir)
}

// ancestors returns this process, its parent, and so on.
func ancestors() (pids []int) {
	for pid := os.Getpid(); pid > 0; {
		pids = append(pids, pid)
		p, err := procfs.NewProc(pid)
		if err != nil {
			break
		}
		stat, _ := p.Stat()
		pid = stat.PPID // 0: none
	}
	return pids
}

// find returns the living processes, other than this one and its ancestors, that match.
func find(match func(process) bool) (pids []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	spared := ancestors()
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || slices.Contains(spared, pid) {
			continue
		}
		var p process
		p.cmdline, err = os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		p.netNS, _ = os.Stat(filepath.Join("/proc", e.Name(), "ns/net"))
		if match(p) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// namesDir reports whether an argument of a NUL-separated command line contains dir or
// a path below it. A longer path that ends with dir does not count.
func namesDir(cmdline []byte, dir string) bool {
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		for rest := arg; ; {
			i := bytes.Index(rest, []byte(dir))
			if i < 0 {
				break
			}
			start := len(arg) - len(rest) + i
			rest = rest[i+len(dir):]
			if (start == 0 || !inPath(arg[start-1])) && (len(rest) == 0 || rest[0] == '/' || rest[0] == ',') {
				return true
			}
		}
	}
	return false
}

// inPath reports whether a byte before a slash belongs to the path, not to an option like
// path=/dir or unix:/dir.
func inPath(b byte) bool {
	return b >= 0x80 || unicode.IsLetter(rune(b)) || unicode.IsDigit(rune(b)) || strings.IndexByte("._-/+@~", b) >= 0
}
