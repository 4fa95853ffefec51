package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// nodes are guests in a lab with a host daemon, for tests that need more control over them
// than the command line gives.
type nodes struct {
	t        *testing.T
	fleet    *fleet.Fleet
	binaries string // directory
	image    image.Image
	cold     bool // boot all guests, restore none
}

// newNodes creates a lab and starts its daemon. Before that, prepare may change the lab and
// the policy of the daemon. All is removed at the end of the test.
func newNodes(t *testing.T, prepare func(*fleet.Fleet)) *nodes {
	t.Helper()
	n := &nodes{t: t, binaries: filepath.Dir(unnestBinary(t))}
	var err error
	n.image, err = guestimage.Build(t.Context(), n.binaries, func(string) {})
	n.check(err)
	l, err := lab.Create("run-e2e-" + strings.ToLower(rand.Text()[:6]))
	n.check(err)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(l.Dir, "hostd.log"))
			t.Logf("end of the log of the host daemon:\n%s", log[max(0, len(log)-6000):])
			consoles, _ := filepath.Glob(filepath.Join(l.Dir, "guests", "*", "console.log"))
			for _, path := range consoles {
				text, _ := os.ReadFile(path)
				t.Logf("end of %s:\n%s", path, text[max(0, len(text)-3000):])
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	n.fleet, err = fleet.Open(l)
	n.check(err)
	if prepare != nil {
		prepare(n.fleet)
	}
	n.startDaemon()
	return n
}

func (n *nodes) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *nodes) startDaemon() {
	n.t.Helper()
	n.check(n.fleet.StartDaemon(n.t.Context(), filepath.Join(n.binaries, "unnest")))
}

// node is a guest with a shell.
type node struct {
	*fleet.Node
	nodes *nodes
	ssh   *place.SSH
}

func (n *nodes) boot(o fleet.Options) *node {
	n.t.Helper()
	m := n.launch(o)
	m.login()
	return m
}

// bootAll boots count guests at the same time: node1, node2, and so on.
func (n *nodes) bootAll(count int, o fleet.Options) (all []*node) {
	n.t.Helper()
	options := slices.Repeat([]fleet.Options{n.complete(o)}, count)
	for k := range options {
		options[k].Name = fmt.Sprintf("node%d", k+1)
	}
	all = make([]*node, count)
	n.check(n.fleet.LaunchAll(n.t.Context(), options, func(i int, launched *fleet.Node) error {
		all[i] = &node{Node: launched, nodes: n}
		return nil
	}))
	for _, m := range all {
		m.login()
	}
	return all
}

// launch starts a guest, which is ready after login.
func (n *nodes) launch(o fleet.Options) *node {
	n.t.Helper()
	launched, err := n.fleet.Launch(n.t.Context(), n.complete(o))
	n.check(err)
	return &node{Node: launched, nodes: n}
}

