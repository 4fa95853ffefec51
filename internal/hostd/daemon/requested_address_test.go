package daemon

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// The plugin exchanges an allocated address for the one that a runtime requests: the
// daemon claims it for the attachment, on the same NIC, and refuses another's.
func TestRequestedAddress(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	ask := func(container string, addresses ...string) (*hostdpb.AttachNICResponse, error) {
		return m.client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{
			ContainerId: container, Interface: "eth0", Allocate: len(addresses) == 0, Addresses: addresses,
		})
	}
	first, err := ask("c1")
	l.check(err)
	again, err := ask("c1", "10.9.0.77/24")
	l.check(err)
	if again.GetNic().GetMac() != first.GetNic().GetMac() || !slices.Equal(again.GetNic().GetAddresses(), []string{"10.9.0.77/24"}) {
		t.Errorf("got %v, then %v, want the same NIC with 10.9.0.77", first, again)
	}
	if taps := l.taps(); len(taps) != 1 || !strings.Contains(taps[0], "10.9.0.77/24") {
		t.Errorf("the TAP is %v, want one with 10.9.0.77/24", taps)
	}
	second, err := ask("c2")
	l.check(err)
	if _, err := ask("c2", "10.9.0.77/24"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an address of another attachment: got %v, want PermissionDenied", err)
	}
	if got := second.GetNic().GetAddresses(); len(got) != 1 || got[0] == "10.9.0.77/24" {
		t.Errorf("the second has %v, want an address of its own", got)
	}
	m.detachAllWilling("c1", "c2")
	m.wantNothing()
}

// A guest chooses a MAC for a pod within the operator's claimMACs, unless another NIC has it. The NIC may send from that one only,
// also after the daemon has started again, and nobody else has it until the NIC is detached.
func TestAttackClaimMAC(t *testing.T) {
	l := newLab(t)
	m, other := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	const chosen = "02:42:00:00:00:99"
	ask := func(m *machine, container, mac string) (*hostdpb.NIC, error) {
		r, err := m.client().AttachNIC(t.Context(), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Mac: mac})
		return r.GetNic(), err
	}
	nic, err := ask(m, "c1", "")
	l.check(err)
	tap, own := strings.Fields(l.taps()[0])[0], nic.GetMac()
	wantMAC := func(want string) {
		t.Helper()
		for _, mac := range []string{own, chosen} {
			if got := l.mayUse(tap, "macs", mac); got != (mac == want) {
				t.Errorf("the NIC may send from %s: %t, want from %s only", mac, got, want)
			}
		}
	}
	wantMAC(own)
	nic, err = ask(m, "c1", chosen)
	l.check(err)
	if nic.GetMac() != own || nic.GetPodMac() != chosen {
		t.Errorf("got %v, want the same NIC with the MAC %s for the pod", nic, chosen)
	}
	wantMAC(chosen)
	for _, mac := range []string{chosen, own, "02:43:00:00:00:99"} {
		if _, err := ask(other, "c2", mac); status.Code(err) != codes.PermissionDenied {
			t.Errorf("another guest asks for %s: got %v, want PermissionDenied", mac, err)
		}
	}
	other.detachAllWilling("c2")
	other.wantNICs()
	_, err = ask(m, "c1", "02:42:00:00:00:97")
	l.check(err)
	_, err = ask(other, "c2", chosen) // the first guest has it no more
	l.check(err)
	if _, err := ask(m, "c1", chosen); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the other guest has %s: got %v, want PermissionDenied", chosen, err)
	}
	if !l.mayUse(tap, "macs", "02:42:00:00:00:97") {
		t.Error("a MAC that was refused has taken the one before")
	}
	other.detachAllWilling("c2")
	_, err = ask(m, "c1", chosen)
	l.check(err)
	r := &hostdpb.AttachNICRequest{ContainerId: "c3", Interface: "eth0", Mac: "02:42:00:00:00:98", Mode: hostdpb.Mode_MODE_TRUNK}
	if _, err := m.client().AttachNIC(t.Context(), r); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a VLAN: got %v, want InvalidArgument", err)
	}

	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	wantMAC(chosen)
	if _, err := ask(other, "c2", chosen); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another guest asks for the MAC after a restart: got %v, want PermissionDenied", err)
	}
	other.detachAllWilling("c2")
	m.detachAllWilling("c1")
	_, err = ask(other, "c2", chosen)
	l.check(err)
	other.detachAllWilling("c2")
	other.wantNothing()
}
