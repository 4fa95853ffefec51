package daemon

import (
	"slices"
	"strings"
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
