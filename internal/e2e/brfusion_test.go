package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

var gateway = netip.MustParseAddr(lab.TenantGateway)

// v6Gateway is the IPv6 gateway of the tenant in tests with two families.
var v6Gateway = netip.MustParseAddr("fd00:c9::1")

// twoFamilies gives the tenant addresses of both families, and a way out.
func twoFamilies(f *fleet.Fleet) {
	tenant := &f.Policy.Tenants[0]
	tenant.Ranges = append(tenant.Ranges, ipam.Range{Subnet: netip.MustParsePrefix("fd00:c9::/64"), Gateway: v6Gateway})
	tenant.Gateways = []netip.Prefix{netip.MustParsePrefix("10.201.0.1/16"), netip.PrefixFrom(v6Gateway, 64)}
	tenant.NAT = true
}

// These tests share a guest, because starting it takes longer than some of them. Each leaves
// the guest without pods. The last one ends it.
func TestOneGuest(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) {
		twoFamilies(f)
		f.Policy.HTTP = netip.MustParseAddrPort("127.0.0.1:9477")
	})
	m := n.boot(fleet.Options{Name: "node1", Slots: 6, Pool: sharedPool})
	defer func() { n.t = t }()
	for _, part := range []struct {
		name string
		run  func(*testing.T, *node)
	}{
		{"Pool", pool}, {"DelWithoutDaemon", delWithoutDaemon}, {"GC", gc}, {"LostDEL", lostDEL}, {"Modes", modes},
		{"HostdForItsOperator", hostdForItsOperator}, {"VLANInGuest", vlanInGuest}, {"HostPort", hostPort}, {"Sweep", sweep},
	} {
		runPart(t, part.name, func(t *testing.T) { part.run(t, m) }, m)
	}
}

// runPart runs a part of a test in guests that all parts use. Before it, no pod may be left in
// them and their pools must be full.
func runPart(t *testing.T, name string, part func(t *testing.T), in ...*node) {
	t.Run(name, func(t *testing.T) {
		for _, m := range in {
			m.nodes.t = t
			if _, err := m.brfusion("STATUS", "none", nil); err != nil { // the first request fills the pool
				t.Fatal(err)
			}
			m.nodes.eventually("the last part has left no pod, and the pool is full", func() bool {
				s := m.nodes.guestStatus(m.Name)
				return s.Attachments == 0 && s.SlotsQuarantined == 0 && s.Pool == sharedPool
			})
		}
		part(t)
	})
}

// sharedPool is the number of NICs in the pool of guests that several tests share.
const sharedPool = 2

// removePods deletes pods with their NICs.
func (m *node) removePods(keys map[string]any, names ...string) {
	m.nodes.t.Helper()
	for _, name := range names {
		if _, err := m.brfusion("DEL", name, keys); err != nil {
			m.nodes.t.Errorf("DEL %s: %v", name, err)
		}
		m.run("ip netns del " + name)
	}
}

// The daemon fills its pool of NICs, refills it, and removes it when it ends. After a kill,
// the next daemon finds the pool and the attachments.
func pool(t *testing.T, m *node) {
	n := m.nodes
	if _, err := m.brfusion("STATUS", "none", nil); err != nil {
		t.Fatal(err)
	}
	full := func() bool { return n.guestStatus("node1").Pool == 2 }
	n.eventually("the pool is full", full)
	for _, pod := range []string{"p1", "p2", "p3"} {
		m.pod(pod, nil)
		m.wantReach(pod, gateway, true)
	}
	n.eventually("the pool is full again", full)
	n.killDaemon()
	n.startDaemon()
	if s := n.guestStatus("node1"); s.Pool != 2 || s.Attachments != 3 {
		t.Errorf("after a kill: %d NICs in the pool and %d attachments, want 2 and 3", s.Pool, s.Attachments)
	}
	m.wantReach("p1", gateway, true)
	// Pods may use all slots, also those of the pool.
	for _, pod := range []string{"p4", "p5", "p6"} {
		m.pod(pod, nil)
		m.wantReach(pod, gateway, true)
	}
	m.run("ip netns add p7")
	_, err := m.brfusion("ADD", "p7", nil)
	wantCode(t, "ADD without a free slot", err, 11, "no free NIC slot of 6")
	_, err = m.brfusion("STATUS", "none", nil)
	wantCode(t, "STATUS without a free slot", err, 50, "no free NIC slot of 6")
	m.removePods(nil, "p1", "p2", "p3", "p4", "p5", "p6", "p7")
	n.eventually("the pool is full again", full)
	pid := n.daemonPID()
	n.check(unix.Kill(pid, unix.SIGTERM))
	n.eventually("the daemon has ended", func() bool { return ended(pid) })
	if left := m.run("ls /sys/class/net"); strings.Fields(left)[0] != "eth0" || len(strings.Fields(left)) != 3 {
		t.Errorf("links of the guest after the end of the daemon: %q, want only its own NICs", left)
	}
	n.startDaemon()
}

