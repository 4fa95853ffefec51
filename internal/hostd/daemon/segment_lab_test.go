package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/hostd/status"
)

func spec(pod string) *hostdpb.SegmentSpec {
	return &hostdpb.SegmentSpec{Pod: pod, Key: testKey, Network: "pods"}
}

func (m *machine) joinAs(s *hostdpb.SegmentSpec, container string) (*hostdpb.Endpoint, error) {
	r, err := m.client().JoinSegment(m.lab.t.Context(), &hostdpb.JoinSegmentRequest{Segment: s, ContainerId: container, Interface: "eth0"})
	if err == nil { // as the plugin does when the pod is connected
		_, err = m.client().Check(m.lab.t.Context(), &hostdpb.CheckRequest{ContainerId: container, Interface: "eth0", Endpoint: true})
	}
	return r.GetEndpoint(), err
}

func (m *machine) mustJoin(pod, container string) *hostdpb.Endpoint {
	m.lab.t.Helper()
	e, err := m.joinAs(spec(pod), container)
	m.lab.check(err)
	return e
}

func (m *machine) leave(container string) error {
	_, err := m.client().LeaveSegment(m.lab.t.Context(), &hostdpb.LeaveSegmentRequest{ContainerId: container, Interface: "eth0"})
	return err
}

// leaveWilling leaves while the guest gives up what it is asked for.
func (m *machine) leaveWilling(container string) {
	m.lab.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- m.leave(container) }()
	m.lab.eventually("the guest is asked", func() bool {
		return !slices.ContainsFunc(m.nics(), func(nic string) bool { return strings.Contains(nic, " "+container+" attached ") })
	})
	m.reset()
	m.lab.check(<-ended)
	// QEMU reports the reset after the deletion of the NIC. A NIC that the daemon plugs in
	// between is lost.
	m.lab.eventually("the daemon has handled the reset", func() bool {
		s, err := status.Ask(m.lab.t.Context(), m.lab.dir)
		m.lab.check(err)
		i := slices.IndexFunc(s.Guests, func(g status.Guest) bool { return g.Name == m.record.Name })
		return i >= 0 && !s.Guests[i].Awake
	})
}

// segment returns a segment as the guest is told about it.
func (m *machine) segment(pod string) *hostdpb.Segment {
	m.lab.t.Helper()
	r, err := m.client().SegmentStatus(m.lab.t.Context(), &hostdpb.SegmentStatusRequest{Pod: pod, Key: testKey})
	m.lab.check(err)
	return r.GetSegment()
}

func (m *machine) wantMembers(pod string, want ...segment.Fraction) {
	m.lab.t.Helper()
	if got := segment.Set(m.segment(pod).GetMembers()); got != segment.Of(want...) {
		m.lab.t.Errorf("members of %s are %s, want %s", pod, got, segment.Of(want...))
	}
}

// names are the alternative names of a segment's TAP.
func (l *lab) names(id string) (names []string) {
	l.t.Helper()
	l.do(func() error {
		link, err := netlink.LinkByName(tapOf(id))
		if err == nil {
			names = slices.Sorted(slices.Values(link.Attrs().AltNames))
		}
		return err
	})
	return names
}

func (l *lab) wantNames(id string, want ...string) {
	l.t.Helper()
	if got := l.names(id); !slices.Equal(got, want) {
		l.t.Errorf("names of %s are %q, want %q", id, got, want)
	}
}

// received returns the membership frames that have arrived at the machine's queue of a
// segment: its guest has no driver that would read them.
func (m *machine) received(id string) (frames []segment.Membership) {
	m.lab.t.Helper()
	fd := m.queue(tapOf(id))
	if fd < 0 {
		m.lab.t.Fatalf("%s has no queue of %s: %s", m.record.Name, id, m.netdevs())
	}
	defer unix.Close(fd)
	buffer := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, buffer)
		if errors.Is(err, unix.EAGAIN) {
			return frames
		}
		m.lab.check(err)
		const header = 12
		frame := buffer[header:n]
		f := segment.Fraction(frame[5])
		member := segment.Membership{Generation: binary.BigEndian.Uint32(frame[18:]), Members: segment.Set(binary.BigEndian.Uint32(frame[22:]))}
		if !bytes.Equal(frame, member.Frame(segment.MAC(f))) {
			m.lab.t.Fatalf("% x is not the frame of %+v for fraction %d", frame, member, f)
		}
		if f != m.fraction(id) {
			m.lab.t.Fatalf("%s, which is fraction %d, has got a frame for fraction %d: %+v, after %+v", m.record.Name, m.fraction(id), f, member, frames)
		}
		frames = append(frames, member)
	}
}

