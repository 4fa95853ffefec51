package hostlo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/conformance/program"
	"unnest/internal/identity"
	"unnest/internal/podnet/cni"
	"unnest/internal/podnet/hostlo"
	"unnest/internal/podnet/loopback"
)

// TestMain is the plugin itself when the test binary is called by its name, and the
// conformance suite when it is called by that one's.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "hostlo":
		hostlo.SetState(os.Getenv("TEST_STATE_DIR"))
		hostlo.Fail(os.Getenv("TEST_FAIL"))
		os.Exit(cni.Main(os.Args[0], os.Stderr))
	case "unnest-conformance":
		os.Exit(program.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// pluginDir is where Debian's containernetworking-plugins has its plugins.
const pluginDir = "/usr/lib/cni"

// theKey is the segment's.
const theKey = "0123456789abcdef"

// lab is network namespaces, the host's, a guest's and two pods', with a stand-in
// for the host daemon that the guest reaches at server.
type lab struct {
	t                     *testing.T
	host, guest, pod, web ns.NetNS
	daemon                *fakeDaemon
	server                string
	dir                   string // plugin, credentials, state
	usual                 string // settings of a new network namespace
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces, eBPF and TAPs: set UNNEST_PRIVILEGED=1")
	}
	l := &lab{t: t, host: newNS(t), guest: newNS(t), pod: newNS(t), web: newNS(t), dir: t.TempDir()}
	l.usual = l.settings(l.pod)
	exe, err := os.Executable()
	l.check(err)
	l.check(os.Symlink(exe, filepath.Join(l.dir, "hostlo")))
	l.check(os.Symlink(exe, filepath.Join(l.dir, "unnest-conformance")))
	l.startDaemon()
	return l
}

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.Close() }) // a test may have closed it
	return n
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) startDaemon() {
	l.t.Helper()
	a, err := identity.OpenAuthority(l.dir)
	l.check(err)
	c, err := a.Issue("node1")
	l.check(err)
	l.check(os.Mkdir(filepath.Join(l.dir, "unnest"), 0o700))
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		l.check(os.WriteFile(filepath.Join(l.dir, "unnest", name), content, 0o600))
	}
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	l.check(err)
	l.daemon = &fakeDaemon{lab: l, config: config, protocol: 3,
		segments: map[string]*fakeSegment{}, endpoints: map[string]*fakeEndpoint{}}
	l.check(l.guest.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	l.server = l.daemon.start("127.0.0.1:0")
	l.t.Cleanup(func() {
		l.daemon.mu.Lock()
		defer l.daemon.mu.Unlock()
		for key := range l.daemon.endpoints {
			_ = l.daemon.leave(key) // what a failed test has left
		}
	})
}

// path is good as long as the test has the namespace open.
func path(n ns.NetNS) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// config is a configuration of the plugin that names a segment, changed by the
// given edits.
func (l *lab) config(edits ...func(map[string]any)) []byte {
	l.t.Helper()
	c := map[string]any{
		"cniVersion": "1.0.0", "name": "split", "type": "hostlo", "server": l.server,
		"credentials": filepath.Join(l.dir, "unnest"), "wait": "10s", "log": true, "segment": "shop", "key": theKey,
	}
	for _, e := range edits {
		e(c)
	}
	b, err := json.Marshal(c)
	l.check(err)
	return b
}

func with(key string, value any) func(map[string]any) {
	return func(c map[string]any) { c[key] = value }
}

func without(keys ...string) func(map[string]any) {
	return func(c map[string]any) {
		for _, k := range keys {
			delete(c, k)
		}
	}
}

