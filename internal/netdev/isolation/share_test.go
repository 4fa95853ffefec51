package isolation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/netdev/nft"
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
			release, err = n.table.Prepare(func() {}, large)
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
		release, err := n.table.Prepare(func() {}, large)
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

// A change of a port takes a part more time, next to as many sets of peers as all tenants may have together than next to ten.
// The two are timed in turns, in the processor time of a thread, in which the kernel works.
func TestAttackManySets(t *testing.T) {
	inNetwork(t, func(n *network) {
		most := policylimit.TransactionShare / (policylimit.SetMessage + policylimit.RuleMessage + (few+1)*policylimit.RangeMessage)
		var tables []*Table
		for _, sets := range []int{10, most} {
			other := n.newNS()
			defer other.Close()
			n.open()
			tables = append(tables, n.table)
			var ports []Port
			for i := range sets {
				if i%1000 == 0 {
					ports = append(ports, Port{Interface: fmt.Sprint("p", i), Link: link, Ingress: &Direction{}})
				}
				rule := Rule{}
				for j := range few + 1 {
					a := netip.AddrFrom4([4]byte{9, byte(i >> 8), byte(i), byte(2 * j)})
					rule.Peers = append(rule.Peers, iprange.Range{First: a, Last: a})
				}
				d := ports[len(ports)-1].Ingress
				d.Allow = append(d.Allow, rule)
			}
			for _, p := range ports {
				n.check(n.table.Set(p))
			}
			if got := len(n.table.peers); got != sets {
				t.Fatalf("%d sets, want %d", got, sets)
			}
		}
		n.check(netns.Set(n.host))
		var took [2]time.Duration
		port := Port{Interface: "q1", Link: link, Ingress: allow(Rule{pod(2), tcp(80, 80)}), Egress: allow(Rule{Peers: everyone})}
		for range 40 {
			for i, table := range tables {
				begin := threadTime(t)
				n.check(table.Set(port))
				n.check(table.Remove(port))
				took[i] += threadTime(t) - begin
			}
		}
		t.Logf("%v next to 10 sets, %v next to %d", took[0], took[1], most)
		if took[1] > 5*took[0] {
			t.Errorf("changes took %v next to 10 sets, and %v next to %d", took[0], took[1], most)
		}
	})
}

func threadTime(t *testing.T) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// A set of peers that another client has prepared in part is complete for the first port that uses it.
func TestAttackPreparedInPart(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: none})
		all := pod(2)
		for i := range 2 * prepared {
			a := netip.AddrFrom4([4]byte{9, 0, byte(i / 100), byte(2 * (i % 100))})
			all = append(all, iprange.Range{First: a, Last: a})
		}
		all = iprange.Union(all)
		port := Port{Interface: "p1", Link: link, Ingress: allow(Rule{all, nil})}
		name, peers := peerSet(nil, families[0], Rule{Peers: all})
		for what, prepare := range map[string]func(){
			"in part": func() {
				n.table.mu.Lock()
				defer n.table.mu.Unlock()
				n.check(n.table.transact(func(c *nftables.Conn) error {
					n.table.partial[name] = true
					return errors.Join(n.table.addSet(c, name, peers), nft.Change(c.SetAddElements, n.table.peers[name], intervals(peers[:10])))
				}))
			},
			"restored": func() {
				release, err := n.table.Prepare(func() {}, port)
				n.check(err)
				n.nft("", "flush", "ruleset")
				n.check(n.table.Set(Port{Interface: "p2", Link: link, Ingress: none})) // makes the table again
				n.check(release())
			},
			"whole": func() {
				_, err := n.table.Prepare(func() {}, port)
				n.check(err)
			},
		} {
			prepare()
			n.check(n.table.Set(port))
			n.connects(what, 2, 1, "tcp", 80, true)
			n.connects(what, 3, 1, "tcp", 80, false)
			if n.table.partial[name] || n.table.users[name] != 1 {
				t.Errorf("%s: partial %t, %d users", what, n.table.partial[name], n.table.users[name])
			}
			n.check(n.table.Remove(port))
			if len(n.table.peers)+len(n.table.users)+len(n.table.partial) > 0 {
				t.Errorf("%s: kept of sets that no port uses: %v, %v, %v", what, n.table.peers, n.table.users, n.table.partial)
			}
		}
	})
}

// A port with addresses of one family has no connections of the other in an isolated direction, and takes
// no sets for them.
func TestFamilies(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		sets := func() (four, six int) {
			all := n.nft("", "list", "sets", "bridge")
			return strings.Count(all, "set begun-egress4-"), strings.Count(all, "set begun-egress6-")
		}
		port := Port{Interface: "p1", Link: link[:1]}
		n.open(port)
		for _, ingress := range []*Direction{nil, allow(Rule{everyone, nil})} {
			port.Ingress = ingress
			n.check(n.table.Set(port))
			for a, want := range map[netip.Addr]bool{v4(1): true, v6(1): ingress == nil} {
				c := n.dial(2, "tcp", netip.AddrPortFrom(a, 80))
				if (c != nil) != want {
					t.Errorf("isolated %t: %s connects: %t, want %t", ingress != nil, a, c != nil, want)
				}
				if c != nil {
					c.Close()
				}
			}
			if four, six := sets(); four != 1 || six != 0 {
				t.Errorf("%d and %d sets", four, six)
			}
		}
		port.Link = link
		n.check(n.table.Set(port))
		n.connects("both", 2, 1, "tcp", 80, true)
		if four, six := sets(); four != 1 || six != 1 {
			t.Errorf("both: %d and %d sets", four, six)
		}
		port.Link = link[1:]
		n.check(n.table.Set(port))
		if four, six := sets(); four != 0 || six != 1 {
			t.Errorf("IPv6: %d and %d sets", four, six)
		}
		n.check(n.table.Remove(port))
		if four, six := sets(); four != 0 || six != 0 {
			t.Errorf("removed: %d and %d sets", four, six)
		}
	})
}