// fraction is that of the machine in a segment, as the TAP's names tell: "PORT.FRACTION",
// and more.
func (m *machine) fraction(id string) segment.Fraction {
	for _, name := range m.lab.names(id) {
		port, rest, _ := strings.Cut(name, ".")
		number, _, _ := strings.Cut(rest, ".")
		if f, err := strconv.Atoi(strings.TrimSuffix(number, "o")); err == nil && ports.IsPort(port, m.record.TAPPrefix()) {
			return segment.Fraction(f)
		}
	}
	return 0
}

// tapOf is the name of the TAP of a segment, whose id is "TENANT/POD".
func tapOf(id string) string {
	tenant, pod, _ := strings.Cut(id, "/")
	return segments.TAP(tenant, pod)
}

// queue duplicates QEMU's descriptor of a TAP; -1 when it has none. That of a queue which was
// taken from it does not count.
func (m *machine) queue(tap string) int {
	m.lab.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fdinfo", m.qemu.Process.Pid)
	entries, err := os.ReadDir(dir)
	m.lab.check(err)
	pidfd, err := unix.PidfdOpen(m.qemu.Process.Pid, 0)
	m.lab.check(err)
	defer unix.Close(pidfd)
	for _, e := range entries {
		info, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		m.lab.check(err)
		if number, err := strconv.Atoi(e.Name()); err == nil && strings.Contains(string(info), tap) {
			fd, err := unix.PidfdGetfd(pidfd, number, 0)
			m.lab.check(err)
			if request, err := unix.NewIfreq(""); err == nil && unix.IoctlIfreq(fd, unix.TUNGETIFF, request) == nil && request.Uint16()&unix.IFF_DETACH_QUEUE == 0 {
				return fd
			}
			m.lab.check(unix.Close(fd))
		}
	}
	return -1
}

// wantMembership waits until every machine has received the membership on its own queue.
func (l *lab) wantMembership(id string, want segment.Set, machines ...*machine) {
	l.t.Helper()
	for _, m := range machines {
		l.eventually(fmt.Sprintf("%s is told the members %s", m.record.Name, want), func() bool {
			frames := m.received(id)
			for i := 1; i < len(frames); i++ {
				if segment.Older(frames[i].Generation, frames[i-1].Generation) {
					l.t.Fatalf("generations are %v", frames)
				}
			}
			return len(frames) > 0 && frames[len(frames)-1].Members == want
		})
	}
}

