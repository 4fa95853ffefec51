package isolation

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"unnest/internal/hostapi/iprange"
	"unnest/internal/hostapi/policylimit"
	"unnest/internal/netdev/nft"
)

// Peers that take half of all policies' share are in force, and are not taken for a change of others. Other
// changes pass between the parts of them, and nothing of them stays.
func TestAttackFullShare(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: none})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		restored, ended := make(chan nft.Generation, 100), make(chan error, 1)
		go func() { ended <- n.table.Watch(ctx, func(by nft.Generation, _ error) { restored <- by }) }()
		all := pod(2)
		for i := range policylimit.Share(2) / policylimit.RangeMessage {
			a := [16]byte{0xfd, 1, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
			all = append(all, iprange.Range{First: netip.AddrFrom16(a), Last: netip.AddrFrom16(a)})
		}
		large := Port{Interface: "p1", Link: link, Ingress: allow(Rule{iprange.Union(all), nil})}
		var release func() error
		done := make(chan error, 1)
		go func() {
			var err error
			release, err = n.table.Prepare(large)
			done <- err
		}()
		others := 0
		for prepared := false; !prepared; {
			n.check(n.table.Set(Port{Interface: "p2", Ingress: none}))
			select {
			case err := <-done:
				n.check(err)
				prepared = true
			default:
				others++
			}
		}
		if others < 2 {
			t.Errorf("%d changes of others pass meanwhile", others)
		}
		n.check(n.table.Set(large))
		n.check(release())
		n.connects("large", 2, 1, "tcp", 80, true)
		n.connects("large", 3, 1, "tcp", 80, false)
		n.check(n.table.Remove(large))
		n.connects("removed", 3, 1, "tcp", 80, true)
		release, err := n.table.Prepare(large)
		n.check(err)
		n.check(release())
		if left := n.nft("", "list", "sets", "bridge"); strings.Contains(left, "set peers") {
			t.Error("sets that no port uses stay")
		}
		stop()
		n.check(<-ended)
		if len(restored) > 0 {
			t.Errorf("a change of our own is taken for one of %+v", <-restored)
		}
	})
}
