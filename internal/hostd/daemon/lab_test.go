package daemon

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/configfile"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/metrics"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm/qemu"
	"unnest.io/unnest/internal/vmm/qmp"
)

// TestMain runs a daemon if the test binary is called as one. The daemon is a process of
// its own, so that all its threads are in a network namespace and it can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "hostd" {
		os.Exit(daemonMain(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

func daemonMain(stateDir, unplugTimeout string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	d, err := time.ParseDuration(unplugTimeout)
	p := testQuotas()
	log, path := slog.New(slog.NewTextHandler(os.Stderr, nil)), filepath.Join(stateDir, "hostd.yaml")
	changes := make(chan Change)
	if _, missing := os.Stat(path); err == nil && missing == nil { // of the test
		p, err = configfile.Read(path)
		go configfile.Watch(ctx, path, nil, log, func() {
			p, err := configfile.Read(path)
			changes <- Change{Quotas: withVolumes(p, stateDir), Err: err}
		})
	}
	if err == nil {
		c := Config{
			StateDir: stateDir, Quotas: withVolumes(p, stateDir), UnplugTimeout: d, Logger: log, Changes: changes,
			Build: metrics.Build{Version: "test"},
			Ready: func(a net.Addr) { _, _ = fmt.Fprintln(os.Stdout, a) }, Mounts: share.Namespace(os.Getenv("UNNEST_MOUNT_NAMESPACE")),
		}
		if os.Getenv(withoutAnnouncements) != "" {
			announceInterval = time.Hour
		}
		serve := Serve
		if os.Getenv(withFakeVMMs) != "" {
			serve = serveFakes
		}
		err = serve(ctx, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// earlier is the test binary of an earlier version, or "". It runs the first daemon of each
// lab, so that later ones take over what it has left.
var earlier = os.Getenv("UNNEST_TEST_EARLIER")

// testQuotas has two tenants with a bridge each.
func testQuotas() quota.Config {
	tenant := func(name, bridge, subnet string) quota.Tenant {
		s := netip.MustParsePrefix(subnet)
		return quota.Tenant{
			Name: name, Bridge: bridge, MTU: 1400, Ranges: []ipam.Range{{Subnet: s}}, ClaimRanges: []netip.Prefix{s}, ClaimMACs: []string{"02:42"}, Cooldown: time.Minute,
			Limits: quota.Limits{NICs: 16, Connections: 100, Segments: 3, Broadcasts: 1000, Volumes: 3, VolumeDirectories: 4, SharedMemory: 1},
		}
	}
	other := tenant("other", "br1", "10.8.0.0/24")
	other.Segments.Modes = []string{quota.SegmentUnicast}
	return quota.Config{
		Listen:  netip.MustParseAddrPort("127.0.0.1:0"),
		Tenants: []quota.Tenant{tenant("default", "br0", "10.9.0.0/24"), other},
		Trunk:   true,
	}
}

var fingerprint = strings.Repeat("0a", 32)

func goodRecord() record.Guest {
	return record.Guest{
		Name: "node1", Tenant: "default", Index: 1, PID: 42, QMP: "/run/x/hostd.qmp", Ports: []string{"rp1", "rp2"}, CertificateSHA256: fingerprint,
	}
}

// lab is a network namespace with the bridges br0 and br1, for a daemon and real QEMUs.
// The machines are paused: no firmware and no system answers an unplug request. A reset
// makes a paused machine give up the devices that it was asked for.
type lab struct {
	t      *testing.T
	host   ns.NetNS
	dir    string
	daemon *exec.Cmd
	said   atomic.Pointer[string] // the log of the latest daemon
	addr   string
}

// machine is one QEMU.
type machine struct {
	lab    *lab
	record record.Guest
	config *tls.Config // the guest's
	qemu   *exec.Cmd
	more   []string    // of its options
	owner  *qmp.Client // another connection than the daemon's

	mu      sync.Mutex
	calls   hostdpb.HostDaemonClient
	dialled string // with what
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces and QEMU: set UNNEST_PRIVILEGED=1")
	}
	dir, err := os.MkdirTemp("", "hostd") // short: paths of sockets have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	host, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	l := &lab{t: t, host: host, dir: dir}
	l.do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		bridge := func(name string) error {
			a := netlink.NewLinkAttrs()
			a.Name = name
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
		}
		return errors.Join(netlink.LinkSetUp(lo), bridge("br0"), bridge("br1"))
	})
	return l
}

func (l *lab) check(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// do calls f in the lab's network namespace.
func (l *lab) do(f func() error) {
	l.t.Helper()
	l.check(l.host.Do(func(ns.NetNS) error { return f() }))
}

// serve starts the daemon.
func (l *lab) serve(unplugTimeout time.Duration) {
	l.t.Helper()
	l.serveWith("", unplugTimeout)
}

// serveWithout starts the daemon without capabilities, such as "-bpf,-perfmon".
func (l *lab) serveWithout(capabilities string) {
	l.t.Helper()
	l.serveWith(capabilities, patience)
}

func (l *lab) serveWith(without string, unplugTimeout time.Duration) {
	l.t.Helper()
	exe, err := os.Executable()
	l.check(err)
	if earlier != "" && l.daemon == nil {
		exe = earlier
	}
	args := []string{exe, "hostd", l.dir, unplugTimeout.String()}
	switch {
	case unit != "":
		l.startInUnit(without, unplugTimeout)
		return
	case without != "":
		args = append([]string{"setpriv", "--bounding-set", without}, args...)
	}
	l.start(exec.Command(args[0], args[1:]...))
}

func (l *lab) start(cmd *exec.Cmd) {
	l.t.Helper()
	l.said.Store(new(string))
	cmd.Stderr = daemonLog{l}
	out, err := cmd.StdoutPipe()
	l.check(err)
	l.do(cmd.Start)
	l.daemon = cmd
	l.t.Cleanup(func() { l.end(cmd, syscall.SIGKILL) })
	line, err := bufio.NewReader(out).ReadString('\n')
	l.check(err)
	l.addr = strings.TrimSpace(line)
}

// daemonLog is the log of the daemon's process. It fails the test when the race detector
// reports a race there.
type daemonLog struct{ *lab }

func (l daemonLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("DATA RACE")) {
		l.t.Error("the daemon has a data race, see its output")
	}
	all := *l.said.Load() + string(p) // there is one writer
	l.said.Store(&all)
	return l.t.Output().Write(p)
}

// log is the log of the latest daemon.
func (l *lab) log() string {
	if unit != "" {
		content, _ := os.ReadFile(unitDir + "/log")
		return string(content)
	}
	return *l.said.Load()
}

// wantSaid waits until the daemon's log has the texts.
func (l *lab) wantSaid(texts ...string) {
	l.t.Helper()
	for _, text := range texts {
		l.eventually("the daemon says "+text, func() bool { return strings.Contains(l.log(), text) })
	}
}

// end ends a process, unless it has ended.
func (l *lab) end(cmd *exec.Cmd, s os.Signal) {
	if cmd == l.daemon && unit != "" {
		l.endInUnit(s)
		return
	}
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(s)
		_ = cmd.Wait()
	}
}

// boot starts a paused machine and writes its record.
func (l *lab) boot(index, slots int, more ...string) *machine {
	l.t.Helper()
	name := fmt.Sprintf("node%d", index)
	config, credentials := issue(l.t, l.dir, name)
	dir := filepath.Dir(record.Path(l.dir, name))
	m := &machine{lab: l, config: config, more: more, record: record.Guest{
		Name: name, Tenant: "default", Index: index, QMP: filepath.Join(dir, "hostd.qmp"),
		Ports: qemu.Ports(slots), CertificateSHA256: credentials.Fingerprint,
	}}
	l.check(os.MkdirAll(dir, 0o700))
	m.boot()
	m.write()
	return m
}

func (m *machine) write() {
	m.lab.t.Helper()
	m.lab.check(record.Write(m.lab.dir, m.record))
}

func (m *machine) boot() {
	l := m.lab
	l.t.Helper()
	owner := filepath.Join(filepath.Dir(m.record.QMP), "qmp")
	args := []string{
		"-S", "-M", "q35", "-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none",
		"-qmp", "unix:" + owner + ",server=on,wait=off", "-qmp", "unix:" + m.record.QMP + ",server=on,wait=off",
	}
	for i, port := range m.record.Ports {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d", port, i+1, i+1))
	}
	m.qemu = exec.Command("qemu-system-x86_64", append(args, m.more...)...)
	m.qemu.Stderr = l.t.Output()
	l.do(m.qemu.Start)
	qemu := m.qemu
	l.t.Cleanup(func() { l.end(qemu, syscall.SIGKILL) })
	l.eventually("QEMU answers", func() bool {
		ctx, cancel := context.WithTimeout(l.t.Context(), 5*time.Second)
		defer cancel()
		c, err := qmp.Dial(ctx, owner)
		m.owner = c
		return err == nil
	})
	l.t.Cleanup(func() { m.owner.Close() })
}

// reset makes the guest give up what it was asked for.
func (m *machine) reset() {
	m.lab.t.Helper()
	m.lab.check(m.owner.Execute(m.lab.t.Context(), "system_reset", nil, nil))
}

// client is the guest's, in the lab's namespace.
func (m *machine) client() hostdpb.HostDaemonClient {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key := fmt.Sprintf("%s %p", m.lab.addr, m.config); m.dialled != key {
		m.calls, m.dialled = m.dial(), key
	}
	return m.calls
}

func (m *machine) dial() hostdpb.HostDaemonClient {
	return dial(m.lab.t, m.lab.addr, m.config, m.lab.inside())
}

// inside dials in the lab's namespace.
func (l *lab) inside() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (conn net.Conn, err error) {
		err = l.host.Do(func(ns.NetNS) error {
			conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
			return err
		})
		return conn, err
	})
}