func TestSegment(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	nic := a.mustAttach("c1")
	e := a.mustJoin("web", "c1") // the same container and interface
	if e.GetFraction() != 1 || e.GetMac() != segment.MAC(1).String() || e.GetSegmentMac() != e.GetMac() || e.GetMtu() != segment.MTU ||
		e.GetSlot() != 2 || e.GetMembers() != uint32(segment.Of(1)) || e.GetMode() != hostdpb.SegmentMode_SEGMENT_MODE_UNICAST ||
		e.GetPod() != "web" || e.GetNetwork() != "pods" || e.GetPortLow() != 32768 || e.GetPortHigh() != 60999 ||
		e.GetContainerId() != "c1" || e.GetInterface() != "eth0" || e.GetState() != hostdpb.NICState_NIC_STATE_ATTACHED {
		t.Errorf("endpoint is %v", e)
	}
	if mac, mtu := a.property("nic2-1", "mac"), a.property("nic2-1", "host_mtu"); mac != e.GetMac() || mtu != "65521" {
		t.Errorf("device has the MAC %s and the MTU %s", mac, mtu)
	}
	again := a.mustJoin("web", "c1")
	if again.GetFraction() != 1 || again.GetGeneration() != e.GetGeneration()+1 || // mustJoin has said that it is ready
		len(a.devices()) != 2 {
		t.Errorf("second join of the same gave %v, and devices %v", again, a.devices())
	}
	a.wantNICs("1 c1 attached "+nic.GetMac(), "2 c1 attached "+e.GetMac())
	second := b.mustJoin("web", "c9")
	if second.GetFraction() != 2 || second.GetMembers() != uint32(segment.Of(1, 2)) || second.GetGeneration() != e.GetGeneration()+1 {
		t.Errorf("second endpoint is %v", second)
	}
	l.wantNames("default/web", "u1n2-1.1.c1@eth0", "u2n1-1.2.c9@eth0")
	l.wantMembership("default/web", segment.Of(1, 2), a, b)

	check := &hostdpb.CheckRequest{ContainerId: "c1", Interface: "eth0", Endpoint: true, Mac: e.GetMac(), Pod: "web"}
	if r, err := a.client().Check(t.Context(), check); err != nil || r.GetEndpoint().GetFraction() != 1 || r.GetNic() != nil {
		t.Errorf("check of the endpoint: %v, %v", r, err)
	}
	if r, err := a.client().Check(t.Context(), &hostdpb.CheckRequest{ContainerId: "c1", Interface: "eth0", Mac: nic.GetMac()}); err != nil || r.GetNic() == nil {
		t.Errorf("check of the NIC: %v, %v", r, err)
	}
	check.Pod = "db"
	if _, err := a.client().Check(t.Context(), check); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("check of another pod's endpoint: %v", err)
	}
	if _, err := b.client().Check(t.Context(), check); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("check of another guest's endpoint: %v", err)
	}

	// It is removed from the members at once. Its queue goes with the NIC.
	ended := make(chan error, 1)
	go func() { ended <- a.leave("c1") }()
	l.eventually("the other guests are told", func() bool { return b.segment("web").GetMembers() == uint32(segment.Of(2)) })
	l.wantMembership("default/web", segment.Of(2), b)
	l.wantNames("default/web", "u1n2-1.1", "u2n1-1.2.c9@eth0")
	if _, err := a.joinAs(spec("web"), "c2"); grpcstatus.Code(err) != codes.Aborted {
		t.Errorf("join while the earlier endpoint is detached: got %v, want Aborted", err)
	}
	a.reset()
	l.check(<-ended)
	l.wantNames("default/web", "u2n1-1.2.c9@eth0")
	a.wantNICs("1  warm " + nic.GetMac())
	l.check(a.leave("c1"))
	l.check(a.leave("never"))
	b.leaveWilling("c9") // the last
	l.wantTAPs("u1n1-1 unnest:")
	if _, err := b.client().SegmentStatus(t.Context(), &hostdpb.SegmentStatusRequest{Pod: "web", Key: testKey}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("status of a segment that is gone: %v", err)
	}
}

