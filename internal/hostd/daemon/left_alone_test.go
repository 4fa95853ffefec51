package daemon

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
)

// spoiled is a state of the host in which a daemon cannot recover something.
type spoiled struct {
	name    string
	without string // capabilities that the daemon lacks
	spoil   func(*lab, *machine)
	restore func(*lab, *machine)
	said    string
}

// spoilings are such states for a guest.
var spoilings = []spoiled{
	{"damaged record", "", func(l *lab, m *machine) {
		l.check(os.WriteFile(record.Path(l.dir, m.record.Name), []byte("{"), 0o600))
	}, func(_ *lab, m *machine) { m.write() }, "read guest record"},
	{"hidden socket", "", func(l *lab, m *machine) { l.check(os.Rename(m.record.QMP, m.record.QMP+".away")) },
		func(l *lab, m *machine) { l.check(os.Rename(m.record.QMP+".away", m.record.QMP)) }, "left as"},
}

// A daemon that cannot take over a segment leaves it to the guests that use it, and takes
// it over once it can.
func TestSegmentThatCannotBeTakenOver(t *testing.T) {
	without := func(capabilities, said string) spoiled {
		nothing := func(*lab, *machine) {}
		return spoiled{"without " + capabilities, capabilities, nothing, nothing, said}
	}
	for _, c := range append(slices.Clone(spoilings),
		without("-sys_ptrace", "permission denied"),
		without("-bpf,-perfmon,-sys_admin", "operation not permitted"),
		without("-net_raw", "open packet socket"),
	) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			a, b := l.boot(1, 2), l.boot(2, 2)
			l.serve(patience)
			a.mustJoin("web", "c1")
			b.mustJoin("web", "c2")
			want := []string{"u1n1-1.1.c1@eth0", "u2n1-1.2.c2@eth0"}
			l.wantMembership("default/web", segment.Of(1, 2), a, b)
			l.end(l.daemon, syscall.SIGKILL)
			c.spoil(l, a)
			if c.without == "" {
				l.serve(patience)
			} else {
				l.serveWithout(c.without)
			}
			l.wantSaid("take over segment: it is left as it is", c.said)
			l.eventually("the other guest is served", func() bool {
				_, err := b.client().Status(t.Context(), &hostdpb.StatusRequest{})
				return err == nil
			})
			l.wantNames("default/web", want...)
			if _, err := b.joinAs(spec("web"), "c3"); grpcstatus.Code(err) != codes.FailedPrecondition {
				t.Errorf("join of a segment that is left alone: got %v, want FailedPrecondition", err)
			}
			l.reflects(a, b)
			c.restore(l, a)
			if c.without != "" {
				l.end(l.daemon, syscall.SIGKILL)
				l.serve(patience)
			}
			l.wantSaid(`msg="take over segment" tenant=default pod=web members=1,2`)
			l.wantNames("default/web", want...)
			l.reflects(a, b)
			l.wantMembership("default/web", segment.Of(1, 2), a, b)
			a.wantNICs("1 c1 attached " + segment.MAC(1).String())
			a.leaveWilling("c1")
			l.wantMembership("default/web", segment.Of(2), b)
		})
	}
}

// reflects fails the test unless a frame of one machine reaches another one, both as
// fractions of the segment web.
func (l *lab) reflects(from, to *machine) {
	l.t.Helper()
	const id = "default/web"
	sender, receiver := from.queue(tapOf(id)), to.queue(tapOf(id))
	defer unix.Close(sender)
	defer unix.Close(receiver)
	dst, src := segment.MAC(to.fraction(id)), segment.MAC(from.fraction(id))
	text := []byte(rand.Text())
	frame := slices.Concat(make([]byte, 12), dst[:], src[:], []byte{8, 0}, text, make([]byte, 46))
	read := func() (found bool) { // reads all frames that have arrived
		for buffer := make([]byte, 1<<17); ; {
			n, err := unix.Read(receiver, buffer)
			if err != nil {
				return found
			}
			found = found || bytes.Contains(buffer[:n], text)
		}
	}
	l.eventually("a frame is reflected", func() bool {
		_, err := unix.Write(sender, frame) // more than once, because QEMU may take the first
		l.check(err)
		time.Sleep(10 * time.Millisecond)
		return read()
	})
	read()
}

// A daemon that cannot take over NICs leaves them to their pods, and takes them over once
// it can.
func TestNICsThatCannotBeTakenOver(t *testing.T) {
	nothing := func(*lab, *machine) {}
	for _, c := range append(slices.Clone(spoilings),
		spoiled{"no list of guests", "", func(l *lab, _ *machine) { l.check(os.Rename(l.dir+"/guests", l.dir+"/away")) },
			func(l *lab, _ *machine) { l.check(os.Rename(l.dir+"/away", l.dir+"/guests")) }, "left as they are"},
		spoiled{"without programs", "-bpf,-perfmon,-sys_admin", nothing, nothing, "take over NIC: it is left as it is"},
	) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			m := l.boot(1, 3)
			l.serve(patience)
			m.mustAttach("c1")
			m.mustTrunk("c2")
			before := l.ports()
			l.end(l.daemon, syscall.SIGKILL)
			c.spoil(l, m)
			if c.without == "" {
				l.serve(patience)
			} else {
				l.serveWithout(c.without)
			}
			l.wantSaid(c.said)
			time.Sleep(2 * scanInterval)
			if got := l.ports(); !slices.Equal(got, before) {
				t.Errorf("ports are\n%s, were\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
			}
			c.restore(l, m)
			if c.without != "" {
				l.end(l.daemon, syscall.SIGKILL)
				l.serve(patience)
			}
			for _, container := range []string{"c1", "c2"} {
				l.eventually(container+" is taken over", func() bool {
					_, err := m.client().Check(t.Context(), &hostdpb.CheckRequest{ContainerId: container, Interface: "eth0"})
					return err == nil
				})
			}
			if got := l.ports(); !slices.Equal(got, before) {
				t.Errorf("afterwards ports are\n%s, were\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
			}
		})
	}
}

