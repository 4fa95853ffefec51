package daemon

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/netdev/tap"
)

const patience = time.Minute // longer than any test waits for an unplug

func TestAttachAndDetach(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	if free := m.free(); free != 2 {
		t.Errorf("%d slots are free, want 2", free)
	}
	nic := m.mustAttach("c1")
	mac, err := net.ParseMAC(nic.GetMac())
	if err != nil || mac[0]&3 != 2 || nic.GetMtu() != 1400 || nic.GetBridge() != "br0" || nic.GetSlot() != 1 ||
		nic.GetState() != hostdpb.NICState_NIC_STATE_ATTACHED || nic.GetContainerId() != "c1" || nic.GetInterface() != "eth0" {
		t.Errorf("NIC is %v", nic)
	}
	if got := m.property("nic1-1", "mac"); got != nic.GetMac() {
		t.Errorf("device has the MAC %s, want %s", got, nic.GetMac())
	}
	if got := m.property("nic1-1", "host_mtu"); got != "1400" {
		t.Errorf("device has the MTU %s, want 1400", got)
	}
	l.wantTAPs("u1n1-1 unnest:c1/eth0 n=,b=br0,m=1400")
	l.do(func() error {
		br0, err := netlink.LinkByName("br0")
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("u1n1-1")
		if err == nil && (link.Attrs().MasterIndex != br0.Attrs().Index || link.Attrs().MTU != 1400 || link.Attrs().Flags&net.FlagUp == 0) {
			t.Errorf("TAP is %+v", link.Attrs())
		}
		return err
	})

	again := m.mustAttach("c1")
	if again.GetMac() != nic.GetMac() || len(m.devices()) != 1 {
		t.Errorf("second attach of the same gave %v, and devices %v", again, m.devices())
	}
	other := m.mustAttach("c2")
	if other.GetMac() == nic.GetMac() || other.GetSlot() == nic.GetSlot() || m.free() != 0 {
		t.Errorf("two NICs are %v and %v", nic, other)
	}
	if _, err := m.attach("c3"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("attach without a free slot: got %v", err)
	}
	m.wantNICs("1 c1 attached "+nic.GetMac(), "2 c2 attached "+other.GetMac())

	m.detachWilling("c1") // by a reset, after which the other is warm
	m.wantNICs("2  warm " + other.GetMac())
	l.wantTAPs("u1n2-1 unnest:")
	l.check(m.detach("c1")) // there is none any more
	l.check(m.detach("never"))
	if next := m.mustAttach("c3"); next.GetMac() != other.GetMac() {
		t.Errorf("the warm NIC is %v, got %v", other, next)
	}
	if next := m.mustAttach("c4"); next.GetSlot() != 1 || next.GetMac() == nic.GetMac() {
		t.Errorf("the slot's next NIC is %v, want another MAC than %s", next, nic.GetMac())
	}
	m.detachAllWilling("c3", "c4")
	m.wantNothing()
}

func TestDaemonIsKilled(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			l := newLab(t)
			m, other := l.boot(1, 3), l.boot(2, 3)
			l.serve(patience)
			nics := []*hostdpb.NIC{m.mustAttach("c1"), m.mustAttach("c2")}
			far := other.mustAttach("c1")
			l.end(l.daemon, s)
			l.wantTAPs("u1n1-1 unnest:c1/eth0 n=,b=br0,m=1400", "u1n2-1 unnest:c2/eth0 n=,b=br0,m=1400", "u2n1-1 unnest:c1/eth0 n=,b=br0,m=1400")
			l.serve(patience)
			m.wantNICs("1 c1 attached "+nics[0].GetMac(), "2 c2 attached "+nics[1].GetMac())
			other.wantNICs("1 c1 attached " + far.GetMac())
			if again := m.mustAttach("c2"); again.GetMac() != nics[1].GetMac() {
				t.Errorf("attach of the same gave %v, want %v", again, nics[1])
			}
			m.detachAllWilling("c1", "c2")
			if d := m.devices(); len(d) > 0 {
				t.Errorf("devices %v are left", d)
			}
			l.eventually("the slots have rested", func() bool { return m.free() == 3 })
			other.detachWilling("c1")
			other.wantNothing()
		})
	}
}

// A daemon is killed in the middle of an unplug, after it has asked the guest.
func TestDaemonIsKilledWhileDetaching(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1)
	l.serve(patience)
	m.mustAttach("c1")
	ended := make(chan error, 1)
	go func() { ended <- m.detach("c1") }()
	l.eventually("the guest is asked", func() bool { return strings.Contains(m.nics()[0], "detaching") })
	l.end(l.daemon, syscall.SIGKILL)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("detach got %v", err)
	}
	l.serve(patience)
	m.detachWilling("c1")
	m.wantNothing()
}

