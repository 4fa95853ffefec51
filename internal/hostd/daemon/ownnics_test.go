package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/vmm"
)

// configure makes the machine a guest of the configuration, with keys of its own. QEMU has
// opened its TAP, own1 of node1, by name.
func (m *machine) configure(keys string) string {
	m.lab.t.Helper()
	certificate := record.Guest{Name: m.record.Name, CertificateSHA256: m.record.CertificateSHA256}
	m.lab.check(statefile.Write(record.Path(m.lab.dir, m.record.Name), certificate))
	return fmt.Sprintf("  - {name: %s, tenant: default, index: %d, qmp: %s, pool: 0, %s}\n", m.record.Name, m.record.Index, m.record.QMP, keys)
}

func (l *lab) bootWithOwnNIC(index int, more ...string) *machine {
	l.t.Helper()
	return l.boot(index, 2, append(more, "-netdev", fmt.Sprintf("tap,id=n0,ifname=own%d,script=no,downscript=no", index),
		"-device", fmt.Sprintf("virtio-net-pci,netdev=n0,mac=52:54:00:00:00:0%d", index))...)
}

func (l *lab) configuration(guests ...string) {
	l.t.Helper()
	l.configure(`listen: 127.0.0.1:7443
tenants:
  - {name: default, bridge: br0, bridges: [br2], mtu: 1400, ranges: [{subnet: 10.9.0.0/24}]}
  - {name: other, bridge: br1, mtu: 1400, ranges: [{subnet: 10.8.0.0/24}]}
guests:
` + strings.Join(guests, ""))
}

// configure writes the daemon's configuration file.
func (l *lab) configure(text string) {
	l.t.Helper()
	l.check(os.WriteFile(filepath.Join(l.dir, "hostd.yaml"), []byte(text), 0o600))
}

// join puts a port on a bridge.
func (l *lab) join(port, bridge string) {
	l.t.Helper()
	l.do(func() error {
		b, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		p, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(p, b)
	})
}

// mayUse reports whether the kernel's rules let a port send from an address.
func (l *lab) mayUse(port, set, value string) bool {
	l.t.Helper()
	var out []byte
	l.do(func() error {
		out, _ = exec.Command("nft", "list", "set", "bridge", "unnest-antispoof", set).Output() // fails before there is a set
		return nil
	})
	return strings.Contains(strings.ReplaceAll(string(out), `"`, ""), strings.TrimSuffix(port+" . "+value, " . "))
}

// unguarded lists the status' unguarded ports as "port bridge guest".
func (l *lab) unguarded() (all []string, ports []status.Port) {
	l.t.Helper()
	s, err := status.Ask(l.t.Context(), l.dir)
	l.check(err)
	for _, p := range s.Unguarded {
		all = append(all, strings.TrimSpace(p.Interface+" "+p.Bridge+" "+p.Guest))
	}
	return all, s.Unguarded
}

// A guest of the configuration may send only from its own MAC and addresses, whether the
// configuration names its TAP or the daemon asks QEMU. What is not guarded is in the
// status.
func TestOwnNICs(t *testing.T) {
	l := newLab(t)
	found, given, bare, router := l.bootWithOwnNIC(1), l.bootWithOwnNIC(2), l.bootWithOwnNIC(3), l.bootWithOwnNIC(4)
	l.configuration(
		found.configure("addresses: [10.9.0.201]"),
		given.configure("tap: own2, mac: 52:54:00:00:00:02, addresses: [10.9.0.202]"),
		bare.configure("ports: [rp1]"),
		router.configure("addresses: [10.9.0.204], unguarded: true"),
	)
	for _, name := range []string{"own1", "own3", "own4"} {
		l.join(name, "br0")
	}
	l.do(func() error {
		f, err := tap.Open(tap.Device{Name: "stray", Bridge: "br1", MTU: 1400, Persistent: true})
		if err != nil {
			return err
		}
		return f.Close()
	})
	l.serve(patience)
	l.eventually("the guests are taken over", func() bool {
		return l.mayUse("own1", "v4", "10.9.0.201") && l.mayUse("own2", "v4", "10.9.0.202")
	})
	if !l.mayUse("own1", "macs", "52:54:00:00:00:01") || !l.mayUse("own2", "macs", "52:54:00:00:00:02") {
		t.Error("the MACs of own1 and own2 are not in the filter")
	}
	want := []string{"own3 br0 node3", "own4 br0 node4", "stray br1"}
	l.eventually("the status has the ports that are not guarded", func() bool {
		got, _ := l.unguarded()
		return slices.Equal(got, want)
	})
	_, ports := l.unguarded()
	if !strings.Contains(ports[0].Cause, "add its addresses") || ports[0].Intended || !ports[1].Intended || !strings.Contains(ports[2].Cause, "tap and mac") {
		t.Errorf("causes: %+v", ports)
	}
	text := l.metrics()
	for _, line := range []string{`unnest_hostd_unguarded_ports{tenant="default"} 1`, `unnest_hostd_unguarded_ports{tenant="other"} 1`} {
		if !strings.Contains(text, line) {
			t.Errorf("no metric %s", line)
		}
	}

	l.end(found.qemu, syscall.SIGKILL)
	l.eventually("the rules of a guest that has ended are gone", func() bool { return !l.mayUse("own1", "ports", "") })
}