// A guest whose VMM has lost its socket keeps an endpoint, an ephemeral volume and what is in its export, also without a NIC. They end
// with the VMM.
func TestAttackSharesWithoutSocket(t *testing.T) {
	for _, kind := range []string{"endpoint", "volume", "export"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			l.makeVolumes()
			var m *machine
			var export string
			if kind == "export" {
				m, export = l.bootExport(true)
			} else {
				m = l.boot(1, 2, append(sharePorts(1), mapped...)...)
				l.serve(patience)
			}
			if kind == "endpoint" {
				m.mustJoin("web", "c1")
			} else {
				_, err := m.client().AttachVolume(t.Context(), &hostdpb.AttachVolumeRequest{Pod: "web", Name: "data", Key: testKey, Ephemeral: true})
				l.check(err)
			}
			left := func() (all []string) {
				switch kind {
				case "endpoint":
					l.do(func() error {
						if tap, err := netlink.LinkByName(tapOf("default/web")); err == nil {
							all = tap.Attrs().AltNames
						}
						return nil
					})
					return all
				case "export":
					mounts, err := os.ReadFile("/proc/self/mounts")
					l.check(err)
					for line := range strings.Lines(string(mounts)) {
						if strings.Contains(line, export+"/") {
							all = append(all, line)
						}
					}
				}
				volumes, err := filepath.Glob(filepath.Join(l.dir, "volumes/default/*/data"))
				l.check(err)
				return append(all, volumes...)
			}
			had := left()
			if len(had) == 0 {
				t.Fatal("the guest has nothing")
			}
			l.check(os.Remove(m.record.QMP))
			m.record.Pool = 1 // the daemon connects again
			m.write()
			for restarted := range 2 {
				if restarted == 1 {
					l.end(l.daemon, syscall.SIGKILL)
					l.serve(patience)
				}
				l.wantSaid(`msg="take over" guest=node1 error=`, "a process has this socket")
				if got := left(); !slices.Equal(got, had) {
					t.Errorf("the guest has %q, had %q", got, had)
				}
			}
			l.end(m.qemu, syscall.SIGKILL)
			l.eventually("they end with the VMM", func() bool { return len(left()) == 0 })
		})
	}
}

// A NIC whose bridge is missing keeps its owner, and gets its bridge when that is back. Then what was kept for NICs that have ended
// meanwhile is free.
func TestNICWithoutItsBridge(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 3)
	l.serve(patience)
	m.mustAttach("c1")
	m.mustTrunk("c2")
	before, devices := l.ports(), m.devices()
	m.mustAttach("c3")
	l.end(l.daemon, syscall.SIGKILL)
	hide, show := m.record.QMP, m.record.QMP+".away"
	l.check(os.Rename(hide, show))
	l.serve(patience) // it starts, because the bridge exists
	l.check(m.owner.Execute(t.Context(), "device_del", map[string]any{"id": hotplug.Occupant{Slot: 3, Generation: 1}.DeviceID()}, nil))
	m.reset()
	l.eventually("the NIC of c3 is gone", func() bool { return slices.Equal(m.devices(), devices) })
	l.check(m.owner.Execute(t.Context(), "netdev_del", map[string]any{"id": hotplug.Occupant{Slot: 3, Generation: 1}.NetdevID()}, nil))
	l.eventually("its TAP is gone", func() bool { return slices.Equal(l.ports(), before) })
	l.rename("br0", "br7")
	l.check(os.Rename(show, hide))
	l.wantSaid("take over NIC: it is left as it is", "find bridge br0")
	if got := l.ports(); !slices.Equal(got, before) {
		t.Errorf("ports are\n%s, were\n%s", strings.Join(got, "\n"), strings.Join(before, "\n"))
	}
	if nics := m.nics(); len(nics) != 2 || !strings.Contains(nics[0], " c1 attached ") {
		t.Errorf("NICs are %q", nics)
	}
	l.do(func() error {
		return netlink.LinkSetDown(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "u1n1-1"}})
	})
	l.rename("br7", "br0")
	l.eventually("the NIC is taken over", func() bool { return slices.Equal(l.ports(), before) })
	l.eventually("the NIC of c3 does not count", func() bool {
		s, err := status.Ask(t.Context(), l.dir)
		return err == nil && s.Tenants[0].Attachments == 2
	})
}

func (l *lab) rename(from, to string) {
	l.t.Helper()
	l.do(func() error {
		link, err := netlink.LinkByName(from)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(link, to)
	})
}

func (m *machine) mustTrunk(container string) {
	m.lab.t.Helper()
	r := &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Mode: hostdpb.Mode_MODE_TRUNK}
	_, err := m.client().AttachNIC(m.lab.t.Context(), r)
	m.lab.check(err)
}

// ports are the lab's TAPs and VLANs as "name alias master up".
func (l *lab) ports() (all []string) {
	l.t.Helper()
	l.do(func() error {
		links, err := netlinksafe.LinkList()
		for _, link := range links {
			a := link.Attrs()
			if strings.HasPrefix(a.Alias, "unnest:") {
				all = append(all, fmt.Sprint(a.Name, " ", a.Alias, " ", a.MasterIndex, " ", a.Flags&net.FlagUp))
			}
		}
		return err
	})
	slices.Sort(all)
	return all
}