// DEL succeeds without the daemon, and is finished when the daemon runs again.
func delWithoutDaemon(t *testing.T, m *node) {
	n := m.nodes
	m.pod("p1", nil)
	n.killDaemon()
	begin := time.Now()
	if _, err := m.brfusion("DEL", "p1", nil); err != nil {
		t.Errorf("DEL without the daemon: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Minute {
		t.Errorf("DEL without the daemon took %v, want at most 2 min", took)
	}
	m.run("ip netns del p1; ip netns add p2")
	_, err := m.brfusion("ADD", "p2", nil)
	wantCode(t, "ADD without the daemon", err, 11, "host daemon")
	_, err = m.brfusion("STATUS", "none", nil)
	wantCode(t, "STATUS without the daemon", err, 50, "host daemon")
	n.startDaemon()
	if got := n.guestStatus("node1").Attachments; got != 1 {
		t.Errorf("got %d attachments before the DEL is finished, want 1", got)
	}
	if _, err := m.brfusion("ADD", "p2", nil); err != nil {
		t.Error(err)
	}
	n.eventually("the DEL is finished", func() bool { return n.guestStatus("node1").Attachments == 1 })
	m.wantReach("p2", gateway, true)
	m.removePods(nil, "p2")
}

// GC removes attachments that the runtime does not know any more, of its network only.
func gc(_ *testing.T, m *node) {
	n := m.nodes
	m.pod("kept", nil)
	m.pod("leaked", nil)
	m.pod("other", map[string]any{"name": "another"})
	m.pod("vlan", map[string]any{"mode": "trunk"})
	m.run("ip netns del leaked; ip netns del vlan")
	valid := map[string]any{"cni.dev/valid-attachments": []map[string]string{{"containerID": "kept", "ifname": "eth0"}}}
	_, err := m.brfusion("GC", "none", valid)
	n.check(err)
	n.eventually("two attachments are left", func() bool { return n.guestStatus("node1").Attachments == 2 })
	m.wantReach("kept", gateway, true)
	m.wantReach("other", gateway, true)
	m.removePods(nil, "kept", "other")
}

// After a reboot of the guest its pods are gone, and their NICs can be used again.
func TestGuestReboots(t *testing.T) {
	n := newNodes(t, nil)
	m := n.boot(fleet.Options{Name: "node1", Slots: 4, Pool: 1})
	m.pod("p1", nil)
	m.pod("p2", map[string]any{"mode": "trunk"})
	m.run("/usr/lib/cni/brfusion renew")
	renewed := m.run("cat /etc/unnest/client.crt")
	before, err := m.bootID()
	n.check(err)
	n.check(m.reset())
	n.eventually("the attachments are gone", func() bool {
		s := n.guestStatus("node1")
		return s.Attachments == 0 && !s.Awake
	})
	for _, tenant := range n.status().Tenants {
		if tenant.AddressesInUse != 0 {
			t.Errorf("%d addresses in use after the reboot, want 0", tenant.AddressesInUse)
		}
	}
	m, err = m.rebooted(before)
	n.check(err)
	for round := range 2 {
		m = m.resetWhileWriting(round + 1)
	}
	if m.run("cat /etc/unnest/client.crt") != renewed {
		t.Error("after the reboot the guest has its first certificate again")
	}
	m = m.resetWithoutDaemon(t)
	for _, mode := range []string{"hotplug", "trunk"} {
		m.pod("again-"+mode, map[string]any{"mode": mode})
		m.wantReach("again-"+mode, gateway, true)
	}
}

// In both modes, pods get IPv4 and IPv6, the MTU, and the bandwidth limit.
func modes(t *testing.T, m *node) {
	n := m.nodes
	for _, mode := range []string{"hotplug", "trunk"} {
		keys := map[string]any{"mode": mode, "mtu": 1400, "bandwidth": map[string]any{"ingressRate": 8_000_000, "ingressBurst": 800_000}}
		a, b := m.pod(mode+"1", keys), m.pod(mode+"2", keys)
		if len(a) != 2 || !a[0].Is4() || !a[1].Is6() {
			t.Fatalf("%s: got addresses %v, want one per family", mode, a)
		}
		for i, peer := range []netip.Addr{b[0], b[1]} {
			m.wantReach(mode+"1", peer, true)
			m.wantReach(mode+"1", []netip.Addr{gateway, v6Gateway}[i], true)
		}
		// The clients' namespace is outside, on the other side of the tenant's NAT.
		m.wantReach(mode+"1", netip.MustParseAddr(lab.ClientAddress), true)
		if mtu := strings.TrimSpace(m.run("ip netns exec " + mode + "1 cat /sys/class/net/eth0/mtu")); mtu != "1400" {
			t.Errorf("%s: got MTU %s, want 1400", mode, mtu)
		}
		rate := m.rate(mode+"1", mode+"2", b[0])
		if rate > 12e6 || rate < 2e6 {
			t.Errorf("%s: got %.1f Mbit/s, want about 8", mode, rate/1e6)
		}
	}
	listed := n.guestStatus("node1")
	if listed.Attachments != 4 {
		t.Errorf("got %d attachments, want 4: %+v", listed.Attachments, listed)
	}
	for _, mode := range []string{"hotplug", "trunk"} {
		m.removePods(map[string]any{"mode": mode}, mode+"1", mode+"2")
	}
}

// rate returns the TCP throughput from client to server, in bit/s.
func (m *node) rate(client, server string, address netip.Addr) float64 {
	m.nodes.t.Helper()
	out := m.run(fmt.Sprintf(`ip netns exec %s iperf3 -s -1 >/dev/null 2>&1 </dev/null &
		for _ in $(seq 20); do sleep 0.5; ip netns exec %s iperf3 -c %s -t 3 --json && exit; done`, server, client, address))
	var measured struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	// Attempts before the server listened print their own documents.
	if err := json.Unmarshal([]byte(out[max(0, strings.LastIndex(out, "\n{")):]), &measured); err != nil || measured.End.Received.Rate == 0 {
		m.nodes.t.Fatalf("read iperf3 output: %v: %s", err, out)
	}
	return measured.End.Received.Rate
}

// greet greets who connects to a port, until the test ends.
func greet(t *testing.T, port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil // it does so already
	}
	if err != nil {
		return err
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello\n"))
			c.Close()
		}
	}()
	return nil
}

