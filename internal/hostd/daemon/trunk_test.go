package daemon

import (
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostapi/hostdpb"
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
	if got := l.programs("u1n1-1"); !slices.Equal(got, []string{"unnest_trunk"}) {
		t.Errorf("the trunk has the programs %q", got)
	}
	if got := l.programs("u1v1"); !slices.Equal(got, []string{"unnest_checksum"}) {
		t.Errorf("the port of a VLAN has the programs %q", got)
	}
	m.reset()
	l.eventually("the NIC is in the pool", func() bool { return slices.Equal(l.taps(), []string{"u1n1-1 unnest:"}) })
	m.mustAttach("c2")
	l.wantTAPs("u1n1-1 unnest:c2/eth0 n=,b=br0,m=1400")
	if got := l.programs("u1n1-1"); !slices.Equal(got, []string{"unnest_checksum"}) {
		t.Errorf("the NIC of a pod that was a trunk has the programs %q", got)
	}
}

// programs lists the programs that see what a port sends, by name.
func (l *lab) programs(port string) (names []string) {
	l.t.Helper()
	l.do(func() error {
		link, err := netlink.LinkByName(port)
		if err != nil {
			return err
		}
		filters, err := netlink.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		for _, f := range filters {
			if program, ok := f.(*netlink.BpfFilter); ok {
				names = append(names, program.Name)
			}
		}
		return err
	})
	return names
}