func TestStopWhileDetaching(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1)
	l.serve(patience)
	m.mustAttach("c1")
	ended := make(chan error, 1)
	go func() { ended <- m.detach("c1") }()
	l.eventually("the guest is asked", func() bool { return strings.Contains(m.nics()[0], "detaching") })
	begin := time.Now()
	l.check(l.daemon.Process.Signal(syscall.SIGTERM))
	if err := <-ended; status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("detach got %v, want Unavailable and why", err)
	}
	if err := l.daemon.Wait(); err != nil || time.Since(begin) > patience {
		t.Errorf("daemon ended with %v after %v", err, time.Since(begin))
	}
}

func TestVMMIsKilled(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	m.mustAttach("c1")
	ended := make(chan error, 1)
	go func() { ended <- m.detach("c1") }()
	l.eventually("the guest is asked", func() bool { return strings.Contains(m.nics()[0], "detaching") })
	l.end(m.qemu, syscall.SIGKILL)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("detach got %v, want Unavailable", err)
	}
	if _, err := m.attach("c2"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "VMM does not answer") {
		t.Errorf("attach got %v, want Unavailable", err)
	}
	l.wantTAPs()
	l.eventually("the packet filter forgets the ports", func() bool { return !strings.Contains(l.nft("list", "ruleset"), `"u1n1-1"`) })
	m.boot()
	if m.free() != 2 {
		t.Errorf("%d slots are free, want 2", m.free())
	}
	m.mustAttach("c2")
	l.wantTAPs("u1n1-1 unnest:c2/eth0 n=,b=br0,m=1400")
}

// A stopped VMM does not answer. Requests end in time, and leave nothing once the VMM
// continues.
func TestVMMHangs(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	m.free() // the daemon is connected
	l.check(m.qemu.Process.Signal(syscall.SIGSTOP))
	begin := time.Now()
	if _, err := m.attach("c1"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("attach got %v, want DeadlineExceeded", err)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("attach took %v", took)
	}
	l.wantTAPs()
	l.check(m.qemu.Process.Signal(syscall.SIGCONT))
	m.mustAttach("c1")
	l.wantTAPs("u1n2-1 unnest:c1/eth0 n=,b=br0,m=1400")
	if d := m.devices(); len(d) != 1 {
		t.Errorf("devices are %v", d)
	}
	m.detachWilling("c1")
	m.wantNothing()
}

// If a guest's record changes, the daemon uses the new one.
func TestRecordChanges(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	nic := m.mustAttach("c1")
	earlier := m.config
	config, credentials := issue(t, l.dir, "node1")
	m.config, m.record.CertificateSHA256 = config, credentials.Fingerprint
	m.write()
	m.wantNICs("1 c1 attached " + nic.GetMac())
	m.config = earlier
	if _, err := m.attach("c1"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the earlier certificate: got %v", err)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 4)
	l.serve(patience)
	kept := m.mustAttach("kept")
	l.end(l.daemon, syscall.SIGKILL)

	openTAP := func(name, alias string) *os.File {
		var f *os.File
		l.do(func() (err error) {
			f, err = tap.Open(tap.Device{Name: name, Bridge: "br0", MTU: 1400, Alias: alias})
			return err
		})
		t.Cleanup(func() { f.Close() })
		return f
	}
	give := func(name string, f *os.File) {
		l.check(m.owner.SendFD(t.Context(), name, f))
		l.check(f.Close())
	}
	netdev := func(id, fd string) {
		l.check(m.owner.NetdevAdd(t.Context(), map[string]any{"type": "tap", "id": id, "fd": fd}))
	}
	// A daemon has died after it sent the TAP's descriptor,
	give("tap-net2-7", openTAP("u1n2-7", "unnest:c2/eth0"))
	// after netdev_add,
	give("x", openTAP("u1n3-7", "unnest:c3/eth0"))
	netdev("net3-7", "x")
	// and a device whose TAP has lost its owner.
	give("y", openTAP("u1n4-7", ""))
	netdev("net4-7", "y")
	l.check(m.owner.DeviceAdd(t.Context(), map[string]any{
		"driver": "virtio-net-pci", "id": "nic4-7", "netdev": "net4-7", "bus": "rp4", "addr": "0", "romfile": "",
	}))
	// The first TAP belongs to a guest without a record, the second is not ours.
	defer openTAP("u2n1-1", "unnest:c9/eth0").Close()
	defer openTAP("u2n2-1", "somebody's").Close()

	l.serve(patience)
	l.eventually("the guest is asked for the device", func() bool {
		return slices.ContainsFunc(m.nics(), func(s string) bool { return strings.Contains(s, "4  detaching") })
	})
	m.reset()
	l.eventually("all is reaped", func() bool { return m.free() == 3 })
	m.wantNICs("1  warm " + kept.GetMac())
	l.eventually("the TAPs are right", func() bool { // the test holds the TAP of the guest without a record, so that TAP stays, under another name
		taps := l.taps()
		return len(taps) == 3 && taps[0] == "u1n1-1 unnest:" && taps[1] == "u2n2-1 somebody's" && strings.HasPrefix(taps[2], "unnest-") && strings.HasSuffix(taps[2], " unnest:ended")
	})
	if n := m.netdevs(); strings.Count(n, "net") != 1+strings.Count(n, "virtio-net-pci") || !strings.Contains(n, "net1-1") {
		t.Errorf("netdevs are %q, want net1-1 alone", n)
	}
}

// Each step of an attach fails once. It leaves nothing, and the next attach succeeds.
func TestAttachThatFails(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*machine)
		left       int // devices
	}{
		{"bridge", "find bridge br0", func(m *machine) {
			m.lab.do(func() error {
				br0, err := netlink.LinkByName("br0")
				if err != nil {
					return err
				}
				return netlink.LinkDel(br0)
			})
		}, 0},
		{"name of the TAP is taken", "add TAP", func(m *machine) {
			m.lab.do(func() error {
				a := netlink.NewLinkAttrs()
				a.Name = "u1n1-1"
				return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
			})
		}, 0},
		{"netdev", "add netdev", func(m *machine) {
			m.lab.check(m.owner.NetdevAdd(m.lab.t.Context(), map[string]any{"type": "hubport", "hubid": 0, "id": "net1-1"}))
		}, 0},
		{"device", "add device", func(m *machine) {
			m.free() // the daemon has looked at the ports
			m.lab.check(m.owner.DeviceAdd(m.lab.t.Context(), map[string]any{"driver": "virtio-rng-pci", "id": "rng", "bus": "rp1", "addr": "0"}))
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			m := l.boot(1, 2)
			l.serve(patience)
			c.spoil(m)
			if _, err := m.attach("c1"); status.Code(err) != codes.Internal || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want Internal and %q", err, c.want)
			}
			if c.name == "bridge" { // the NIC was plugged, and has to be given up
				m.reset()
				l.eventually("the NIC is gone", func() bool { return len(m.devices()) == 0 && len(l.taps()) == 0 })
			}
			l.wantTAPs()
			if d := m.devices(); len(d) != c.left {
				t.Errorf("devices are %v", d)
			}
			if n := m.netdevs(); strings.Contains(n, "tap") {
				t.Errorf("netdevs are %q", n)
			}
			if c.name != "bridge" {
				if nic := m.mustAttach("c1"); nic.GetSlot() != 2 {
					t.Errorf("next NIC is %v", nic)
				}
			}
		})
	}
}