// complete sets the options that are missing. Guests of the usual size are restored from one snapshot;
// the others boot.
func (n *nodes) complete(o fleet.Options) fleet.Options {
	n.t.Helper()
	accel, err := guest.ChooseAccel("")
	n.check(err)
	o.Image, o.Accel = n.image, accel.Accel
	if !n.cold && o.VCPUs == 0 && o.Memory == 0 && o.Slots <= 8 {
		o.Snapshots = n.snapshots()
	}
	if o.VCPUs == 0 {
		o.VCPUs = 1
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	return o
}

// bootLimit bounds the boot of a guest. A guest of a guest needs minutes on a busy machine.
const bootLimit = 5 * time.Minute

func (m *node) login() {
	m.nodes.t.Helper()
	ctx, cancel := context.WithTimeout(m.nodes.t.Context(), bootLimit)
	defer cancel()
	ssh, _, err := m.nodes.fleet.Login(ctx, m.Node)
	m.nodes.check(err)
	m.nodes.t.Cleanup(func() { ssh.Close() })
	m.ssh = ssh
}

// run runs a shell script in the guest, which must succeed, and returns its output.
func (m *node) run(script string) string {
	m.nodes.t.Helper()
	out, err := m.try(script, "")
	if err != nil {
		m.nodes.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return out
}

// try runs a shell script in the guest and returns its output.
func (m *node) try(script, stdin string) (string, error) {
	ctx, cancel := context.WithTimeout(m.nodes.t.Context(), 20*time.Minute)
	defer cancel()
	return m.execute(ctx, new(output), script, stdin)
}

// whileItPrints is try without a limit, for a script that prints as it goes on. It ends a script
// that has printed nothing for the given time.
func (m *node) whileItPrints(silence time.Duration, script string) (string, error) {
	ctx, cancel := context.WithCancel(m.nodes.t.Context())
	defer cancel()
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	return m.execute(ctx, &output{written: func() { silent.Reset(silence) }}, script, "")
}

func (m *node) execute(ctx context.Context, out *output, script, stdin string) (string, error) {
	p, err := m.ssh.Start(ctx, place.Command{
		Args: []string{"sh", "-c", script}, Stdin: strings.NewReader(stdin), Stdout: out, Stderr: out,
	})
	if err == nil {
		err = p.Wait()
	}
	return out.String(), err
}

// output is a buffer for both streams of a command, which are copied at the same time. It can
// be read while the command runs.
type output struct {
	written func() // if not nil, called at each Write

	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	if o.written != nil {
		o.written()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// cniError is the error object of a plugin.
type cniError struct {
	Code uint   `json:"code"`
	Msg  string `json:"msg"`
}

func (e *cniError) Error() string { return fmt.Sprintf("CNI error %d: %s", e.Code, e.Msg) }

// brfusion runs the plugin for a container, with additional keys in the configuration.
func (m *node) brfusion(verb, container string, keys map[string]any) (*types100.Result, error) {
	config := map[string]any{
		"cniVersion": "1.1.0", "name": "e2e", "type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"},
	}
	maps.Copy(config, keys)
	return m.plugin(verb, container, config)
}

// hostlo runs the plugin for a container, with additional keys in the configuration.
func (m *node) hostlo(verb, container string, keys map[string]any) (*types100.Result, error) {
	config := map[string]any{"cniVersion": "1.1.0", "name": "e2e", "type": "hostlo", "server": daemonAddress}
	maps.Copy(config, keys)
	return m.plugin(verb, container, config)
}

// plugin runs the plugin of the configuration for a container. The network namespace has the
// name of the container.
func (m *node) plugin(verb, container string, config map[string]any) (*types100.Result, error) {
	stdin, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	script := fmt.Sprintf("CNI_COMMAND=%s CNI_CONTAINERID=%s CNI_NETNS=/run/netns/%s CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni /usr/lib/cni/%s",
		verb, container, container, config["type"])
	out, err := m.try(script, string(stdin))
	if err != nil {
		failure := &cniError{}
		if json.Unmarshal([]byte(out), failure) == nil && failure.Code > 0 {
			return nil, failure
		}
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	if verb != "ADD" {
		return nil, nil
	}
	r := &types100.Result{}
	return r, json.Unmarshal([]byte(out), r)
}

// pod creates a network namespace with its own NIC and returns its addresses.
func (m *node) pod(name string, keys map[string]any) []netip.Addr {
	m.nodes.t.Helper()
	m.run("ip netns add " + name)
	r, err := m.brfusion("ADD", name, keys)
	if err != nil {
		m.nodes.t.Fatalf("ADD %s: %v", name, err)
	}
	var all []netip.Addr
	for _, ip := range r.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		all = append(all, a.Unmap())
	}
	return all
}

// reaches reports whether a pod gets an answer from an address.
func (m *node) reaches(pod string, a netip.Addr) bool {
	_, err := m.try(fmt.Sprintf("ip netns exec %s busybox ping -c 2 -W 2 %s", pod, a), "")
	return err == nil
}

// wantReach fails unless a pod reaches an address. If it is to reach it, that may take a while on
// a busy machine.
func (m *node) wantReach(pod string, a netip.Addr, want bool) {
	m.nodes.t.Helper()
	got := m.reaches(pod, a)
	for begin := time.Now(); want && !got && time.Since(begin) < time.Minute; {
		got = m.reaches(pod, a)
	}
	if got != want {
		m.nodes.t.Errorf("%s: pod %s reaches %s: got %v, want %v", m.Name, pod, a, got, want)
	}
}

func (n *nodes) eventually(what string, f func() bool) {
	n.t.Helper()
	n.within(2*time.Minute, what, f)
}

func (n *nodes) within(limit time.Duration, what string, f func() bool) {
	n.t.Helper()
	for begin := time.Now(); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > limit {
			n.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// wantCode fails unless err is an error of the plugin with the code and the words.
func wantCode(t *testing.T, what string, err error, code uint, words string) {
	t.Helper()
	failure := &cniError{}
	if !errors.As(err, &failure) || failure.Code != code || !strings.Contains(failure.Msg, words) {
		t.Errorf("%s: got %v, want CNI error %d with %q", what, err, code, words)
	}
}

// goBuild builds a binary with the go command and returns its path.
func goBuild(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", slices.Insert(slices.Clone(args), len(args)-1, "-o", path)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", name, err, out)
	}
	return path
}

// hasPort reports whether a list of links contains a port of a pod or of the pool.
func hasPort(links string) bool { return strings.Contains(links, "alias unnest:") }
