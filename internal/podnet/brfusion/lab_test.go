package brfusion_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/identity"
	"unnest/internal/podnet/brfusion"
	"unnest/internal/podnet/cni"
)

// TestMain is the plugin itself when the test binary is called by its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "brfusion" {
		brfusion.SetState(os.Getenv("TEST_STATE_DIR"))
		os.Exit(cni.Main(os.Args[0], os.Stderr))
	}
	os.Exit(m.Run())
}

// ipamDir is where Debian's containernetworking-plugins has its plugins.
const ipamDir = "/usr/lib/cni"

// lab is three network namespaces, the host's, a guest's and a pod's, with a
// stand-in for the host daemon that the guest reaches at server.
type lab struct {
	t                *testing.T
	host, guest, pod ns.NetNS
	daemon           *fakeDaemon
	server           string
	dir              string // plugin, credentials, leases
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	if _, err := os.Stat(filepath.Join(ipamDir, "host-local")); err != nil {
		t.Fatalf("install containernetworking-plugins: %v", err)
	}
	l := &lab{t: t, host: newNS(t), guest: newNS(t), pod: newNS(t), dir: t.TempDir()}
	exe, err := os.Executable()
	l.check(err)
	l.check(os.Symlink(exe, filepath.Join(l.dir, "brfusion")))
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
	l.daemon = &fakeDaemon{lab: l, config: config, protocol: 2, nics: map[string]*hostdpb.NIC{}}
	l.check(l.guest.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	l.server = l.daemon.start("127.0.0.1:0")
}

// podPath is good as long as the test has the namespace open.
func (l *lab) podPath() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.pod.Fd()) }

// config is a configuration of the plugin, changed by the given edits.
func (l *lab) config(edits ...func(map[string]any)) []byte {
	l.t.Helper()
	c := map[string]any{
		"cniVersion": "1.0.0", "name": "brf", "type": "brfusion", "server": l.server,
		"credentials": filepath.Join(l.dir, "unnest"), "wait": "10s", "log": true,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(l.dir, "leases"),
			"ranges": []any{[]any{map[string]any{"subnet": "10.201.0.0/16", "rangeStart": "10.201.0.7", "rangeEnd": "10.201.0.7", "gateway": "10.201.0.1"}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
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
	cmd := exec.CommandContext(ctx, filepath.Join(l.dir, "brfusion"))
	cmd.Stdin = bytes.NewReader(config)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + cniCommand, "CNI_CONTAINERID=c1", "CNI_NETNS=" + l.podPath(),
		"CNI_IFNAME=eth0", "CNI_PATH=" + l.dir + ":" + ipamDir,
		"HTTPS_PROXY=http://127.0.0.1:1", // must not matter
		"GOCOVERDIR=" + l.dir,            // else a test binary built for coverage complains
		"TEST_STATE_DIR=" + filepath.Join(l.dir, "run"),
	}, env...)
	return cmd
}

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

func (l *lab) pendingDir() string { return filepath.Join(l.dir, "run", "pending") }

// noted are the NICs that are noted to be given back.
func (l *lab) noted() []string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.pendingDir(), "*"))
	l.check(err)
	return found
}

// leases are the addresses that host-local has given away.
func (l *lab) leases() []string {
	found, err := filepath.Glob(filepath.Join(l.dir, "leases", "*", "10.*"))
	l.check(err)
	return found
}

// wantNothing fails the test when an ADD or DEL has left something behind.
func (l *lab) wantNothing() {
	l.t.Helper()
	if nics := l.daemon.all(); len(nics) > 0 {
		l.t.Errorf("the daemon still has %v", nics)
	}
	for name, n := range map[string]ns.NetNS{"guest": l.guest, "host": l.host} {
		if links := l.links(n); len(links) > 0 {
			l.t.Errorf("the %s still has links %v", name, links)
		}
	}
	if leases := l.leases(); len(leases) > 0 {
		l.t.Errorf("host-local still has %v", leases)
	}
	if noted := l.noted(); len(noted) > 0 {
		l.t.Errorf("still noted: %v", noted)
	}
}

// frames receives the ARP frames that arrive at the host's end of the NIC.
func (l *lab) frames() (arp func() []byte) {
	l.t.Helper()
	var fd int
	l.check(l.host.Do(func(ns.NetNS) (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0x0608) // ETH_P_ARP in network order
		return err
	}))
	l.t.Cleanup(func() { _ = unix.Close(fd) })
	l.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2}))
	return func() []byte {
		b := make([]byte, 128)
		n, _, err := unix.Recvfrom(fd, b, 0)
		l.check(err)
		return b[:n]
	}
}
