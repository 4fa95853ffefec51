package hostlo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/hostlo"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/cni/plugin"
)

// TestMain is the plugin when the test binary is called by its name, and the
// conformance checks when it is called "checks".
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "hostlo":
		attachment.StateDir = os.Getenv("TEST_STATE_DIR")
		hostlo.Fail(os.Getenv("TEST_FAIL"))
		os.Exit(plugin.Main(os.Args[0], os.Stderr, hostlo.Plugin))
	case "checks":
		if err := runChecks(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// theKey is the segment's.
const theKey = "0123456789abcdef"

var with, edits, path = cnitest.With, cnitest.Edits, cnitest.Path

// lab has a second pod and a fake host daemon.
type lab struct {
	*cnitest.Lab
	t      *testing.T
	web    ns.NetNS
	daemon *fakeDaemon
	usual  string // settings of a new network namespace
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{Lab: cnitest.New(t, "hostlo", "checks"), t: t, web: cnitest.NewNS(t)}
	l.usual = l.settings(l.Pod)
	l.daemon = &fakeDaemon{lab: l, protocol: 3, segments: map[string]*fakeSegment{}, endpoints: map[string]*fakeEndpoint{}}
	l.daemon.start()
	t.Cleanup(func() {
		l.daemon.mu.Lock()
		defer l.daemon.mu.Unlock()
		for key := range l.daemon.endpoints {
			_ = l.daemon.leave(key) // left by a failed test
		}
	})
	return l
}

// config is a configuration of the plugin that names a segment, changed by the
// given edits.
func (l *lab) config(edits ...func(map[string]any)) []byte {
	l.t.Helper()
	return l.Config(map[string]any{"name": "split", "segment": "shop", "key": theKey}, edits...)
}

func without(keys ...string) func(map[string]any) {
	return func(c map[string]any) {
		for _, k := range keys {
			delete(c, k)
		}
	}
}

// chained is a configuration in a chain after a plugin that has made eth0 in the pod.
func (l *lab) chained(pod ns.NetNS) func(map[string]any) {
	return func(c map[string]any) {
		c["prevResult"] = map[string]any{
			"cniVersion": c["cniVersion"],
			"interfaces": []any{map[string]any{"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": path(pod)}},
			"ips":        []any{map[string]any{"version": "4", "address": "10.201.0.7/16", "interface": 0}},
			"dns":        map[string]any{"nameservers": []any{"10.201.0.1"}},
		}
	}
}

// inWeb is the environment of the second pod's container.
func (l *lab) inWeb() []string { return []string{"CNI_CONTAINERID=c2", "CNI_NETNS=" + path(l.web)} }

// settings are what a segment changes in a pod.
func (l *lab) settings(pod ns.NetNS) string {
	l.t.Helper()
	var all []string
	l.Must(pod.Do(func(ns.NetNS) error {
		for _, name := range []string{"conf/lo/route_localnet", "conf/lo/accept_local", "ip_local_port_range"} {
			content, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
			if err != nil {
				return err
			}
			all = append(all, strings.Join(strings.Fields(string(content)), "-"))
		}
		return nil
	}))
	return strings.Join(all, " ")
}

// wantNothing fails the test unless the guest, the host and the daemon are clean.
func (l *lab) wantNothing() {
	l.t.Helper()
	l.WantClean()
	if endpoints := l.daemon.all(); len(endpoints) > 0 {
		l.t.Errorf("the daemon still has %v", endpoints)
	}
}

// wantAlone fails the test when the pod is in a segment or has other links than the
// given ones.
func (l *lab) wantAlone(pod ns.NetNS, links ...string) {
	l.t.Helper()
	if got := l.Links(pod); !slices.Equal(got, links) {
		l.t.Errorf("the pod has links %v, want %v", got, links)
	}
	if got := l.settings(pod); got != l.usual {
		l.t.Errorf("the pod has the settings %s, want %s", got, l.usual)
	}
	if m, err := loopback.Membership(pod); err == nil {
		l.t.Errorf("the pod's localhost is shared with %s", m.Members)
	}
}