// Requests that the daemon refuses, and limits.
func TestSegmentsThatAreRefused(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 4), l.boot(2, 2)
	b.record.Tenant = "other"
	b.write()
	l.serve(patience)
	if s, err := a.client().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil || len(s.GetSegmentModes()) != 2 || s.GetSegmentsLimited() != "" || s.GetProtocol() != 3 {
		t.Errorf("status is %v, %v", s, err)
	}
	a.mustJoin("web", "c1")
	with := func(change func(*hostdpb.SegmentSpec)) *hostdpb.SegmentSpec {
		s := spec("web")
		change(s)
		return s
	}
	for _, c := range []struct {
		name      string
		m         *machine
		container string
		segment   *hostdpb.SegmentSpec
		code      codes.Code
		want      string
	}{
		{"another key", a, "c1", with(func(s *hostdpb.SegmentSpec) { s.Key = "another key of 16 b" }), codes.InvalidArgument, "printable"},
		{"wrong key", a, "c1", with(func(s *hostdpb.SegmentSpec) { s.Key = strings.ToUpper(testKey) }), codes.PermissionDenied, "the key is not that of the segment"},
		{"no segment", a, "c2", nil, codes.InvalidArgument, "pod"},
		{"unknown mode", a, "c2", with(func(s *hostdpb.SegmentSpec) { s.Mode = 3 }), codes.InvalidArgument, "segment mode 3"},
		{"another mode", a, "c1", with(func(s *hostdpb.SegmentSpec) { s.Mode = hostdpb.SegmentMode_SEGMENT_MODE_PLAIN }), codes.FailedPrecondition, "has mode unicast, not plain"},
		{"another network", a, "c1", with(func(s *hostdpb.SegmentSpec) { s.Network = "n" }), codes.FailedPrecondition, `is of network "pods", not "n"`},
		{"several hosts", a, "c2", with(func(s *hostdpb.SegmentSpec) { s.Span = hostdpb.SegmentSpan_SEGMENT_SPAN_HOSTS }), codes.InvalidArgument, "one physical host"},
		{"second endpoint", a, "c2", spec("web"), codes.Aborted, "one fraction on a guest"},
		{"other segment", a, "c1", spec("db"), codes.AlreadyExists, "leave that first"},
		{"long container ID", a, strings.Repeat("c", 120), spec("db"), codes.InvalidArgument, "at most 106"},
		{"mode of the tenant", b, "c1", with(func(s *hostdpb.SegmentSpec) { s.Mode = hostdpb.SegmentMode_SEGMENT_MODE_PLAIN }), codes.PermissionDenied, "want unicast"},
	} {
		if _, err := c.m.joinAs(c.segment, c.container); grpcstatus.Code(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.code, c.want)
		}
	}
	if _, err := a.client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: "c5", Interface: "eth0", Mode: hostdpb.Mode_MODE_SEGMENT}); grpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("attach in mode segment: got %v", err)
	}
	a.wantMembers("web", 1)

	// Another tenant's pod of the same name is another segment, with a key of its own.
	e, err := b.joinAs(with(func(s *hostdpb.SegmentSpec) { s.Key = strings.ToUpper(testKey) }), "c1")
	if err != nil || e.GetFraction() != 1 || e.GetMembers() != uint32(segment.Of(1)) {
		t.Errorf("the other tenant's segment: %v, %v", e, err)
	}
	if _, err := b.client().SegmentStatus(t.Context(), &hostdpb.SegmentStatusRequest{Pod: "web", Key: testKey}); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("status with the first tenant's key: %v", err)
	}

	// The test's policy has three segments at most.
	for _, pod := range []string{"p2", "p3"} {
		r, err := a.client().CreateSegment(t.Context(), &hostdpb.CreateSegmentRequest{Segment: &hostdpb.SegmentSpec{Pod: pod}})
		if err != nil || len(r.GetKey()) < 40 || len(r.GetSegment().GetFractions()) > 0 {
			t.Errorf("create %s: %v, %v", pod, r, err)
		}
		if _, err := a.joinAs(&hostdpb.SegmentSpec{Pod: pod, Key: testKey}, "c2"); grpcstatus.Code(err) != codes.PermissionDenied {
			t.Errorf("join %s with another key: %v", pod, err)
		}
		if _, err := a.joinAs(&hostdpb.SegmentSpec{Pod: pod, Key: r.GetKey()}, "of-"+pod); err != nil {
			t.Errorf("join %s: %v", pod, err)
		}
	}
	if _, err := a.joinAs(spec("p4"), "c4"); grpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "3 segments of at most 3") {
		t.Errorf("a fourth segment: got %v", err)
	}
	if s, err := a.client().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil || s.GetSegmentsLimited() == "" {
		t.Errorf("status is %v, %v", s, err)
	}
	// No two endpoints of a guest have the same MAC.
	macs := map[string]bool{}
	for _, nic := range a.nics() {
		macs[nic[strings.LastIndex(nic, " "):]] = true
	}
	if len(macs) != 3 {
		t.Errorf("NICs are %q", a.nics())
	}
}