func edits(all ...func(map[string]any)) func(map[string]any) {
	return func(c map[string]any) {
		for _, e := range all {
			e(c)
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

// withResult is the configuration with an ADD's result.
func (l *lab) withResult(config []byte, r *types100.Result) []byte {
	l.t.Helper()
	var c map[string]any
	l.check(json.Unmarshal(config, &c))
	old, err := r.GetAsVersion(c["cniVersion"].(string))
	l.check(err)
	c["prevResult"] = old
	config, err = json.Marshal(c)
	l.check(err)
	return config
}

// answer is how the plugin ended.
type answer struct {
	exit           int
	stdout, stderr string
}

// code is the error code on the standard output, 0 for none.
func (a answer) code() uint {
	var e struct{ Code uint }
	_ = json.Unmarshal([]byte(a.stdout), &e)
	return e.Code
}

// message is that of the error on the standard output.
func (a answer) message() string {
	var e struct{ Msg string }
	_ = json.Unmarshal([]byte(a.stdout), &e)
	return e.Msg
}

// command is one call of the plugin in the guest.
func (l *lab) command(cniCommand string, config []byte, env ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Minute)
	l.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(l.dir, "hostlo"))
	cmd.Stdin = bytes.NewReader(config)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + cniCommand, "CNI_CONTAINERID=c1", "CNI_NETNS=" + path(l.pod),
		"CNI_IFNAME=eth0", "CNI_PATH=" + l.dir,
		"GOCOVERDIR=" + l.dir, // else a test binary built for coverage complains
		"TEST_STATE_DIR=" + filepath.Join(l.dir, "run"),
	}, env...)
	return cmd
}

// inWeb is the environment of the second pod's container.
func (l *lab) inWeb() []string { return []string{"CNI_CONTAINERID=c2", "CNI_NETNS=" + path(l.web)} }

func (l *lab) run(cniCommand string, config []byte, env ...string) answer {
	l.t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := l.command(cniCommand, config, env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := l.guest.Do(func(ns.NetNS) error { return cmd.Run() }) // on this thread, so in this namespace
	if cmd.ProcessState == nil {
		l.t.Fatal(err)
	}
	a := answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	l.t.Logf("%s: exit %d\n%s%s", cniCommand, a.exit, a.stdout, a.stderr)
	return a
}

// succeeds runs a command that prints nothing.
func (l *lab) succeeds(cniCommand string, config []byte, env ...string) {
	l.t.Helper()
	if a := l.run(cniCommand, config, env...); a.exit != 0 || a.stdout != "" {
		l.t.Errorf("%s was refused", cniCommand)
	}
}

// add runs an ADD that has to succeed.
func (l *lab) add(config []byte, env ...string) *types100.Result {
	l.t.Helper()
	a := l.run("ADD", config, env...)
	if a.exit != 0 {
		l.t.Fatal("ADD was refused")
	}
	var conf struct{ CNIVersion string }
	l.check(json.Unmarshal(config, &conf))
	r, err := create.Create(conf.CNIVersion, []byte(a.stdout))
	l.check(err)
	result, err := types100.NewResultFromResult(r)
	l.check(err)
	return result
}

// links are the names of the links in n, apart from lo.
func (l *lab) links(n ns.NetNS) []string {
	l.t.Helper()
	var names []string
	l.check(n.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Attrs().Name != "lo" {
				names = append(names, link.Attrs().Name)
			}
		}
		return err
	}))
	return names
}

// noted are the endpoints that are noted to be given back.
func (l *lab) noted() []string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.dir, "run", "pending*", "*"))
	l.check(err)
	return found
}

// settings are what a segment changes in a pod.
func (l *lab) settings(pod ns.NetNS) string {
	l.t.Helper()
	var all []string
	l.check(pod.Do(func(ns.NetNS) error {
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

// wantNothing fails the test when an ADD or DEL has left something behind.
func (l *lab) wantNothing() {
	l.t.Helper()
	if endpoints := l.daemon.all(); len(endpoints) > 0 {
		l.t.Errorf("the daemon still has %v", endpoints)
	}
	for name, n := range map[string]ns.NetNS{"guest": l.guest, "host": l.host} {
		if links := l.links(n); len(links) > 0 {
			l.t.Errorf("the %s still has links %v", name, links)
		}
	}
	if noted := l.noted(); len(noted) > 0 {
		l.t.Errorf("still noted: %v", noted)
	}
}

// wantAlone fails the test when the pod's localhost is not its own, or the pod has
// other links than the ones given.
func (l *lab) wantAlone(pod ns.NetNS, links ...string) {
	l.t.Helper()
	if got := l.links(pod); !slices.Equal(got, links) {
		l.t.Errorf("the pod has links %v, want %v", got, links)
	}
	if got := l.settings(pod); got != l.usual {
		l.t.Errorf("the pod has the settings %s, want %s", got, l.usual)
	}
	if m, err := loopback.Membership(pod); err == nil {
		l.t.Errorf("the pod's localhost is shared with %s", m.Members)
	}
}
