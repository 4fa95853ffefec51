package hostlo_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/check/cni"
	"unnest/internal/cni/cnitest"
)

// suite runs the conformance suite in the guest on a network of the given plugins.
// Pods' namespaces have their names in a directory of the suite's own.
func (l *lab) suite(version string, plugins []map[string]any, flags ...string) (out string, err error) {
	l.t.Helper()
	list, err := json.Marshal(map[string]any{"cniVersion": version, "name": "conformance", "plugins": plugins})
	l.Must(err)
	file := filepath.Join(l.Dir, "network.conflist")
	l.Must(os.WriteFile(file, list, 0o600))
	ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Minute)
	defer cancel()
	const script = `mkdir -p /run/netns && mount --make-rprivate / && mount -t tmpfs tmpfs /run/netns && exec "$@"`
	args := append([]string{"-ec", script, "sh", filepath.Join(l.Dir, "unnest-conformance"), "--cni-path", l.Dir + ":" + cnitest.PluginDir}, flags...)
	cmd := exec.CommandContext(ctx, "/bin/sh", append(args, file)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	cmd.Env = append(os.Environ(), "TEST_STATE_DIR="+filepath.Join(l.Dir, "run"))
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

// except are the flags for all checks but those named.
func except(names ...string) []string {
	rest := slices.DeleteFunc(cni.Checks(), func(c string) bool { return slices.Contains(names, c) })
	return []string{"--run", "^(" + strings.Join(rest, "|") + ")$"}
}

// The plugin passes the suite: alone, in a chain after Debian's bridge, and there
// also for pods without a segment. What it refuses in any case is a second endpoint
// for a pod (add-two-interfaces). The suite wants many pods in one segment, which a
// host daemon has on several guests only; this one has them all, or, as that does,
// one in a guest.
func TestConformance(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") == "1" {
		if _, err := os.Stat(filepath.Join(cnitest.PluginDir, "bridge")); err != nil {
			t.Fatalf("install containernetworking-plugins: %v", err)
		}
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
		flags    []string
		excepted []string
		least    int // checks that pass
	}{
		{"alone", "1.1.0", false, nil, true, []string{"--version", "1.1.0", "--kills", "2", "--capacity", "6"},
			[]string{"add-two-interfaces"}, 38},
		{"alone in its guest", "0.4.0", true, nil, true, []string{"--version", "0.3.1", "--version", "1.1.0", "--kills", "1", "--parallel", "1"},
			[]string{"add-two-interfaces", "gc-keeps-valid", "gc-leaked"}, 60},
		{"after bridge", "1.0.0", false, []map[string]any{bridge}, true, []string{"--version", "1.0.0", "--kills", "1", "--spare-links", "1", "--parallel", "4"},
			[]string{"add-two-interfaces"}, 30},
		{"passed on", "1.0.0", false, []map[string]any{bridge}, false, []string{"--version", "1.0.0", "--kills", "1", "--spare-links", "1"}, nil, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.daemon.capacity, l.daemon.single = 6, c.single
			ours := l.plugin()
			if !c.segment {
				without("segment", "key")(ours)
			}
			out, err := l.suite(c.version, append(c.before, ours), append(c.flags, except(c.excepted...)...)...)
			if passed := strings.Count(out, "pass "); err != nil || passed < c.least {
				t.Errorf("%v, %d passed:\n%s", err, passed, out)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			t.Log(lines[len(lines)-1])
			if endpoints := l.daemon.all(); len(endpoints) > 0 {
				t.Errorf("the daemon still has %v", endpoints)
			}
			if noted := l.Noted(); len(noted) > 0 {
				t.Errorf("still noted: %v", noted)
			}
			if joined := len(l.daemon.requests) > 0; joined != c.segment {
				t.Errorf("a segment was asked for: %v", joined)
			}
		})
	}
}