// Each of two tenants has a bridge, and cannot reach the other one.
func TestTenants(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) {
		red := f.Policy.Tenants[0]
		red.Name, red.Bridge, red.NAT, red.Volumes = "red", "br-red", true, ""
		red.Gateways = []netip.Prefix{netip.MustParsePrefix("10.203.0.1/16")}
		red.Ranges = []ipam.Range{{Subnet: netip.MustParsePrefix("10.203.0.0/16"), Gateway: netip.MustParseAddr("10.203.0.1")}}
		red.ClaimRanges, red.Limits.NICs = nil, busyNICs
		red.HostPorts = []quota.HostPort{"tcp/8124"}
		f.Policy.Tenants[0].Gateways = []netip.Prefix{netip.MustParsePrefix("10.201.0.1/16")}
		f.Policy.Tenants = append(f.Policy.Tenants, red)
		for i := range f.Policy.Tenants {
			f.Policy.Tenants[i].NetworkPolicy = quota.PolicyOptional
		}
	})
	defer func() { n.t = t }()
	blue := n.boot(fleet.Options{Name: "blue", Slots: 6, Pool: sharedPool})
	red := n.boot(fleet.Options{Name: "red", Slots: 2, Tenant: "red"})
	b, r := blue.pod("b1", nil)[0], red.pod("r1", nil)[0]
	if !netip.MustParsePrefix("10.203.0.0/16").Contains(r) {
		t.Errorf("the pod of tenant red has address %s, want one of 10.203.0.0/16", r)
	}
	redGateway := netip.MustParseAddr("10.203.0.1")
	blue.wantReach("b1", gateway, true)
	red.wantReach("r1", redGateway, true)
	red.wantReach("r1", netip.MustParseAddr(lab.ClientAddress), true)
	blue.wantReach("b1", r, false)
	red.wantReach("r1", b, false)
	red.wantReach("r1", gateway, false)
	// The host is closed, but for the ports of the configuration. A metadata service of its
	// cloud is closed as well.
	mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "ip", "address", "add", "169.254.169.254/32", "dev", "lo")
	for address, want := range map[string]bool{"10.203.0.1 8123": false, "169.254.169.254 8124": false, "10.203.0.1 8124": true} {
		n.check(lab.Do(n.fleet.Lab.HostNS(), func() error { return greet(t, strings.Fields(address)[1]) }))
		out, _ := red.try("ip netns exec r1 busybox timeout 2 busybox nc "+address+" </dev/null", "")
		if got := strings.Contains(out, "hello"); got != want {
			t.Errorf("a pod reaches the host at %s: got %t, want %t: %s", address, got, want, out)
		}
	}
	red.run("ip netns add x")
	_, err := red.brfusion("ADD", "x", map[string]any{"bridge": "br0"})
	wantCode(t, "the other tenant's bridge", err, 7, "br0")
	if left := red.run("ip -n x -brief link"); strings.Contains(left, "eth0") {
		t.Errorf("the failed ADD has left %s", left)
	}
	n.check(errors.Join(red.Kill(), n.fleet.Lab.RemoveGuest("red")))
	t.Run("Busy", func(t *testing.T) {
		n.t = t
		busyNeighbour(t, blue, "red")
	})
}