func TestSegmentGC(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 3), l.boot(2, 2)
	l.serve(patience)
	a.mustJoin("web", "c1")
	a.mustJoin("db", "c2")
	b.mustJoin("web", "c1")
	gc := func(m *machine, network string, valid ...string) ([]*hostdpb.Attachment, error) {
		r := &hostdpb.GCRequest{Network: network}
		for _, c := range valid {
			r.Valid = append(r.Valid, &hostdpb.Attachment{ContainerId: c, Interface: "eth0"})
		}
		g, err := m.client().GC(t.Context(), r)
		return g.GetRemoved(), err
	}
	for _, network := range []string{"", "other"} {
		if removed, err := gc(a, network); err != nil || len(removed) > 0 {
			t.Errorf("network %q: removed %v, %v", network, removed, err)
		}
	}
	if removed, err := gc(a, "pods", "c1", "c2"); err != nil || len(removed) > 0 {
		t.Errorf("all valid: removed %v, %v", removed, err)
	}
	type answer struct {
		removed []*hostdpb.Attachment
		err     error
	}
	ended := make(chan answer, 1)
	go func() {
		removed, err := gc(a, "pods", "c1")
		ended <- answer{removed, err}
	}()
	l.eventually("the guest is asked", func() bool { return !strings.Contains(strings.Join(a.nics(), ","), " c2 attached ") })
	a.reset()
	got := <-ended
	if got.err != nil || len(got.removed) != 1 || got.removed[0].GetContainerId() != "c2" || got.removed[0].GetInterface() != "eth0" {
		t.Errorf("removed %v, %v, want c2", got.removed, got.err)
	}
	if _, err := a.client().SegmentStatus(t.Context(), &hostdpb.SegmentStatusRequest{Pod: "db", Key: testKey}); grpcstatus.Code(err) != codes.NotFound {
		t.Errorf("the segment of the pod that is gone: %v", err)
	}
}

// A reset ends the guest's endpoints, and the other guests are told at once.
func TestSegmentAndReset(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	a.reset()
	l.eventually("the other guests are told", func() bool { return b.segment("web").GetMembers() == uint32(segment.Of(2)) })
	l.wantMembership("default/web", segment.Of(2), b)
	l.eventually("the NIC is asked for", func() bool { return strings.Contains(a.nics()[0], "detaching") })
	a.reset()
	l.eventually("it is gone", func() bool { return len(a.nics()) == 0 })
	l.wantNames("default/web", "u2n1-1.2.c1@eth0")
	l.eventually("it may join again", func() bool {
		e, err := a.joinAs(spec("web"), "c2")
		return err == nil && e.GetFraction() == 1 && e.GetMembers() == uint32(segment.Of(1, 2))
	})
	l.wantMembership("default/web", segment.Of(1, 2), a, b)
}

// A guest that does not give its NIC up loses the queue and its name on the TAP.
func TestSegmentVMMIsKilled(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	a.mustJoin("db", "c2") // alone
	l.end(a.qemu, syscall.SIGKILL)
	l.eventually("it is out of the segment", func() bool { return b.segment("web").GetMembers() == uint32(segment.Of(2)) })
	l.wantNames("default/web", "u2n1-1.2.c1@eth0")
	l.wantMembership("default/web", segment.Of(2), b)
	a.boot()
	if e := a.mustJoin("web", "c3"); e.GetFraction() != 1 || e.GetMembers() != uint32(segment.Of(1, 2)) {
		t.Errorf("endpoint after the guest's return is %v", e)
	}
	l.wantMembership("default/web", segment.Of(1, 2), a, b)
	for _, m := range []*machine{a, b} {
		l.end(m.qemu, syscall.SIGKILL)
	}
	l.eventually("nothing is left", func() bool { return len(l.taps()) == 0 })
}

// A daemon restarts while a VMM hangs. To take the segment over it needs the VMM's
// process, but no answer from it. The daemons after it can do the same.
func TestSegmentAndVMMThatHangs(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 2)
	b.record.PID = b.qemu.Process.Pid
	b.write()
	l.serve(patience)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	l.check(b.qemu.Process.Signal(syscall.SIGSTOP))
	for range 4 { // their connections stay in QEMU's queue, which is short
		l.end(l.daemon, syscall.SIGKILL)
		l.serve(patience)
		a.wantMembers("web", 1, 2)
		l.wantMembership("default/web", segment.Of(1, 2), a)
	}
	l.check(b.qemu.Process.Signal(syscall.SIGCONT))
	l.eventually("it is served", func() bool {
		e, err := b.joinAs(spec("web"), "c1")
		return err == nil && e.GetFraction() == 2
	})
	l.wantMembership("default/web", segment.Of(1, 2), a, b)
}

