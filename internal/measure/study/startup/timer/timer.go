// Package timer stands in for a CNI plugin: it runs the real plugin of the same name
// and appends the duration to a journal. A runtime whose CNI_PATH begins with a
// directory of links to it times all its plugins.
//
// What the times mean does not belong here.
package timer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// Defaults of the environment variables in the comments.
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
	Duration  int64  `json:"duration"` // nanoseconds, from fork to exit
	Exit      int    `json:"exit"`     // 128 and the signal's number after a signal
}

// Main runs the plugin whose name is the last part of argv0, with this process's
// streams and environment, and returns its exit code. The plugin's CNI_PATH is the
// directory of the real plugins, so that its IPAM plugin is not timed as well. An
// error of the journal is ignored.
func Main(argv0 string) int {
	name := filepath.Base(argv0)
	dir := cmp.Or(os.Getenv("UNNEST_CNI_PLUGINS"), PluginDir)
	r := Run{
		Container: os.Getenv("CNI_CONTAINERID"), Plugin: name,
		Command: os.Getenv("CNI_COMMAND"), Interface: os.Getenv("CNI_IFNAME"),
	}
	begin := time.Now()
	exit, err := run(filepath.Join(dir, name), dir)
	if err != nil {
		_ = types.NewError(types.ErrInternal, fmt.Sprintf("run the plugin for cni-timer: %v", err), "").Print()
		return 1
	}
	r.Start, r.Duration, r.Exit = begin.UnixNano(), int64(time.Since(begin)), exit
	_ = r.appendTo(cmp.Or(os.Getenv("UNNEST_CNI_TIMES"), Journal))
	return exit
}

// run kills the plugin when this process ends, because a runtime that gives up kills
// only the process that it has started.
func run(path, cniPath string) (exit int, err error) {
	runtime.LockOSThread() // Pdeathsig refers to the thread
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CNI_PATH=") })
	p, err := os.StartProcess(path, []string{path}, &os.ProcAttr{
		Env:   append(env, "CNI_PATH="+cniPath),
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

// appendTo writes the line in one call, so that concurrent lines do not mix.
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
