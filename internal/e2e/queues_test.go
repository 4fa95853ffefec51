package e2e

import (
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/fleet"
)

// NICs of a tenant with several queues have all of them in the pod, one for each processor, and everything else as with one.
func TestMultiQueue(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) {
		twoFamilies(f)
		f.Policy.Tenants[0].Queues = 2
	})
	m := n.boot(fleet.Options{Name: "node1", VCPUs: 2, Slots: 6, Pool: sharedPool})
	modes(t, m)
	first := m.pod("p1", nil)[0]
	n.killDaemon()
	n.startDaemon()
	m.pod("p2", nil)
	m.wantReach("p2", first, true)
	for _, pod := range []string{"p1", "p2"} {
		if got := strings.Fields(m.run("ip netns exec " + pod + " ls /sys/class/net/eth0/queues")); strings.Join(got, " ") != "rx-0 rx-1 tx-0 tx-1" {
			t.Errorf("%s has the queues %v, want two of each direction", pod, got)
		}
	}
	m.removePods(nil, "p1", "p2")
	n.eventually("no pod is left, and the pool is full", func() bool {
		s := n.guestStatus("node1")
		return s.Attachments == 0 && s.SlotsQuarantined == 0 && s.Pool == sharedPool
	})
}