// If another program deletes the segment's TAP, the guests are asked to give up its NICs.
func TestSegmentTAPIsDeleted(t *testing.T) {
	l := newLab(t)
	a := l.boot(1, 1)
	l.serve(patience)
	a.mustJoin("web", "c1")
	l.do(func() error {
		link, err := netlink.LinkByName(segments.TAP("default", "web"))
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	l.eventually("the NIC is asked for", func() bool { return strings.Contains(a.nics()[0], "detaching") })
	a.reset()
	l.eventually("it is gone", func() bool { return len(a.nics()) == 0 })
	l.eventually("the pod has another", func() bool {
		e, err := a.joinAs(spec("web"), "c1")
		return err == nil && e.GetFraction() == 1
	})
	l.wantMembership("default/web", segment.Of(1), a)
}

// Each step of a join fails once, and leaves nothing.
func TestJoinThatFails(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(*machine)
	}{
		{"name of the TAP is taken", "add TAP", func(m *machine) {
			m.lab.do(func() error {
				a := netlink.NewLinkAttrs()
				a.Name = "other"
				if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}); err != nil {
					return err
				}
				link, err := netlink.LinkByName("other")
				if err != nil {
					return err
				}
				return netlink.LinkAddAltName(link, "u1n1-1.1")
			})
		}},
		{"netdev", "add netdev", func(m *machine) {
			m.lab.check(m.owner.NetdevAdd(m.lab.t.Context(), map[string]any{"type": "hubport", "hubid": 0, "id": "net1-1"}))
		}},
		{"device", "add device", func(m *machine) {
			m.free() // the daemon has looked at the ports
			m.lab.check(m.owner.DeviceAdd(m.lab.t.Context(), map[string]any{"driver": "virtio-rng-pci", "id": "rng", "bus": "rp1", "addr": "0"}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			m := l.boot(1, 2)
			l.serve(patience)
			c.spoil(m)
			if _, err := m.joinAs(spec("web"), "c1"); grpcstatus.Code(err) != codes.Internal || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want Internal and %q", err, c.want)
			}
			l.wantTAPs()
			if n := m.netdevs(); strings.Contains(n, "tap") {
				t.Errorf("netdevs are %q", n)
			}
			if e := m.mustJoin("web", "c1"); e.GetSlot() != 2 || e.GetFraction() != 1 {
				t.Errorf("next endpoint is %v", e)
			}
			l.wantMembership("default/web", segment.Of(1), m)
		})
	}
}

// A warm NIC makes room for an endpoint if no slot is free.
func TestEndpointInPlaceOfWarmNIC(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1)
	m.record.Pool = 1
	m.write()
	l.serve(patience)
	m.free() // its system is up: the pool fills
	l.eventually("the pool is full", func() bool { return len(m.nics()) == 1 && strings.Contains(m.nics()[0], " warm ") })
	ended := make(chan error, 1)
	go func() {
		_, err := m.joinAs(spec("web"), "c1")
		ended <- err
	}()
	l.eventually("the guest is asked for the warm NIC", func() bool { return strings.Contains(m.nics()[0], " detaching ") })
	m.reset() // it gives that up, but the reset may also fail the waiting request
	if err := <-ended; err != nil && grpcstatus.Code(err) != codes.Aborted {
		t.Errorf("got %v, want an endpoint or Aborted", err)
	}
	l.eventually("the warm NIC is gone", func() bool { return !slices.Contains(l.taps(), "u1n1-1 unnest:") })
}

