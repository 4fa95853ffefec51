package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/record"
)

// boots are boot IDs of guests.
var boots = []string{
	"00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b", "00000000-0000-0000-0000-00000000000c",
}

// ofBoot is the context of a request from a machine that has one of the guest's NICs.
func (m *machine) ofBoot(boot string) context.Context {
	p := m.record.MACPrefix()
	mac := []string{fmt.Sprintf("%02x:%02x:%02x:01:00:01", p[0], p[1], p[2])}
	return metadata.NewOutgoingContext(m.lab.t.Context(), identity.MachineMetadata(mac, boot))
}

func (m *machine) attachIn(boot, container string, mode hostdpb.Mode) error {
	_, err := m.client().AttachNIC(m.ofBoot(boot), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Mode: mode})
	return err
}

// containers are those with a NIC, a VLAN or an endpoint that is not being taken away.
func (m *machine) containers() (all []string) {
	m.lab.t.Helper()
	r, err := m.client().ListNICs(m.lab.t.Context(), &hostdpb.ListNICsRequest{})
	m.lab.check(err)
	for _, n := range r.GetNics() {
		if n.GetContainerId() != "" && n.GetState() == hostdpb.NICState_NIC_STATE_ATTACHED {
			all = append(all, n.GetContainerId())
		}
	}
	slices.Sort(all)
	return all
}

func (m *machine) wantContainers(want ...string) {
	m.lab.t.Helper()
	if got := m.containers(); !slices.Equal(got, want) {
		m.lab.t.Errorf("containers with a NIC are %v, want %v", got, want)
	}
}

// A guest was reset while there was no daemon, which nobody reports. The first request of its new boot ends what the boot before had,
// and nothing that it attaches itself, also after another start of the daemon. A late request of the boot before, and one of a clone,
// change nothing.
func TestGuestBootedAgain(t *testing.T) {
	l := newLab(t)
	m := l.bootWithOwnNIC(1)
	l.serve(patience)
	l.eventually("the guest is served", func() bool { return m.attachIn(boots[0], "nic", hostdpb.Mode_MODE_HOTPLUG) == nil })
	l.check(m.attachIn(boots[0], "vlan", hostdpb.Mode_MODE_TRUNK))
	m.wantContainers("nic", "vlan")
	l.end(l.daemon, syscall.SIGKILL)
	m.reset()
	l.serve(patience)
	l.eventually("a client that says no boot is served", func() bool { return slices.Equal(m.containers(), []string{"nic", "vlan"}) })
	status := func(boot string) error {
		_, err := m.client().Status(m.ofBoot(boot), &hostdpb.StatusRequest{})
		return err
	}
	clone := metadata.NewOutgoingContext(t.Context(), identity.MachineMetadata([]string{"52:54:00:00:00:02"}, boots[2]))
	if _, err := m.client().Status(clone, &hostdpb.StatusRequest{}); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a clone: got %v", err)
	}
	l.check(status(boots[0]))
	m.wantContainers("nic", "vlan")

	l.makeOld(m)
	l.check(m.attachIn(boots[1], "new", hostdpb.Mode_MODE_HOTPLUG))
	m.wantContainers("new")
	if err := m.attachIn(boots[0], "late", hostdpb.Mode_MODE_HOTPLUG); grpcstatus.Code(err) != codes.Aborted {
		t.Errorf("a request of the boot before: got %v", err)
	}
	m.wantContainers("new")
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	l.eventually("the boot is known to the next daemon", func() bool { return status(boots[1]) == nil })
	m.wantContainers("new")
	l.wantSaid("take over")
	if strings.Contains(l.log(), "the guest has booted again") {
		t.Error("the next daemon takes the same boot for another")
	}
	l.check(record.Remove(l.dir, m.record.Name))
	if b, err := record.ReadBoot(l.dir, m.record.Name); err != nil || b.ID != "" {
		t.Errorf("after the guest's record was removed there is the boot %v, error %v", b, err)
	}
}

// makeOld has the guest's boot begin an hour ago.
func (l *lab) makeOld(m *machine) {
	l.t.Helper()
	b, err := record.ReadBoot(l.dir, m.record.Name)
	l.check(err)
	if b.ID != boots[0] {
		l.t.Fatalf("boot %v is kept, want %s", b, boots[0])
	}
	b.Since = time.Now().Add(-time.Hour)
	l.check(record.WriteBoot(l.dir, m.record.Name, b))
}

// An attachment's NIC that is named by its MAC is detached only if it is still that one.
func TestDetachByMAC(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 3)
	l.serve(patience)
	first := m.mustAttach("c1")
	m.mustJoin("web", "c1")
	detach := func(mac string) codes.Code {
		_, err := m.client().DetachNIC(t.Context(), &hostdpb.DetachNICRequest{ContainerId: "c1", Interface: "eth0", Mac: mac})
		return grpcstatus.Code(err)
	}
	if code := detach("0a:00:01:01:00:07"); code != codes.FailedPrecondition {
		t.Errorf("with the MAC of an earlier NIC: got %v", code)
	}
	_, err := m.client().LeaveSegment(t.Context(), &hostdpb.LeaveSegmentRequest{ContainerId: "c1", Interface: "eth0", Mac: first.GetMac()})
	if grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("the endpoint with the NIC's MAC: got %v", err)
	}
	if got := m.containers(); len(got) != 2 {
		t.Errorf("the guest has NICs of %v, want NIC and endpoint of c1", got)
	}
	m.willing(func() error {
		_, err := m.client().DetachNIC(t.Context(), &hostdpb.DetachNICRequest{ContainerId: "c1", Interface: "eth0", Mac: first.GetMac()})
		return err
	})
	if code := detach(first.GetMac()); code != codes.OK {
		t.Errorf("without a NIC: got %v", code)
	}
}
