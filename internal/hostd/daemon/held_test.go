package daemon

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/status"
)

func (m *machine) allocate(container string, mode hostdpb.Mode) string {
	m.lab.t.Helper()
	r, err := m.client().AttachNIC(m.lab.t.Context(), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true, Mode: mode})
	m.lab.check(err)
	return r.GetAddresses()[0].GetAddress()
}

// A daemon that starts counts all pods and gives nobody the address of one, also while the VMM of the pod's guest
// does not answer, so that the guest is not taken over yet.
func TestAddressesBeforeTakeOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	a, b := l.boot(1, 3), l.boot(2, 3)
	l.serve(patience)
	a.mustAttach("c0") // without an address
	had := []string{a.allocate("c1", hostdpb.Mode_MODE_HOTPLUG), a.allocate("c2", hostdpb.Mode_MODE_TRUNK)}
	l.end(l.daemon, syscall.SIGKILL)
	l.check(a.qemu.Process.Signal(syscall.SIGSTOP))
	l.serve(patience)
	if s, err := status.Ask(t.Context(), l.dir); err != nil || s.Tenants[0].Attachments != 3 {
		t.Errorf("before the take-over: got %+v, %v, want 3 attachments", s.Tenants, err)
	}
	for _, mode := range []hostdpb.Mode{hostdpb.Mode_MODE_HOTPLUG, hostdpb.Mode_MODE_TRUNK} {
		if got := b.allocate("new-"+mode.String(), mode); slices.Contains(had, got) {
			t.Errorf("%s: another guest's pod got %s, which a pod has", mode, got)
		}
	}
	for _, address := range had {
		_, err := b.client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: "thief", Interface: "eth0", Addresses: []string{address}})
		if grpcstatus.Code(err) != codes.PermissionDenied {
			t.Errorf("another guest claims %s, which a pod has: got %v, want PermissionDenied", address, err)
		}
	}
	l.check(a.qemu.Process.Signal(syscall.SIGCONT))
	l.eventually("the guest is taken over", func() bool {
		_, err := a.client().Status(t.Context(), &hostdpb.StatusRequest{})
		return err == nil
	})
	if got := []string{a.allocate("c1", hostdpb.Mode_MODE_HOTPLUG), a.allocate("c2", hostdpb.Mode_MODE_TRUNK)}; !slices.Equal(got, had) {
		t.Errorf("after the take-over the pods have %v, want %v", got, had)
	}
}

// What a guest has given up while no daemon ran is free once the guest is taken over.
func TestAddressesOfEndedPods(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 3)
	l.serve(patience)
	m.allocate("c1", hostdpb.Mode_MODE_HOTPLUG)
	m.allocate("c2", hostdpb.Mode_MODE_TRUNK)
	l.end(l.daemon, syscall.SIGKILL)
	id, _, _ := strings.Cut(m.devices()[0], " ")
	l.check(m.owner.Execute(t.Context(), "device_del", map[string]any{"id": id}, nil))
	m.reset()
	l.eventually("the NIC is gone", func() bool { return len(m.devices()) == 1 })
	l.serve(patience)
	l.eventually("one pod has an address", func() bool {
		s, err := status.Ask(t.Context(), l.dir)
		return err == nil && s.Tenants[0].AddressesInUse == 1 && s.Tenants[0].Attachments == 1
	})
}
