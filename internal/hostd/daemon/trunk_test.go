package daemon

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"unnest/internal/hostapi/hostdpb"
)

// After a reset of the guest, its trunk NIC goes to the pool. The pod that gets it next has a
// NIC without the program that divides a trunk into VLANs.
func TestTrunkBecomesNICOfPod(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 1)
	m.record.Pool = 1
	m.write()
	l.serve(patience)
	m.allocate("c1", hostdpb.Mode_MODE_TRUNK)
	programs := func() (all int) {
		l.do(func() error {
			link, err := netlink.LinkByName("u1n1-1")
			if err != nil {
				return err
			}
			filters, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
			all = len(filters)
			return err
		})
		return all
	}
	if programs() != 1 {
		t.Errorf("the trunk has %d programs, want 1", programs())
	}
	m.reset()
	l.eventually("the NIC is in the pool", func() bool { return slices.Equal(l.taps(), []string{"u1n1-1 unnest:"}) })
	m.mustAttach("c2")
	l.wantTAPs("u1n1-1 unnest:c2/eth0 n=,b=br0,m=1400")
	if programs() != 0 {
		t.Errorf("the NIC of a pod has %d programs of the trunk that it was", programs())
	}
}