// The status command, the health check and the metrics of the daemon.
func hostdForItsOperator(t *testing.T, m *node) {
	n := m.nodes
	n.killDaemon() // the next one counts from zero
	n.startDaemon()
	m.pod("p1", nil)
	unnest := filepath.Join(n.binaries, "unnest")
	out := mustRun(t, unnest, "hostd", "status", "--state", n.fleet.Lab.Dir)
	for _, want := range []string{"protocol 3", "node1", "default", "attached", "p1", "10.201."} {
		if !strings.Contains(out, want) {
			t.Errorf("status does not contain %q:\n%s", want, out)
		}
	}
	for path, wants := range map[string][]string{
		"/healthz": {"ok"},
		"/metrics": {
			`unnest_hostd_attachments{guest="node1",tenant="default"} 1`, `unnest_hostd_attach_seconds_bucket{result="OK"`,
			`unnest_hostd_pool_target{guest="node1"} 2`, `unnest_hostd_requests_total{code="OK",verb="AttachNIC"} 1`,
		},
	} {
		got := mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "curl", "-sf", "http://127.0.0.1:9477"+path)
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%s does not contain %q:\n%.3000s", path, want, got)
			}
		}
	}
	m.removePods(nil, "p1")
}

// A new daemon removes the ports of guests that do not exist any more.
func sweep(t *testing.T, m *node) {
	n := m.nodes
	m.pod("p1", map[string]any{"mode": "trunk"})
	n.killDaemon()
	n.check(m.Kill())
	n.check(n.fleet.Lab.RemoveGuest("node1"))
	n.startDaemon()
	n.eventually("nothing is left", func() bool {
		out := mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "ip", "-o", "link")
		return !strings.Contains(out, "unnest:")
	})
}

// A guest that Unnest has not started: the configuration names its QMP socket, and enrolling
// gives it a certificate.
func TestConfiguredGuest(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) {
		f.Policy.Guests = []quota.Guest{{
			Name: "theirs", Tenant: fleet.Tenant, Index: 9, QMP: filepath.Join(f.Lab.GuestDir("mine"), "hostd.qmp"), Pool: 1,
		}}
	})
	// A guest of Unnest acts as the other guest, without its record.
	m := n.boot(fleet.Options{Name: "mine", Slots: 8})
	n.check(os.Remove(record.Path(n.fleet.Lab.Dir, "mine")))
	out := t.TempDir()
	mustRun(t, filepath.Join(n.binaries, "unnest"), "hostd", "enroll", "theirs",
		"--config", filepath.Join(n.fleet.Lab.Dir, "hostd.yaml"), "--state", n.fleet.Lab.Dir, "--output", out)
	for _, name := range []string{"ca.crt", "client.crt", "client.key"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		n.check(err)
		n.check(m.ssh.Put(t.Context(), "/etc/unnest/"+name, 0o600, strings.NewReader(string(content))))
	}
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("STATUS: %v", err)
		}
	}()
	n.eventually("the daemon has the guest", func() bool {
		_, err = m.brfusion("STATUS", "none", nil)
		return err == nil
	})
	m.pod("p1", nil)
	m.wantReach("p1", gateway, true)
	if s := n.guestStatus("theirs"); s.Slots != 8 || s.Attachments != 1 {
		t.Errorf("got status %+v, want 8 slots and 1 attachment", s)
	}
}

