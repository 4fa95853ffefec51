package hostlo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/check/cni"
	"unnest.io/unnest/internal/cni/cnitest"
)

// runChecks runs the conformance checks with the options in in, and prints the
// outcomes.
func runChecks(in io.Reader, out io.Writer) error {
	var o cni.Options
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	var failed []string
	err := cni.Run(context.Background(), o, func(outcome cni.Outcome) {
		if outcome.Verdict() == cni.Fail {
			failed = append(failed, outcome.Check)
		}
		_, _ = fmt.Fprintf(out, "%s %s %s %v\n", outcome.Verdict(), outcome.Version, outcome.Check, outcome.Err)
	})
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("failed: %v", failed))
	}
	return err
}

// check runs the conformance checks in the guest on a network of the given plugins.
// They have a directory of their own for named namespaces.
func (l *lab) check(version string, plugins []map[string]any, o cni.Options) (out string, err error) {
	l.t.Helper()
	list, err := json.Marshal(map[string]any{"cniVersion": version, "name": "conformance", "plugins": plugins})
	l.Must(err)
	o.Network = cni.Network{List: list, Path: []string{l.Dir, cnitest.PluginDir}}
	options, err := json.Marshal(o)
	l.Must(err)
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Minute)
	defer cancel()
	const script = `mkdir -p /run/netns && mount --make-rprivate / && mount -t tmpfs tmpfs /run/netns && exec "$0"`
	cmd := exec.CommandContext(ctx, "/bin/sh", "-ec", script, filepath.Join(l.Dir, "checks"))
	cmd.Stdin = bytes.NewReader(options)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), "TEST_STATE_DIR="+filepath.Join(l.Dir, "run"), "GORACE=atexit_sleep_ms=0")
	err = l.Guest.Do(func(ns.NetNS) error {
		text, err := cmd.CombinedOutput()
		out = string(text)
		return err
	})
	return out, err
}

// plugin is ours in a list.
func (l *lab) plugin() map[string]any {
	var c map[string]any
	l.Must(json.Unmarshal(l.config(without("cniVersion", "name", "log")), &c))
	return c
}

// except matches all checks but those named.
func except(names []string) *regexp.Regexp {
	rest := slices.DeleteFunc(cni.Checks(), func(c string) bool { return slices.Contains(names, c) })
	return regexp.MustCompile("^(" + strings.Join(rest, "|") + ")$")
}

// The plugin passes the checks: alone, in a chain after Debian's bridge, and there
// also for pods without a segment. It always refuses a second endpoint for a pod
// (add-two-interfaces). The checks put many pods into one segment. A host daemon
// allows one endpoint of a segment per guest; the fake one allows them all, except
// with single.
func TestConformance(t *testing.T) {
	var plain string
	if os.Getenv("UNNEST_PRIVILEGED") == "1" {
		if _, err := os.Stat(filepath.Join(cnitest.PluginDir, "bridge")); err != nil {
			t.Fatalf("install containernetworking-plugins: %v", err)
		}
		plain = cnitest.Plain(t)
	}
	bridge := map[string]any{"type": "bridge", "bridge": "cni9", "isGateway": true, "ipam": map[string]any{
		"type": "host-local", "dataDir": t.TempDir(), "ranges": [][]map[string]string{{{"subnet": "10.77.0.0/24"}}},
		"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
	}}
	for _, c := range []struct {
		name     string
		version  string
		single   bool
		before   []map[string]any
		segment  bool
		options  cni.Options
		excepted []string
		least    int // checks that pass
	}{
		{"alone", "1.1.0", false, nil, true, cni.Options{Versions: []string{"1.1.0"}, Kills: 2, Capacity: 6},
			[]string{"add-two-interfaces"}, 38},
		{"alone in its guest", "0.4.0", true, nil, true, cni.Options{Versions: []string{"0.3.1", "1.1.0"}, Kills: 1, Parallel: 1},
			[]string{"add-two-interfaces", "gc-keeps-valid", "gc-leaked"}, 60},
		{"after bridge", "1.0.0", false, []map[string]any{bridge}, true, cni.Options{Versions: []string{"1.0.0"}, Kills: 1, SpareLinks: 1, Parallel: 4},
			[]string{"add-two-interfaces"}, 30},
		{"passed on", "1.0.0", false, []map[string]any{bridge}, false, cni.Options{Versions: []string{"1.0.0"}, Kills: 1, SpareLinks: 1}, nil, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.Use(plain, "hostlo", "checks") // some hundred calls
			l.daemon.capacity, l.daemon.single = 6, c.single
			ours := l.plugin()
			if !c.segment {
				without("segment", "key")(ours)
			}
			c.options.Only = except(c.excepted)
			out, err := l.check(c.version, append(c.before, ours), c.options)
			if passed := strings.Count(out, "pass "); err != nil || passed < c.least {
				t.Errorf("%v, %d passed:\n%s", err, passed, out)
			}
			if endpoints := l.daemon.all(); len(endpoints) > 0 {
				t.Errorf("the daemon still has %v", endpoints)
			}
			if pending := l.Pending(); len(pending) > 0 {
				t.Errorf("still pending: %v", pending)
			}
			if joined := len(l.daemon.requests) > 0; joined != c.segment {
				t.Errorf("a segment was asked for: %v", joined)
			}
		})
	}
}