func TestManyAtOnce(t *testing.T) {
	l := newLab(t)
	machines := []*machine{l.boot(1, 8), l.boot(2, 8)}
	l.serve(patience)
	var wg sync.WaitGroup
	var mu sync.Mutex
	macs := map[string]int{}
	for _, m := range machines {
		for i := range 16 { // two for each container
			wg.Go(func() {
				nic, err := m.attach(fmt.Sprint("c", i/2))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				macs[nic.GetMac()]++
			})
		}
	}
	wg.Wait()
	if len(macs) != 16 {
		t.Errorf("16 NICs have the MACs %v", macs)
	}
	for _, m := range machines {
		if m.free() != 0 || len(m.devices()) != 8 {
			t.Errorf("%s: %d slots are free, devices %v", m.record.Name, m.free(), m.devices())
		}
		var all []string
		for i := range 8 {
			all = append(all, fmt.Sprint("c", i))
		}
		m.detachAllWilling(all...)
	}
	for _, m := range machines {
		m.wantNothing()
	}
}

// A guest whose requests are refused leaves all addresses to the tenant's other guests.
func TestHostileAttaches(t *testing.T) {
	l := newLab(t)
	hostile, other := l.boot(1, 1), l.boot(2, 1)
	l.serve(patience)
	hostile.mustAttach("c0")
	for i := range 254 { // the range's addresses
		request := &hostdpb.AttachNICRequest{ContainerId: fmt.Sprint("c", i+1), Interface: "eth0", Allocate: true}
		if i%2 == 0 {
			request.Allocate, request.Addresses = false, []string{fmt.Sprintf("10.9.0.%d/24", i+1)}
		}
		if _, err := hostile.client().AttachNIC(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("attach %d: got %v, want ResourceExhausted", i+1, err)
		}
	}
	request := &hostdpb.AttachNICRequest{ContainerId: "c1", Interface: "eth0", Allocate: true}
	if r, err := other.client().AttachNIC(t.Context(), request); err != nil || len(r.GetAddresses()) != 1 {
		t.Errorf("the other guest: got %v, %v, want an address", r.GetAddresses(), err)
	}
}

// A guest without slots gets no NIC.
func TestGuestWithoutSlots(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 0)
	l.serve(patience)
	if _, err := m.attach("c1"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	l.check(m.detach("c1"))
	m.wantNICs()
	if m.free() != 0 {
		t.Error("there is a free slot")
	}
}
