package servicepath

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

func (w *world) addPaths() {
	w.t.Helper()
	w.in(w.guest, func() (err error) {
		if w.endsA, err = w.pathA.Add(w.a); err != nil {
			return err
		}
		_, err = w.pathB.Add(w.b)
		return err
	})
}

func (w *world) serveAll() {
	w.t.Helper()
	for _, f := range families {
		w.serve(w.a, "a", f.a)
		w.serve(w.b, "b", f.b)
		w.serve(w.remote, "remote", f.remote)
	}
}

func TestTraffic(t *testing.T) {
	w := newWorld(t)
	w.addPaths()
	w.serveAll()
	for _, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			for _, c := range []struct {
				name     string
				from     ns.NetNS
				to, port string
				want     string
			}{
				{"service in the guest keeps the pod's address", w.a, f.tob, "80", "b " + f.a},
				{"service elsewhere sees the guest", w.a, f.toRemote, "80", "remote " + f.guest},
				{"service of the pod itself", w.a, f.toSelf, "80", "a " + f.guest},
				{"no such service", w.a, f.none, "80", "connection refused"},
				{"host port keeps the client's address", w.client, f.guest, "80", "a " + f.client},
				{"host port from another pod", w.b, f.guest, "80", "a " + f.b},
				{"past the guest, from elsewhere", w.client, f.a, "8080", "a " + f.client},
				{"past the guest, from a pod", w.remote, f.a, "8080", "a " + f.remote},
				{"past the guest, to a pod", w.a, f.remote, "8080", "remote " + f.a},
				{"probe from the guest", w.guest, f.a, "8080", "a " + f.guest},
				{"service from the guest", w.guest, f.tob, "80", "b " + f.guest},
			} {
				if got := w.ask(c.from, network, c.to, c.port); got != c.want && !(c.want == "connection refused" && strings.Contains(got, c.want)) {
					t.Errorf("%s, %s: %s: got %q, want %q", f.name, network, c.name, got, c.want)
				}
			}
			seen := map[string]bool{}
			for range 30 {
				seen[w.ask(w.a, network, f.toAny, "80")] = true
			}
			if len(seen) != 2 || !seen["b "+f.a] || !seen["remote "+f.guest] {
				t.Errorf("%s, %s: service with two backends: got %v", f.name, network, seen)
			}
		}
	}
}

// Without the path neither services nor host ports work, with the rules of the chained
// plugin portmap too: the pod's answers bypass the guest. So brfusion refuses host ports
// then. Portmap's masqAll helps, as the pod then answers to the guest.
func TestTrafficWithoutPath(t *testing.T) {
	w := newWorld(t)
	w.serveAll()
	w.run(w.guest, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for _, f := range families {
		for _, network := range []string{"tcp", "udp"} {
			if got := w.askFor(2*time.Second, w.a, network, f.tob, "80"); got == "b "+f.a {
				t.Errorf("%s, %s: the pod reaches a service over its own NIC", f.name, network)
			}
			if got := w.askFor(2*time.Second, w.client, network, f.guest, "80"); strings.HasPrefix(got, "a ") {
				t.Errorf("%s, %s: the client reaches a host port", f.name, network)
			}
		}
		w.run(w.guest, f.iptables+" -w -t nat -A POSTROUTING -d "+f.a+" -j MASQUERADE")
		for _, network := range []string{"tcp", "udp"} {
			if got := w.ask(w.client, network, f.guest, "80"); got != "a "+f.guest {
				t.Errorf("%s, %s: masqueraded host port: got %q, want %q", f.name, network, got, "a "+f.guest)
			}
		}
	}
}

func TestCheckSeesDamage(t *testing.T) {
	w := newWorld(t)
	w.addPaths()
	if w.endsA.Pod.Name != "svc0" || w.endsA.Pod.MTU != 1400 || w.endsA.Guest.MTU != 1400 || len(w.endsA.Guest.HardwareAddr) != 6 {
		t.Errorf("ends are %+v", w.endsA)
	}
	check := func() (err error) {
		w.in(w.guest, func() error { err = w.pathA.Check(w.a); return nil })
		return err
	}
	link := w.endsA.Guest.Name
	for _, c := range []struct {
		in     ns.NetNS
		damage string
		want   string
	}{
		{w.guest, "ip link set " + link + " down", "is down"},
		{w.guest, "ip route del 10.201.1.1 dev " + link, "the route to 10.201.1.1/32"},
		{w.guest, "ip -6 neigh del fd00:201::1:1 dev " + link, "lacks the neighbour"},
		{w.guest, "nft flush ruleset", "table unnest-services"},
		{w.guest, "nft flush chain inet unnest-services forward", "has 0 rules"},
		{w.guest, "nft flush set inet unnest-services hairpins", "set of hairpins"},
		{w.guest, "ip link del " + link, "find veth"},
		{w.a, "ip addr flush dev svc0 scope link", "lacks the address 169.254.1.2/32"},
		{w.a, "ip route del 10.96.0.0/12", "the route to 10.96.0.0/12"},
		{w.a, "ip route flush table 30062", "the route to 0.0.0.0/0"},
		{w.a, "ip rule del priority 30000", "rule for answers"},
		{w.a, "ip -6 rule del priority 30000", "rule for answers"},
		{w.a, "nft delete table inet unnest-services", "in the pod: chain prerouting"},
	} {
		if err := check(); err != nil {
			t.Fatalf("before %s: %v", c.damage, err)
		}
		w.run(c.in, c.damage)
		if err := check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.damage, err, c.want)
		}
		w.addPaths() // repairs it
	}
}