// A NIC that is put on the bridge after the daemon has found the guest is guarded, too. A NIC
// that is on no bridge of the tenant is not: it may be the operator's.
func TestOwnNICJoinsLater(t *testing.T) {
	l := newLab(t)
	m := l.bootWithOwnNIC(1)
	l.configuration(m.configure("addresses: [10.9.0.201]"))
	l.serve(patience)
	m.mustAttach("c1")
	if l.mayUse("own1", "ports", "") {
		t.Error("a NIC on no bridge is guarded")
	}
	l.join("own1", "br0")
	l.eventually("the NIC is guarded", func() bool { return l.mayUse("own1", "v4", "10.9.0.201") })
}

// The frames of a guest's own NIC are checked, also if its TAP appears again while the daemon runs, as
// it does each time the guest starts.
func TestOwnNICsAreChecked(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.bootWithOwnNIC(1)
	l.configuration(m.configure("tap: later, mac: 52:54:00:00:00:01, addresses: [10.9.0.201]"))
	l.serve(patience)
	l.eventually("the guest is taken over", func() bool { return l.mayUse("later", "v4", "10.9.0.201") })
	for range 2 {
		var f *os.File
		l.do(func() (err error) {
			f, err = tap.Open(tap.Device{Name: "later", Bridge: "br0", MTU: 1400})
			return err
		})
		l.eventually("its frames are checked", func() bool { return slices.Equal(l.programs("later"), []string{"unnest_checksum"}) })
		l.check(f.Close())
	}
}

// A guest of the configuration that is not enrolled yet is guarded, too, until it is no
// longer configured.
func TestOwnNICsOfUnenrolledGuests(t *testing.T) {
	l := newLab(t)
	d, log := testDaemon(t, l.dir)
	fake := newFakeVMM(0)
	fake.own = []vmm.NIC{{TAP: "own1", MAC: "52:54:00:00:00:01"}}
	d.host.Dial = func(_ context.Context, r record.Guest) (vmm.VMM, error) {
		if r.Name == "node1" {
			return fake, nil
		}
		return nil, vmm.ErrNotRunning
	}
	address := func(a string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(a)} }
	p := d.quotas()
	p.Guests = []quota.Guest{
		{Name: "node1", Tenant: "default", Index: 1, QMP: "/q", Addresses: address("10.9.0.201")},
		{Name: "node2", Tenant: "default", Index: 2, QMP: "/q", Addresses: address("10.9.0.202"), TAP: "own2", MAC: "52:54:00:00:00:02"},
	}
	d.current.Store(&p)
	guard := func() {
		l.do(func() error { // one after another, in the lab's namespace
			for _, g := range p.Guests {
				d.guardOnce(t.Context(), record.Configured(g, record.Guest{}))
			}
			return nil
		})
	}
	l.do(func() error {
		f, err := tap.Open(tap.Device{Name: "own1", Bridge: "br0", MTU: 1400, Persistent: true})
		if err != nil {
			return err
		}
		return f.Close()
	})
	guard()
	guard() // says nothing more
	if !l.mayUse("own1", "v4", "10.9.0.201") || !l.mayUse("own2", "v4", "10.9.0.202") || len(log.with("guard the guest's own NIC")) != 1 {
		t.Errorf("own1 and own2 are not guarded; log: %q", log.lines)
	}
	none := d.quotas()
	none.Guests = nil
	d.current.Store(&none)
	l.do(func() error { d.guardUnenrolled(t.Context()); return nil })
	if l.mayUse("own1", "ports", "") || l.mayUse("own2", "ports", "") {
		t.Error("the guests are guarded after they have left the configuration")
	}
}

