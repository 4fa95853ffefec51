// Package timer stands in for a CNI plugin: it runs the real one of the same
// name and appends a line to a journal, how long it took. A runtime whose
// CNI_PATH begins with a directory of links to it times all its plugins.
//
// What the times mean does not belong here.
package timer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Where things are, unless the environment says something else.
const (
	PluginDir = "/usr/lib/cni"                // UNNEST_CNI_PLUGINS
	Journal   = "/run/unnest/cni-times.jsonl" // UNNEST_CNI_TIMES
)

// Run is one line of the journal.
type Run struct {
	Container string `json:"container"`
	Plugin    string `json:"plugin"`
	Command   string `json:"command"`
	Interface string `json:"ifname"`
	Start     int64  `json:"start"`    // nanoseconds since 1970
	Duration  int64  `json:"duration"` // nanoseconds, from the fork until the end
	Exit      int    `json:"exit"`     // 128 and the signal's number when a signal ended it
}

// Main runs the plugin whose name is the last part of argv0, with this process's
// streams and environment, and returns its exit code. CNI_PATH is the real
// directory for it, so that its IPAM plugin is no stand-in: that would be timed
// twice. A journal that cannot be written is nobody's fault.
func Main(argv0 string) int {
	name := filepath.Base(argv0)
	dir := setting("UNNEST_CNI_PLUGINS", PluginDir)
	r := Run{
		Container: os.Getenv("CNI_CONTAINERID"), Plugin: name,
		Command: os.Getenv("CNI_COMMAND"), Interface: os.Getenv("CNI_IFNAME"),
	}
	begin := time.Now()
	exit, err := run(filepath.Join(dir, name), dir)
	if err != nil {
		_ = types.NewError(types.ErrInternal, fmt.Sprintf("run the plugin behind cni-timer: %v", err), "").Print()
		return 1
	}
	r.Start, r.Duration, r.Exit = begin.UnixNano(), int64(time.Since(begin)), exit
	_ = r.appendTo(setting("UNNEST_CNI_TIMES", Journal))
	return exit
}

func setting(variable, otherwise string) string {
	if v := os.Getenv(variable); v != "" {
		return v
	}
	return otherwise
}

// run ends with the plugin; the plugin ends with us: a runtime that has lost
// patience kills the process that it knows.
func run(path, cniPath string) (exit int, err error) {
	runtime.LockOSThread() // the plugin's parent is the thread
	p, err := os.StartProcess(path, []string{path}, &os.ProcAttr{
		Env:   withCNIPath(os.Environ(), cniPath),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, err
	}
	s, err := p.Wait()
	if err != nil {
		return 0, err
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), nil
	}
	return s.ExitCode(), nil
}

func withCNIPath(env []string, path string) []string {
	var other []string
	for _, v := range env {
		if !strings.HasPrefix(v, "CNI_PATH=") {
			other = append(other, v)
		}
	}
	return append(other, "CNI_PATH="+path)
}

// appendTo writes one line at once, so that lines of others do not get into it.
func (r Run) appendTo(path string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