// state lists everything that belongs to paths in a namespace.
func (w *world) state(n ns.NetNS) (s []string) {
	w.t.Helper()
	w.in(n, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Attrs().Name == podEnd || strings.HasPrefix(l.Attrs().Name, guestPrefix) {
				s = append(s, "link "+l.Attrs().Name)
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rules, ruleErr := netlink.RuleList(family)
			for _, r := range rules {
				if r.Table == answers {
					s = append(s, "rule")
				}
			}
			routes, routeErr := netlink.RouteListFiltered(family, &netlink.Route{Table: answers}, netlink.RT_FILTER_TABLE)
			for range routes {
				s = append(s, "route of the table")
			}
			err = errors.Join(err, ruleErr, routeErr)
		}
		pairs, listErr := listHairpins()
		for _, p := range pairs {
			s = append(s, "hairpin "+p)
		}
		return errors.Join(err, listErr)
	})
	return s
}

func (w *world) wantState(where string, n ns.NetNS, want ...string) {
	w.t.Helper()
	if got := w.state(n); !slices.Equal(got, want) {
		w.t.Errorf("%s has %q, want %q", where, got, want)
	}
}

func TestDel(t *testing.T) {
	w := newWorld(t)
	del := func(o Owner, pod ns.NetNS) { w.in(w.guest, func() error { return Del(o, pod) }) }
	del(w.pathA.Owner, w.a) // there is no path
	w.addPaths()
	b := w.pathB.Owner.guestEnd()
	for range 2 {
		del(w.pathA.Owner, w.a)
		w.wantState("pod", w.a)
		w.wantState("guest", w.guest, "link "+b, "hairpin "+b)
	}
	del(Owner{"net", "b", "eth1"}, w.b) // another attachment of the pod, without a path
	w.in(w.guest, func() error { return w.pathB.Check(w.b) })
	del(w.pathB.Owner, nil)
	w.wantState("guest", w.guest)
}

func TestReap(t *testing.T) {
	w := newWorld(t)
	reap := func(network string, valid ...string) {
		w.in(w.guest, func() error {
			return Reap(network, func(o Owner) bool { return slices.Contains(valid, o.Container) })
		})
	}
	reap("net") // there is no path
	w.addPaths()
	a, b := w.pathA.Owner.guestEnd(), w.pathB.Owner.guestEnd()
	reap("other")
	reap("net", "a", "b")
	if got := w.state(w.guest); len(got) != 4 {
		t.Errorf("reaped a valid path: left %v", got)
	}
	w.run(w.guest, "ip link del "+a) // as if the pod's namespace had ended
	reap("net", "a", "b")
	w.wantState("guest", w.guest, "link "+b, "hairpin "+b)
	reap("net", "a")
	w.wantState("guest", w.guest)
	w.in(w.guest, func() error {
		if err := checkChains(guestChains(table(), hairpins(table()))); err == nil {
			t.Error("the guest's table is still there")
		}
		return nil
	})
}

func TestAddThatFailsLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.in(w.guest, func() error {
		other := w.pathA
		other.Owner.Interface = "eth1"
		if _, err := w.pathA.Add(w.a); err != nil {
			return err
		}
		if _, err := other.Add(w.a); !errors.Is(err, ErrOtherPath) {
			t.Errorf("second path of a pod: got %v", err)
		}
		if err := w.pathA.Check(w.a); err != nil {
			t.Errorf("the first was changed: %v", err)
		}
		foreign := w.pathB
		foreign.Addresses = []netip.Addr{netip.MustParseAddr("192.0.2.1")} // not the pod's: no source for a route
		if _, err := foreign.Add(w.b); err == nil || !strings.Contains(err.Error(), "in the pod: set route to 10.96.0.0/12") {
			t.Errorf("foreign address: got %v", err)
		}
		return nil
	})
	a := w.pathA.Owner.guestEnd()
	w.wantState("guest", w.guest, "link "+a, "hairpin "+a)
	w.wantState("pod", w.b)
}