// A VMM that does not answer does not keep the guards of other guests waiting that are not enrolled.
func TestAttackUnenrolledVMMThatHangs(t *testing.T) {
	d, _ := testDaemon(t, t.TempDir())
	p := d.quotas()
	p.Guests = []quota.Guest{{Name: "node1", Tenant: "default", Index: 1, QMP: "/q"}, {Name: "node2", Tenant: "default", Index: 2, QMP: "/q"}}
	d.current.Store(&p)
	var dialled sync.WaitGroup
	dialled.Add(len(p.Guests))
	d.host.Dial = func(ctx context.Context, r record.Guest) (vmm.VMM, error) {
		dialled.Done()
		all := make(chan struct{})
		go func() { dialled.Wait(); close(all) }()
		select {
		case <-all:
		case <-ctx.Done():
			t.Errorf("%s: the other guest waits", r.Name)
		}
		return nil, vmm.ErrNotRunning
	}
	d.guardUnenrolled(t.Context())
}

// A guest whose VMM has lost its socket runs on: its own NICs stay guarded, whether the configuration names the
// TAP or the daemon has found it. What is found is forgotten with its TAP.
func TestAttackVMMWithoutSocket(t *testing.T) {
	l := newLab(t)
	d, _ := testDaemon(t, l.dir)
	device := func(name string) *os.File {
		var f *os.File
		l.do(func() (err error) {
			f, err = tap.Open(tap.Device{Name: name, Bridge: "br0", MTU: 1400})
			return err
		})
		return f
	}
	found, given := device("own1"), device("own2")
	r := record.Guest{Name: "node1", Tenant: "default", Index: 1, NICs: []record.BootNIC{{TAP: "own2", MAC: "52:54:00:00:00:02"}}}
	l.do(func() error {
		d.host.Own.Set("own1", ports.OwnNIC{Guest: "node1"})
		return errors.Join(
			d.host.Ports.GuardOwn("own1", ports.OwnGuard{MAC: "52:54:00:00:00:01"}), d.host.Ports.GuardOwn("own2", ports.OwnGuard{MAC: "52:54:00:00:00:02"}))
	})
	ended := func() { l.do(func() error { return d.removeEnded(r) }) }
	ended()
	if !l.mayUse("own1", "ports", "") || !l.mayUse("own2", "ports", "") {
		t.Error("NICs of a guest whose VMM cannot be reached are not guarded")
	}
	l.check(found.Close())
	l.check(given.Close())
	ended()
	if l.mayUse("own1", "ports", "") || !l.mayUse("own2", "ports", "") {
		t.Error("without TAPs, want the NIC of the configuration guarded, and the other one forgotten")
	}
	l.do(func() error { return d.remove(r) })
	if l.mayUse("own2", "ports", "") {
		t.Error("a NIC of a guest that was removed is guarded")
	}
}

// A clone of a guest has its credentials, and other NICs: it is refused at once, and gets nothing of the guest's. The guest
// itself is served with any of its NICs, also those of pods, and a client that says nothing.
func TestAttackClonedGuest(t *testing.T) {
	l := newLab(t)
	m := l.bootWithOwnNIC(1)
	l.serve(patience)
	attach := func(container string, macs ...string) error {
		ctx := metadata.NewOutgoingContext(t.Context(), identity.MachineMetadata(macs, ""))
		_, err := m.client().AttachNIC(ctx, &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true})
		return err
	}
	l.eventually("the guest is served", func() bool { return attach("c", "52:54:00:00:00:09", "52:54:00:00:00:01") == nil })
	for _, macs := range [][]string{nil, {"52:54:00:00:00:01"}, {"0a:00:01:01:00:01"}, {"none"}} {
		if err := attach("c", macs...); err != nil {
			t.Errorf("with NICs %v: got %v", macs, err)
		}
	}
	for range 2 {
		err := attach("clone", "52:54:00:00:00:02")
		const want = "the credentials are those of guest node1, whose NICs have the addresses 52:54:00:00:00:01, and they came from a machine with 52:54:00:00:00:02: " +
			"this machine is another one: give it credentials of its own by unnest hostd enroll, under a name of its own"
		if grpcstatus.Code(err) != codes.PermissionDenied || grpcstatus.Convert(err).Message() != want {
			t.Fatalf("a clone: got %v, want %s", err, want)
		}
	}
	renew := func(mac string) error {
		request, _, err := identity.NewRequest()
		l.check(err)
		ctx := metadata.NewOutgoingContext(t.Context(), identity.MachineMetadata([]string{mac}, ""))
		_, err = m.client().Renew(ctx, &hostdpb.RenewRequest{CertificateRequest: request})
		return err
	}
	if err := renew("52:54:00:00:00:02"); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a clone that renews: got %v, want PermissionDenied", err)
	}
	if err := renew("52:54:00:00:00:01"); err != nil {
		t.Errorf("the guest renews: %v", err)
	}
	nics, err := m.client().ListNICs(t.Context(), &hostdpb.ListNICsRequest{})
	l.check(err)
	if n := nics.GetNics(); len(n) != 1 || n[0].GetContainerId() != "c" {
		t.Errorf("the guest has %v, want the NIC of c", n)
	}
}
