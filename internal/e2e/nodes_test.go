package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	mathrand "math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"golang.org/x/sys/unix"

	"unnest/internal/hostd/daemon"
	"unnest/internal/measure/bench"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// nodes are guests in a lab with a host daemon, for tests that need more of them
// than the command line gives.
type nodes struct {
	t        *testing.T
	fleet    *fleet.Fleet
	programs string
	image    guest.Image
}

// newNodes makes a lab and starts its daemon; prepare may change the lab and the
// daemon's policy before that. Everything goes with the test.
func newNodes(t *testing.T, prepare func(*fleet.Fleet)) *nodes {
	t.Helper()
	unnest := program(t)
	n := &nodes{t: t, programs: filepath.Dir(unnest)}
	var err error
	n.image, err = bench.BuildImage(t.Context(), n.programs, func(string) {})
	n.check(err)
	l, err := lab.Create("run-e2e-" + strings.ToLower(rand.Text()[:6]))
	n.check(err)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(l.Dir, "hostd.log"))
			t.Logf("the host daemon's log ends:\n%s", log[max(0, len(log)-6000):])
			consoles, _ := filepath.Glob(filepath.Join(l.Dir, "guests", "*", "console.log"))
			for _, path := range consoles {
				text, _ := os.ReadFile(path)
				t.Logf("%s ends:\n%s", path, text[max(0, len(text)-3000):])
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
	n.check(n.fleet.StartDaemon(n.t.Context(), filepath.Join(n.programs, "unnest")))
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

// bootAll boots so many guests at the same time: node1, node2, ….
func (n *nodes) bootAll(count int, o fleet.Options) (all []*node) {
	n.t.Helper()
	for k := range count {
		o.Name = fmt.Sprintf("node%d", k+1)
		all = append(all, n.launch(o))
	}
	for _, m := range all {
		m.login()
	}
	return all
}

// launch starts a guest, which is ready after login.
func (n *nodes) launch(o fleet.Options) *node {
	n.t.Helper()
	accel, err := guest.ChooseAccel("")
	n.check(err)
	o.Image, o.Accel = n.image, accel.Accel
	if o.VCPUs == 0 {
		o.VCPUs = 1
	}
	if o.Memory == 0 {
		o.Memory = 1 << 30
	}
	launched, err := n.fleet.Launch(n.t.Context(), o)
	n.check(err)
	return &node{Node: launched, nodes: n}
}

func (m *node) login() {
	m.nodes.t.Helper()
	ctx, cancel := context.WithTimeout(m.nodes.t.Context(), 2*time.Minute)
	defer cancel()
	ssh, _, err := m.nodes.fleet.Login(ctx, m.Node)
	m.nodes.check(err)
	m.nodes.t.Cleanup(func() { ssh.Close() })
	m.ssh = ssh
}

// run runs a shell script in the guest, which must succeed, and returns what it
// prints.
func (m *node) run(script string) string {
	m.nodes.t.Helper()
	out, err := m.try(script, "")
	if err != nil {
		m.nodes.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return out
}

// try runs a shell script in the guest and returns what it prints.
func (m *node) try(script, stdin string) (string, error) {
	ctx, cancel := context.WithTimeout(m.nodes.t.Context(), 8*time.Minute)
	defer cancel()
	var out output
	p, err := m.ssh.Start(ctx, place.Command{
		Args: []string{"sh", "-c", script}, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &out,
	})
	if err == nil {
		err = p.Wait()
	}
	return out.text.String(), err
}

// output is what a command prints on both of its streams, which are copied at the same
// time: a bytes.Buffer would lose what the one has written while the other is read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// cniError is what a plugin prints when it fails.
type cniError struct {
	Code uint   `json:"code"`
	Msg  string `json:"msg"`
}

func (e *cniError) Error() string { return fmt.Sprintf("CNI error %d: %s", e.Code, e.Msg) }

// brfusion runs the plugin for a container, with more keys in the configuration.
func (m *node) brfusion(verb, container string, keys map[string]any) (*types100.Result, error) {
	config := map[string]any{
		"cniVersion": "1.1.0", "name": "e2e", "type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"},
	}
	maps.Copy(config, keys)
	return m.plugin(verb, container, config)
}

// hostlo runs the plugin for a container, with more keys in the configuration.
func (m *node) hostlo(verb, container string, keys map[string]any) (*types100.Result, error) {
	config := map[string]any{"cniVersion": "1.1.0", "name": "e2e", "type": "hostlo", "server": daemonAddress}
	maps.Copy(config, keys)
	return m.plugin(verb, container, config)
}

// plugin runs the plugin that the configuration names for a container, whose network
// namespace has its name.
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

// pod makes a network namespace with a NIC of its own and returns its addresses.
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

func (m *node) wantReach(pod string, a netip.Addr, want bool) {
	m.nodes.t.Helper()
	if got := m.reaches(pod, a); got != want {
		m.nodes.t.Errorf("%s: pod %s reaches %s: %v, want %v", m.Name, pod, a, got, want)
	}
}

// status asks the daemon.
func (n *nodes) status() daemon.Status {
	n.t.Helper()
	s, err := daemon.AskStatus(n.t.Context(), n.fleet.Lab.Dir)
	n.check(err)
	return s
}

// guestStatus is the part of one guest, once the daemon has taken it over.
func (n *nodes) guestStatus(name string) (s daemon.GuestStatus) {
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

func (n *nodes) eventually(what string, f func() bool) {
	n.t.Helper()
	for begin := time.Now(); !f(); time.Sleep(100 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			n.t.Fatalf("waited 30 s in vain: %s", what)
		}
	}
}

// wantCode fails unless err is the plugin's error with the code and the words.
func wantCode(t *testing.T, what string, err error, code uint, words string) {
	t.Helper()
	failure := &cniError{}
	if !errors.As(err, &failure) || failure.Code != code || !strings.Contains(failure.Msg, words) {
		t.Errorf("%s: got %v, want CNI error %d with %q", what, err, code, words)
	}
}

// daemonPID is the daemon's process.
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
		if bytes.Contains(line, []byte("\x00hostd\x00")) && bytes.Contains(line, []byte(n.fleet.Lab.Dir)) {
			var pid int
			if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil {
				return pid, nil
			}
		}
	}
	return 0, errors.New("there is no daemon")
}

// killDaemon kills it and waits for its end.
func (n *nodes) killDaemon() {
	n.t.Helper()
	pid := n.daemonPID()
	n.check(unix.Kill(pid, unix.SIGKILL))
	n.eventually("the daemon has ended", func() bool { return ended(pid) })
}

// replaceDaemon kills the daemon and starts another. In between there is none for up to
// one and a half seconds.
func (n *nodes) replaceDaemon() error {
	pid, err := n.findDaemon()
	if err == nil {
		err = unix.Kill(pid, unix.SIGKILL)
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(30 * time.Second); !ended(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the daemon (pid %d) was killed and does not end", pid)
		}
	}
	time.Sleep(time.Duration(mathrand.IntN(1500)) * time.Millisecond)
	return n.fleet.StartDaemon(n.t.Context(), filepath.Join(n.programs, "unnest"))
}

// ended reports whether a process has, with all its threads: what it has open is closed
// when the last one goes, but the first may be a zombie before that.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return strings.Contains(string(stat), ") Z ") && len(threads) <= 1 || errors.Is(err, fs.ErrNotExist)
}

// hasPort reports whether a list of links has one that is a pod's or the pool's.
func hasPort(links string) bool { return strings.Contains(links, "alias unnest:") }