// Several guests join at the same time, in any order.
func TestJoinAtOnce(t *testing.T) {
	l := newLab(t)
	machines := []*machine{l.boot(1, 2), l.boot(2, 2), l.boot(3, 2)}
	l.serve(patience)
	var wg sync.WaitGroup
	for _, m := range machines {
		for _, pod := range []string{"web", "db"} {
			for range 2 { // twice for each container
				wg.Go(func() {
					if _, err := m.joinAs(spec(pod), "of-"+pod); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
	wg.Wait()
	for _, pod := range []string{"web", "db"} {
		if s := segment.Set(machines[0].segment(pod).GetMembers()); s.Len() != 3 {
			t.Errorf("members of %s are %s", pod, s)
		}
		l.wantMembership("default/"+pod, segment.Set(machines[0].segment(pod).GetMembers()), machines...)
	}
}

// restartRounds is how often a guest joins or leaves: 12 times, or UNNEST_ROUNDS.
func restartRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("UNNEST_ROUNDS")
	if text == "" {
		return 12
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("UNNEST_ROUNDS is %q: want a number of rounds", text)
	}
	return n
}

// Guests join and leave in rounds in which the daemon is killed at random, and guests
// with it or while no daemon runs. After each round, every queue belongs to its fraction
// and all guests have received the same membership.
func TestSegmentsAndRestarts(t *testing.T) {
	l := newLab(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	machines := []*machine{l.boot(1, 2), l.boot(2, 2), l.boot(3, 2), l.boot(4, 2)}
	l.serve(patience)
	in := map[*machine]string{} // container
	for round := range restartRounds(t) {
		m := machines[rng.IntN(len(machines))]
		kill, die := rng.IntN(3) > 0, rng.IntN(4) == 0
		if kill {
			l.end(l.daemon, []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[rng.IntN(2)])
		}
		if die {
			l.end(m.qemu, syscall.SIGKILL)
			delete(in, m)
			if !kill || rng.IntN(2) == 0 {
				m.boot()
			}
		}
		if kill {
			l.serve(patience)
		}
		if m.qemu.ProcessState != nil {
			m.boot()
		}
		if c := in[m]; c != "" && !die {
			m.leaveWilling(c)
			delete(in, m)
		} else {
			c := fmt.Sprint("c", round)
			l.eventually("it has joined", func() bool { // its slots may rest, its earlier endpoint be on its way out
				_, err := m.joinAs(spec("web"), c)
				return err == nil
			})
			in[m] = c
		}
		l.checkRound(round, in)
	}
	for _, m := range slices.Collect(maps.Keys(in)) {
		m.leaveWilling(in[m])
	}
	l.wantTAPs()
}

func (l *lab) checkRound(round int, in map[*machine]string) {
	l.t.Helper()
	if len(in) == 0 {
		l.wantTAPs()
		return
	}
	var members segment.Set
	all := slices.Collect(maps.Keys(in))
	for _, m := range all {
		members = members.With(m.fraction("default/web"))
	}
	if members.Len() != len(in) || members.Has(0) || len(l.names("default/web")) != len(in) {
		l.t.Fatalf("round %d: names are %q, want those of %d guests", round, l.names("default/web"), len(in))
	}
	for _, m := range all {
		if got := segment.Set(m.segment("web").GetMembers()); got != members {
			l.t.Fatalf("round %d: members are %s, want %s", round, got, members)
		}
		if _, err := m.client().Check(l.t.Context(), &hostdpb.CheckRequest{ContainerId: in[m], Interface: "eth0", Endpoint: true}); err != nil {
			l.t.Fatalf("round %d: %v", round, err)
		}
	}
	l.wantMembership("default/web", members, all...)
}

// The next daemon removes what a daemon leaves that dies between the steps of a join or
// a leave.
func TestSegmentLeftovers(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 3), l.boot(2, 2)
	l.boot(3, 1)
	l.serve(patience)
	kept := a.mustJoin("web", "kept")
	b.mustJoin("web", "c1")
	b.mustJoin("db", "c2")
	l.end(l.daemon, syscall.SIGKILL)
	l.do(func() error {
		web, err := netlink.LinkByName(segments.TAP("default", "web"))
		if err != nil {
			return err
		}
		db, err := netlink.LinkByName(segments.TAP("default", "db"))
		if err != nil {
			return err
		}
		return errors.Join(
			netlink.LinkAddAltName(web, "u3n1-1.5.c3@eth0"), // its queue was never QEMU's
			netlink.LinkAddAltName(web, "u9n1-1.6.c4@eth0"), // of a guest that nobody knows
			netlink.LinkAddAltName(web, "somebodys"),
			netlink.LinkAddAltName(db, "u2n2-1.1"), // it was being given up: both names are there
		)
	})
	l.serve(patience)
	l.eventually("what was given up is asked for", func() bool {
		return slices.ContainsFunc(b.nics(), func(s string) bool { return strings.HasPrefix(s, "2  detaching") })
	})
	a.wantMembers("web", 1, 2)
	l.wantNames("default/web", "somebodys", "u1n1-1.1.kept@eth0", "u2n1-1.2.c1@eth0")
	l.wantMembership("default/web", segment.Of(1, 2), a, b)
	a.wantNICs("1 kept attached " + kept.GetMac())
	b.reset() // ends both of its endpoints
	b.reset()
	l.eventually("all is gone", func() bool {
		if len(b.nics()) > 0 {
			b.reset()
			return false
		}
		return len(l.names("default/web")) == 2
	})
	a.leaveWilling("kept")
	l.wantTAPs()
}

// What the operator sees.
func TestSegmentInStatus(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	a.mustJoin("web", "c1")
	b.mustJoin("web", "c1")
	s, err := status.Ask(t.Context(), l.dir)
	l.check(err)
	if len(s.Segments) != 1 || s.Protocol != 3 {
		t.Fatalf("status is %+v", s)
	}
	got := s.Segments[0]
	want := []status.Fraction{{Fraction: 1, Guest: "node1", Member: true}, {Fraction: 2, Guest: "node2", Member: true}}
	if got.Tenant != "default" || got.Pod != "web" || got.Mode != "unicast" || got.Network != "pods" || got.TAP != segments.TAP("default", "web") ||
		!slices.Equal(got.Fractions, want) || s.Tenants[0].Segments != 1 || s.Tenants[1].Segments != 0 {
		t.Errorf("segment is %+v, tenants %+v", got, s.Tenants)
	}
	if n := s.Guests[0].NICs; len(n) != 1 || n[0].Pod != "web" || n[0].Fraction != 1 || n[0].Container != "c1" {
		t.Errorf("NICs are %+v", n)
	}
	text := l.metrics()
	for _, line := range []string{
		`unnest_hostd_segments{tenant="default"} 1`,
		`unnest_hostd_segments{tenant="other"} 0`,
		`unnest_hostd_segment_endpoints{member="yes",pod="web",tenant="default"} 2`,
		`unnest_hostd_segment_frames_total{pod="web",tenant="default"} 0`,
		`unnest_hostd_segment_dropped_frames_total{pod="web",reason="spoofed",tenant="default"} 0`,
		`unnest_hostd_attach_seconds_count{result="OK",source="segment"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("metrics have no line %q", line)
		}
	}
}

func (l *lab) metrics() string {
	l.t.Helper()
	client := status.Client(l.dir)
	r, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "http://hostd/metrics", nil)
	l.check(err)
	answer, err := client.Do(r)
	l.check(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	l.check(err)
	return string(text)
}

// An endpoint that waited for a slot when the guest's run ended is free for the next run.
func TestJoinThatWaitsWhenTheRunEnds(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 1)
	m.record.Pool = 1
	m.write()
	l.serve(patience)
	m.free() // the guest is awake
	l.eventually("a NIC is in the pool", func() bool { return len(m.devices()) == 1 })
	failed := make(chan error, 1)
	go func() {
		_, err := m.joinAs(spec("web"), "c1")
		failed <- err
	}()
	l.eventually("the endpoint waits for the slot of that NIC", func() bool {
		s, err := status.Ask(t.Context(), l.dir)
		return err == nil && s.Tenants[0].Attachments == 1
	})
	m.record.Queues = 1
	m.write()
	if err := <-failed; err == nil {
		t.Fatal("the endpoint did not wait")
	}
	m.willing(func() error {
		_, err := m.joinAs(spec("web"), "c2")
		if err != nil && (strings.Contains(err.Error(), hotplug.ErrGuestReset.Error()) || grpcstatus.Code(err) == codes.NotFound) {
			err = nil // the guest's reset has ended it, before or after the answer
		}
		return err
	})
}