func (m *machine) attach(container string) (*hostdpb.NIC, error) {
	r, err := m.client().AttachNIC(m.lab.t.Context(), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0"})
	return r.GetNic(), err
}

func (m *machine) mustAttach(container string) *hostdpb.NIC {
	m.lab.t.Helper()
	nic, err := m.attach(container)
	m.lab.check(err)
	return nic
}

func (m *machine) detach(container string) error {
	_, err := m.client().DetachNIC(m.lab.t.Context(), &hostdpb.DetachNICRequest{ContainerId: container, Interface: "eth0"})
	return err
}

// detachWilling detaches while the guest gives up what it is asked for: it resets until
// the unplug has ended. The resets end all its other attachments as well.
func (m *machine) detachWilling(container string) {
	m.lab.t.Helper()
	m.detachAllWilling(container)
}

// detachAllWilling does so for several, after the guest was asked for all of them.
func (m *machine) detachAllWilling(containers ...string) {
	m.lab.t.Helper()
	ended := make(chan error, len(containers))
	for _, c := range containers {
		go func() { ended <- m.detach(c) }()
	}
	asked := func() bool {
		return !slices.ContainsFunc(m.nics(), func(nic string) bool {
			return slices.ContainsFunc(containers, func(c string) bool { return strings.Contains(nic, " "+c+" attached ") })
		})
	}
	m.lab.eventually("the guest is asked", asked)
	for left := len(containers); left > 0; {
		select {
		case err := <-ended:
			m.lab.check(err)
			left--
		case <-time.After(50 * time.Millisecond):
			m.reset()
		}
	}
}

// nics are the guest's NICs as "slot container state mac".
func (m *machine) nics() []string {
	m.lab.t.Helper()
	r, err := m.client().ListNICs(m.lab.t.Context(), &hostdpb.ListNICsRequest{})
	m.lab.check(err)
	var all []string
	for _, n := range r.GetNics() {
		state := strings.ToLower(strings.TrimPrefix(n.GetState().String(), "NIC_STATE_"))
		all = append(all, fmt.Sprintf("%d %s %s %s", n.GetSlot(), n.GetContainerId(), state, n.GetMac()))
	}
	return all
}

func (m *machine) wantNICs(want ...string) {
	m.lab.t.Helper()
	if got := m.nics(); !slices.Equal(got, want) {
		m.lab.t.Errorf("%s has NICs %q, want %q", m.record.Name, got, want)
	}
}

// free is how many of the guest's slots are free.
func (m *machine) free() int {
	m.lab.t.Helper()
	s, err := m.client().Status(m.lab.t.Context(), &hostdpb.StatusRequest{})
	m.lab.check(err)
	if s.GetGuest() != m.record.Name || int(s.GetSlotsTotal()) != len(m.record.Ports) || s.GetVersion() == "" {
		m.lab.t.Errorf("status is %v", s)
	}
	return int(s.GetSlotsFree())
}

// devices are what is plugged in the guest's ports, as "ID on bus".
func (m *machine) devices() []string {
	m.lab.t.Helper()
	found, err := m.owner.Peripherals(m.lab.t.Context())
	m.lab.check(err)
	var all []string
	for _, d := range found {
		if strings.HasPrefix(d.Bus, "rp") {
			all = append(all, d.ID+" on "+d.Bus)
		}
	}
	return all
}

// netdevs is QEMU's own list of netdevs and NICs.
func (m *machine) netdevs() string {
	m.lab.t.Helper()
	var text string
	m.lab.check(m.owner.Execute(m.lab.t.Context(), "human-monitor-command", map[string]any{"command-line": "info network"}, &text))
	return text
}

// since is the time in an alias.
var since = regexp.MustCompile(`,t=[0-9a-z]+`)

// taps are the lab's TAPs as "name alias", without times.
func (l *lab) taps() []string {
	l.t.Helper()
	var all []string
	l.do(func() error {
		links, err := netlinksafe.LinkList()
		for _, link := range links {
			if _, ok := link.(*netlink.Tuntap); ok {
				all = append(all, link.Attrs().Name+" "+since.ReplaceAllString(link.Attrs().Alias, ""))
			}
		}
		return err
	})
	slices.Sort(all)
	return all
}

func (l *lab) wantTAPs(want ...string) {
	l.t.Helper()
	if got := l.taps(); !slices.Equal(got, want) {
		l.t.Errorf("TAPs are %q, want %q", got, want)
	}
}

// wantNothing fails the test if anything of a NIC is left.
func (m *machine) wantNothing() {
	m.lab.t.Helper()
	m.lab.wantTAPs()
	if d, n := m.devices(), m.netdevs(); len(d) > 0 || n != "" {
		m.lab.t.Errorf("QEMU still has devices %v and netdevs %q", d, n)
	}
}

func (l *lab) eventually(what string, f func() bool) {
	l.t.Helper()
	for begin := time.Now(); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			l.t.Fatalf("waited a minute, but not: %s", what)
		}
	}
}

// property reads a property of a device.
func (m *machine) property(device, name string) string {
	m.lab.t.Helper()
	var v json.RawMessage
	m.lab.check(m.owner.Execute(m.lab.t.Context(), "qom-get",
		map[string]any{"path": "/machine/peripheral/" + device, "property": name}, &v))
	return strings.Trim(string(v), `"`)
}