// These tests share two guests. Each leaves them without pods.
func TestTwoGuests(t *testing.T) {
	n := newNodes(t, nil)
	defer func() { n.t = t }()
	all := n.bootAll(2, fleet.Options{Slots: 6, Pool: sharedPool})
	runPart(t, "IPAM", func(t *testing.T) { assignedAddresses(t, all[0], all[1]) }, all...)
	runPart(t, "Services", func(t *testing.T) { services(t, all[0], all[1]) }, all...)
}

// The daemon learns the addresses that the reference IPAM plugins assign, and refuses the
// address of another pod of the tenant.
func assignedAddresses(t *testing.T, one, two *node) {
	n := one.nodes
	static := func(address string) map[string]any {
		return map[string]any{"cniVersion": "1.0.0", "ipam": map[string]any{
			"type": "static", "addresses": []map[string]string{{"address": address, "gateway": lab.TenantGateway}},
			"routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		}}
	}
	const chosen = "10.201.77.7/16"
	if got := one.pod("static", static(chosen)); len(got) != 1 || got[0] != netip.MustParsePrefix(chosen).Addr() {
		t.Errorf("static assigned %v, want %s", got, chosen)
	}
	one.wantReach("static", gateway, true)
	two.run("ip netns add thief")
	_, err := two.brfusion("ADD", "thief", static(chosen))
	wantCode(t, "another pod's address", err, 7, "10.201.77.7")
	if _, err := one.brfusion("DEL", "static", static(chosen)); err != nil {
		t.Error(err)
	}

	// A DHCP server on the bridge of the tenant, and the daemon of the dhcp plugin.
	dir := t.TempDir()
	config := filepath.Join(dir, "udhcpd.conf")
	n.check(os.WriteFile(config, []byte(fmt.Sprintf(
		"interface br0\nstart 10.201.90.1\nend 10.201.90.9\nlease_file %s/leases\npidfile %s/pid\nopt subnet 255.255.0.0\nopt router %s\nopt lease 600\n",
		dir, dir, lab.TenantGateway)), 0o600))
	n.check(os.WriteFile(filepath.Join(dir, "leases"), nil, 0o600))
	server := exec.Command("nsenter", "--net="+n.fleet.Lab.HostNS(), "udhcpd", "-f", config)
	n.check(server.Start())
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	one.run("rm -f /run/cni/dhcp.sock; setsid /usr/lib/cni/dhcp daemon >/tmp/dhcp.log 2>&1 </dev/null & until [ -S /run/cni/dhcp.sock ]; do sleep 0.1; done")
	dhcp := map[string]any{"cniVersion": "1.0.0", "ipam": map[string]any{"type": "dhcp"}}
	leased := one.pod("leased", dhcp)
	if len(leased) != 1 || !netip.MustParsePrefix("10.201.90.0/24").Contains(leased[0]) {
		t.Fatalf("dhcp assigned %v: %s", leased, one.run("cat /tmp/dhcp.log"))
	}
	one.wantReach("leased", gateway, true)
	if _, err := one.brfusion("DEL", "leased", dhcp); err != nil {
		t.Error(err)
	}
}

// VLANs need a kernel that supports them, as that of a guest does. The VLAN tests of package
// podnic run there.
func vlanInGuest(t *testing.T, m *node) {
	m.putFile(goBuild(t, "podnic.test", "test", "-c", "-tags", "vlan", "../cni/podnic"))
	out, err := m.try("UNNEST_PRIVILEGED=1 podnic.test -test.v -test.run VLAN", "")
	if err != nil || strings.Count(out, "--- PASS") != 8 || strings.Contains(out, "--- SKIP") {
		t.Errorf("%v, want 8 tests passed:\n%s", err, out)
	}
}
