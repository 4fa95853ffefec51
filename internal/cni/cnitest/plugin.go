package cnitest

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/plugins/pkg/ns"
)

// Config is a configuration of the plugin: the common keys and its own, changed by the
// given edits.
func (l *Lab) Config(own map[string]any, edits ...func(map[string]any)) []byte {
	l.t.Helper()
	c := map[string]any{
		"cniVersion": "1.0.0", "type": l.plugin, "server": l.Server,
		"credentials": l.credentials(), "wait": "1m", "log": true,
	}
	maps.Copy(c, own)
	Edits(edits...)(c)
	b, err := json.Marshal(c)
	l.Must(err)
	return b
}

// With sets a key of a configuration.
func With(key string, value any) func(map[string]any) {
	return func(c map[string]any) { c[key] = value }
}

// Edits joins several edits.
func Edits(all ...func(map[string]any)) func(map[string]any) {
	return func(c map[string]any) {
		for _, e := range all {
			e(c)
		}
	}
}

// Valid makes eth0 of these containers the valid attachments.
func Valid(ids ...string) func(map[string]any) {
	all := []any{}
	for _, id := range ids {
		all = append(all, map[string]any{"containerID": id, "ifname": "eth0"})
	}
	return With("cni.dev/valid-attachments", all)
}

// WithResult is the configuration with prevResult.
func (l *Lab) WithResult(config []byte, r *types100.Result) []byte {
	l.t.Helper()
	var c map[string]any
	l.Must(json.Unmarshal(config, &c))
	old, err := r.GetAsVersion(c["cniVersion"].(string))
	l.Must(err)
	c["prevResult"] = old
	config, err = json.Marshal(c)
	l.Must(err)
	return config
}

// Answer is the exit code and the output of the plugin.
type Answer struct {
	Exit           int
	Stdout, Stderr string
}

func (a Answer) err() (e types.Error) {
	_ = json.Unmarshal([]byte(a.Stdout), &e)
	return e
}

// Code is the error code on the standard output, 0 for none.
func (a Answer) Code() uint { return a.err().Code }

// Message is the error message on the standard output.
func (a Answer) Message() string { return a.err().Msg }

// Command is one call of the plugin for the interface eth0 of the container c1 in the
// pod.
func (l *Lab) Command(cniCommand string, config []byte, env ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Minute)
	l.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(l.Dir, l.plugin))
	cmd.Stdin = bytes.NewReader(config)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + cniCommand, "CNI_CONTAINERID=c1", "CNI_NETNS=" + Path(l.Pod),
		"CNI_IFNAME=eth0", "CNI_PATH=" + l.Dir + ":" + PluginDir,
		"HTTPS_PROXY=http://127.0.0.1:1", // must have no effect
		"GOCOVERDIR=" + l.Dir,            // for test binaries built for coverage
		"GORACE=atexit_sleep_ms=0",       // disables the pause of the race detector at each exit
		"TEST_STATE_DIR=" + filepath.Join(l.Dir, "run"),
	}, env...)
	return cmd
}

// Do runs a command in the guest.
func (l *Lab) Do(cmd *exec.Cmd) Answer {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := l.Guest.Do(func(ns.NetNS) error { return cmd.Run() })
	if cmd.ProcessState == nil {
		l.t.Fatal(err)
	}
	return Answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Run runs the plugin.
func (l *Lab) Run(cniCommand string, config []byte, env ...string) Answer {
	l.t.Helper()
	a := l.Do(l.Command(cniCommand, config, env...))
	l.t.Logf("%s: exit %d\n%s%s", cniCommand, a.Exit, a.Stdout, a.Stderr)
	return a
}

// Succeeds runs a command that must succeed and print nothing.
func (l *Lab) Succeeds(cniCommand string, config []byte, env ...string) {
	l.t.Helper()
	if a := l.Run(cniCommand, config, env...); a.Exit != 0 || a.Stdout != "" {
		l.t.Errorf("%s failed", cniCommand)
	}
}

// Add runs an ADD that must succeed.
func (l *Lab) Add(config []byte, env ...string) *types100.Result {
	l.t.Helper()
	a := l.Run("ADD", config, env...)
	if a.Exit != 0 {
		l.t.Fatal("ADD failed")
	}
	var conf struct{ CNIVersion string }
	l.Must(json.Unmarshal(config, &conf))
	r, err := create.Create(conf.CNIVersion, []byte(a.Stdout))
	l.Must(err)
	result, err := types100.NewResultFromResult(r)
	l.Must(err)
	return result
}

// AddWithoutOutput runs an ADD that cannot print its result, and returns its log.
func (l *Lab) AddWithoutOutput(config []byte, env ...string) (log string) {
	l.t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	l.Must(err)
	defer full.Close()
	var stderr strings.Builder
	cmd := l.Command("ADD", config, env...)
	cmd.Stdout, cmd.Stderr = full, &stderr
	if err := l.Guest.Do(func(ns.NetNS) error { return cmd.Run() }); err == nil {
		l.t.Error("ADD succeeded")
	}
	return stderr.String()
}

// Interrupt sends an ADD a signal when the channel is closed. The ADD must fail.
func (l *Lab) Interrupt(signal os.Signal, when <-chan struct{}, config []byte) {
	l.t.Helper()
	cmd := l.Command("ADD", config)
	l.Must(l.Guest.Do(func(ns.NetNS) error { return cmd.Start() }))
	select {
	case <-when:
	case <-time.After(time.Minute):
		l.t.Error("ADD does not reach the step at which it is interrupted")
	}
	l.Must(cmd.Process.Signal(signal))
	if err := cmd.Wait(); err == nil {
		l.t.Error("ADD succeeded")
	}
}

// RunByAnother is Run for another runtime of the guest.
func (l *Lab) RunByAnother(command string, config []byte, env ...string) Answer {
	l.t.Helper()
	shell, err := os.ReadFile("/bin/sh")
	l.Must(err)
	other := filepath.Join(l.Dir, "other-runtime")
	l.Must(os.WriteFile(other, shell, 0o755))
	cmd := l.Command(command, config, env...)
	cmd.Args, cmd.Path = []string{other, "-c", cmd.Path + "; exit $?"}, other
	return l.Do(cmd)
}
