package isolation

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/nft"
)

var (
	none     = &Direction{}
	link     = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")}
	everyone = prefixes("0.0.0.0/0", "::/0")
)

func prefixes(all ...string) (p []iprange.Range) {
	for _, s := range all {
		p = append(p, iprange.Of(netip.MustParsePrefix(s)))
	}
	return p
}

// pod is the addresses of one pod.
func pod(number byte) []iprange.Range {
	return []iprange.Range{{First: v4(number), Last: v4(number)}, {First: v6(number), Last: v6(number)}}
}

func allow(rules ...Rule) *Direction { return &Direction{Allow: rules} }

func tcp(first, last uint16) []Service { return []Service{{unix.IPPROTO_TCP, first, last}} }
func udp(port uint16) []Service        { return []Service{{unix.IPPROTO_UDP, port, port}} }

// What a port may have, and nothing else, in both families.
func TestConnections(t *testing.T) {
	type try struct {
		from, to int
		protocol string
		port     uint16
	}
	all := func(try) bool { return true }
	tests := []struct {
		name    string
		port    Port // p1
		allowed func(try) bool
	}{
		{"everything", Port{}, all},
		{"no ingress", Port{Ingress: none}, func(c try) bool { return c.to != 1 }},
		{"no egress", Port{Egress: none}, func(c try) bool { return c.from != 1 }},
		{"nothing", Port{Ingress: none, Egress: none}, func(c try) bool { return c.to != 1 && c.from != 1 }},
		{"all ingress", Port{Ingress: allow(Rule{Peers: everyone})}, all},
		{"ingress of a peer", Port{Ingress: allow(Rule{Peers: pod(2)})}, func(c try) bool { return c.to != 1 || c.from == 2 }},
		{"ingress of a network", Port{Ingress: allow(Rule{Peers: prefixes("10.0.0.2/31", "fd00::2/127")})}, func(c try) bool { return c.to != 1 || c.from == 2 || c.from == 3 }},
		{"ingress of a range", Port{Ingress: allow(Rule{Peers: []iprange.Range{{First: v4(2), Last: v4(3)}, {First: v6(2), Last: v6(3)}}})}, func(c try) bool { return c.to != 1 || c.from == 2 || c.from == 3 }},
		{"ingress of ports of few peers", Port{Ingress: allow(Rule{iprange.Union(append(pod(2), pod(3)...)), append(tcp(80, 80), tcp(81, 81)...)})}, func(c try) bool {
			return c.to != 1 || c.from != 254 && c.protocol == "tcp" && c.port <= 81
		}},
		{"ingress of a port", Port{Ingress: allow(Rule{everyone, tcp(80, 80)})}, func(c try) bool { return c.to != 1 || c.protocol == "tcp" && c.port == 80 }},
		{"ingress of ports", Port{Ingress: allow(Rule{everyone, tcp(79, 81)})}, func(c try) bool { return c.to != 1 || c.protocol == "tcp" && c.port <= 81 }},
		{"ingress of a protocol", Port{Ingress: allow(Rule{everyone, tcp(0, 65535)})}, func(c try) bool { return c.to != 1 || c.protocol == "tcp" }},
		{"rules add up", Port{Ingress: allow(Rule{pod(2), tcp(80, 80)}, Rule{pod(3), udp(80)}, Rule{pod(3), tcp(81, 81)})}, func(c try) bool {
			return c.to != 1 || c == try{2, 1, "tcp", 80} || c == try{3, 1, "udp", 80} || c == try{3, 1, "tcp", 81}
		}},
		{"egress to a peer", Port{Egress: allow(Rule{pod(2), tcp(80, 80)})}, func(c try) bool { return c.from != 1 || c == try{1, 2, "tcp", 80} }},
		{"egress to the host", Port{Egress: allow(Rule{pod(254), udp(80)})}, func(c try) bool { return c.from != 1 || c == try{1, 254, "udp", 80} }},
		{"both", Port{Ingress: allow(Rule{pod(2), nil}), Egress: allow(Rule{pod(3), nil})}, func(c try) bool {
			return (c.to != 1 || c.from == 2) && (c.from != 1 || c.to == 3)
		}},
	}
	inNetwork(t, func(n *network) {
		for _, number := range []int{1, 2, 3, 254} {
			for _, port := range []uint16{80, 81, 82} {
				n.serve(number, "tcp", port)
			}
			n.serve(number, "udp", 80)
		}
		n.open()
		for _, tt := range tests {
			tt.port.Interface, tt.port.Link = "p1", link
			n.check(n.table.Set(tt.port))
			for _, c := range []try{
				{2, 1, "tcp", 80}, {2, 1, "tcp", 82}, {2, 1, "udp", 80}, {3, 1, "tcp", 80}, {3, 1, "tcp", 81}, {3, 1, "udp", 80}, {254, 1, "tcp", 80},
				{1, 2, "tcp", 80}, {1, 2, "tcp", 81}, {1, 3, "udp", 80}, {1, 254, "udp", 80}, {1, 254, "tcp", 80}, {2, 3, "tcp", 80},
			} {
				n.connects(tt.name, c.from, c.to, c.protocol, c.port, tt.allowed(c))
			}
		}
		n.check(n.table.Remove(Port{Interface: "p1"}, Port{Interface: "p9"}))
		n.connects("removed", 2, 1, "tcp", 80, true)
	})
}

// An address of an interface has rules of its own; the interface's other addresses do not.
func TestAddress(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.in(1, func() { n.address("eth0", 11) })
		for _, number := range []int{1, 2, 3} {
			n.serve(number, "tcp", 80)
			n.serve(number, "udp", 80)
		}
		address := func(egress *Direction) []Port {
			p := Port{Interface: "p1", Link: link, Ingress: none, Egress: egress}
			p4, p6 := p, p
			p4.Address, p6.Address = v4(11), v6(11)
			return []Port{p4, p6}
		}
		n.open()
		n.check(n.table.Set(address(allow(Rule{pod(2), nil}))...))
		try := func(what string, two, three bool) {
			t.Helper()
			for _, protocol := range []string{"tcp", "udp"} {
				n.second = map[int]byte{1: 11}
				n.connects(what, 1, 2, protocol, 80, two)
				n.connects(what, 1, 3, protocol, 80, three)
				n.second = map[int]byte{1: 1} // the kernel may choose either
				n.connects(what+", another address", 1, 3, protocol, 80, true)
			}
			n.connects(what+", another address", 2, 1, "tcp", 80, true)
		}
		try("one peer", true, false)
		n.connects("to the address", 2, 11, "tcp", 80, false)
		n.second = map[int]byte{1: 11}
		c := n.dial(1, "tcp", netip.AddrPortFrom(v4(2), 80))
		if c == nil {
			t.Fatal("the peer does not connect")
		}
		defer c.Close()
		n.check(n.table.Set(address(none)...))
		if err := exchange(c, "isolated", patience); err != nil {
			t.Errorf("a connection ended with a change of the rules: %v", err)
		}
		try("no peer", false, false)
		left, err := Addresses()
		n.check(err)
		if want := map[string][]netip.Addr{"p1": {v4(11), v6(11)}}; !cmp.Equal(left, want, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
			t.Errorf("addresses with rules of their own: %v, want %v", left, want)
		}
		n.open(append(address(none), Port{Interface: "p2"})...)
		if err := exchange(c, "taken over", patience); err != nil {
			t.Errorf("a connection ended with another process: %v", err)
		}
		try("taken over", false, false)
		n.check(n.table.Remove(address(nil)...))
		try("removed", true, true)
		if rules := n.nft("", "list", "table", "bridge", "unnest-isolation"); strings.Contains(rules, `"p1" . 10.0.0.11`) {
			t.Errorf("connections of the address are left:\n%s", rules)
		}
	})
}

// Connections that exist stay when their port is isolated, when it is so again and when
// another process takes the filter over; new ones do not come up.
func TestEstablished(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.serve(1, "udp", 80)
		n.open(Port{Interface: "p1"})
		var open []net.Conn
		for _, a := range []netip.Addr{v4(1), v6(1)} {
			for _, protocol := range []string{"tcp", "udp"} {
				c := n.dial(2, protocol, netip.AddrPortFrom(a, 80))
				if c == nil {
					t.Fatalf("%s to %s does not connect", protocol, a)
				}
				defer c.Close()
				open = append(open, c)
			}
		}
		stay := func(what string) {
			t.Helper()
			for _, c := range open {
				if err := exchange(c, what, patience); err != nil {
					t.Errorf("%s: connection with %s: %v", what, c.RemoteAddr(), err)
				}
			}
			n.connects(what, 2, 1, "tcp", 80, false)
			n.connects(what, 2, 1, "udp", 80, false)
		}
		isolated := Port{Interface: "p1", Link: link, Ingress: none, Egress: none}
		n.check(n.table.Set(isolated))
		stay("isolated")
		n.check(n.table.Set(isolated, Port{Interface: "p3", Link: link, Ingress: none}))
		stay("isolated again")
		n.open(isolated)
		stay("taken over")
	})
}

// A port that is removed takes its connections with it: whoever has its name and address
// next does not get their packets.
func TestRemoveForgets(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "udp", 80)
		isolated := Port{Interface: "p1", Link: link, Ingress: allow(Rule{pod(2), nil}), Egress: none}
		n.open(isolated, Port{Interface: "p2"})
		c := n.dial(2, "udp", netip.AddrPortFrom(v4(1), 80))
		if c == nil {
			t.Fatal("does not connect")
		}
		defer c.Close()
		n.check(n.table.Remove(Port{Interface: "p1"}))
		for port, want := range map[string]int{"p1": 0, "p2": 1} {
			if got := len(n.known(port, "begun-egress4")) + len(n.known(port, "begun-ingress4")); got != want {
				t.Errorf("%d connections of %s are known after the removal of p1, want %d", got, port, want)
			}
		}
		n.check(n.table.Set(isolated))
		if got := n.known("p1", "begun-ingress4"); len(got) != 0 {
			t.Errorf("a port of the name has the connections: %v", got)
		}
	})
}

// A datagram in fragments passes where its first fragment may, with its answer.
func TestFragments(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "udp", 80)
		n.serve(1, "udp", 81)
		n.open(Port{Interface: "p1", Link: link, Ingress: allow(Rule{pod(2), udp(80)}), Egress: none})
		for _, a := range []netip.Addr{v4(1), v6(1)} {
			c := n.dial(2, "udp", netip.AddrPortFrom(a, 80))
			if c == nil {
				t.Fatalf("%s: does not connect", a)
			}
			defer c.Close()
			if err := exchange(c, strings.Repeat("x", 9000), patience); err != nil {
				t.Errorf("%s: datagram of 9,000 bytes: %v", a, err)
			}
		}
		n.connects("other port", 2, 1, "udp", 81, false)
	})
}

// Connections that end are forgotten soon; a new one between the same ports has to be
// allowed.
func TestEnd(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: allow(Rule{pod(2), nil}), Egress: none})
		c := n.dial(2, "tcp", netip.AddrPortFrom(v4(1), 80))
		if c == nil {
			t.Fatal("does not connect")
		}
		c.Close()
		for end := time.Now().Add(patience); len(n.known("p1", "closing-ingress4")) == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the connection is not closing")
			}
		}
		for _, e := range n.known("p1", "begun-ingress4") {
			if e.Expires > openingTime {
				t.Errorf("known for %s", e.Expires)
			}
		}
	})
}

// Many peers and ports fit into a change, and a set that no rule needs goes.
func TestManyPeers(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		var peers []iprange.Range
		for i := range 2000 { // with neighbours, and the first and the last address
			a4, a6 := netip.AddrFrom4([4]byte{10, 1, byte(i / 200), byte(i % 200)}), netip.AddrFrom16([16]byte{0xfd, 1, 14: byte(i / 200), 15: byte(i % 200)})
			peers = append(peers, iprange.Range{First: a4, Last: a4}, iprange.Range{First: a6, Last: a6})
		}
		peers = append(append(peers, pod(2)...), prefixes("0.0.0.0/32", "255.255.255.255/32", "::/128", "ffff::/16")...)
		peers = iprange.Union(peers)
		n.open()
		var ports []Port
		for i := range 100 {
			ports = append(ports, Port{Interface: fmt.Sprint("q", i), Ingress: allow(Rule{peers, tcp(80, 80)})})
		}
		n.check(n.table.Set(append(ports, Port{Interface: "p1", Link: link, Ingress: allow(Rule{peers, tcp(80, 80)})})...))
		n.connects("peer", 2, 1, "tcp", 80, true)
		n.connects("other", 3, 1, "tcp", 80, false)
		if got := strings.Count(n.nft("", "list", "sets", "bridge"), "set peers"); got != 2 {
			t.Errorf("%d sets of peers, want 2 that the ports share", got)
		}
		for i := range ports {
			ports[i].Ingress = nil
		}
		n.check(n.table.Set(append(ports, Port{Interface: "p1", Link: link, Ingress: allow(Rule{pod(3), nil})})...))
		n.connects("changed", 2, 1, "tcp", 80, false)
		n.connects("changed", 3, 1, "tcp", 80, true)
		if got := strings.Count(n.nft("", "list", "sets", "bridge"), "set peers"); got != 0 {
			t.Errorf("%d sets of peers after the change to one address of each family, want none", got)
		}
	})
}

// isolatedPort has a rule of every form.
var isolatedPort = Port{
	Interface: "p1", Link: link,
	Ingress: allow(Rule{iprange.Union(append(pod(2), prefixes("10.9.0.0/16", "fd09::/32")...)), append(tcp(80, 80), udp(80)...)}, Rule{everyone, append(tcp(90, 99), Service{unix.IPPROTO_SCTP, 0, 65535})}),
	Egress:  allow(Rule{pod(2), nil}, Rule{pod(3), nil}),
}

var (
	times = regexp.MustCompile(` (timeout|expires) \w+`)
	flow  = regexp.MustCompile(`^[0-9a-f:.]+ \. `)
)

// Rules that nft has saved and restored filter as before, and Open takes them over.
func TestRestore(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(isolatedPort)
		n.connects("set", 2, 1, "tcp", 80, true)
		n.connects("set", 3, 1, "tcp", 80, false)
		saved := n.nft("", "list", "ruleset")
		n.nft(saved, "-f", "-") // over the rules themselves: every rule twice
		n.connects("restored over itself", 2, 1, "tcp", 80, true)
		n.connects("restored over itself", 3, 1, "tcp", 80, false)
		n.nft("flush ruleset\n"+saved, "-f", "-")
		n.connects("restored", 2, 1, "tcp", 80, true)
		n.connects("restored", 3, 1, "tcp", 80, false)
		n.check(n.table.Set(isolatedPort))
		n.nft("flush ruleset\n"+saved, "-f", "-")
		if got, want := statements(n.nft("", "list", "ruleset")), statements(saved); !slices.Equal(got, want) {
			t.Errorf("restored rules differ: (-saved +restored)\n%s", cmp.Diff(want, got))
		}
		n.open(isolatedPort)
		n.connects("opened", 2, 1, "tcp", 80, true)
		n.connects("opened", 3, 1, "tcp", 80, false)
		n.nft("flush ruleset\n table bridge unnest-isolation { set egress { type ipv4_addr; }; }", "-f", "-")
		n.check(n.table.Set(isolatedPort))
		n.connects("replaced by others", 2, 1, "tcp", 80, true)
		n.connects("replaced by others", 3, 1, "tcp", 80, false)
		n.check(Drop())
		if left := n.nft("", "list", "ruleset"); strings.TrimSpace(left) != "" {
			t.Errorf("left after Drop:\n%s", left)
		}
		n.check(Drop())
	})
}

// statements returns the lines of rules without what changes: connections and their times,
// in the order of a hash.
func statements(ruleset string) (lines []string) {
	for line := range strings.Lines(ruleset) {
		line = times.ReplaceAllString(strings.TrimSpace(line), "")
		if !strings.HasPrefix(line, "elements") && !flow.MatchString(line) && !strings.HasPrefix(line, "packets") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Whatever others do to the filter, it is back, with its ports.
func TestWatch(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(isolatedPort)
		n.nft("insert rule bridge unnest-isolation always accept", "-f", "-") // for a start that shows
		ctx, stop := context.WithCancel(context.Background())
		restored, ended := make(chan nft.Generation, 10), make(chan error)
		go func() {
			ended <- n.table.Watch(ctx, func(g nft.Generation, err error) {
				if err != nil {
					t.Errorf("restore: %v", err)
				}
				restored <- g
			})
		}()
		always := func() string { return n.nft("", "list", "chain", "bridge", "unnest-isolation", "always") }
		for end := time.Now().Add(patience); strings.Contains(always(), "\t\taccept\n"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not restored at its start:\n%s", always())
			}
		}
		for what, script := range map[string]string{
			"flush ruleset":  "flush ruleset",
			"delete table":   "delete table bridge unnest-isolation",
			"flush chain":    "flush chain bridge unnest-isolation postrouting",
			"dormant":        "add table bridge unnest-isolation { flags dormant; }",
			"insert rule":    "insert rule bridge unnest-isolation always accept",
			"delete element": `delete element bridge unnest-isolation ingress { "p1" }`,
		} {
			n.nft(script, "-f", "-")
			select {
			case g := <-restored:
				if g.Process != "nft" {
					t.Errorf("%s: restored after a change by %q", what, g.Process)
				}
			case <-time.After(patience):
				t.Fatalf("%s: not restored", what)
			}
			n.connects(what, 2, 1, "tcp", 80, true)
			n.connects(what, 3, 1, "tcp", 80, false)
		}
		for range 5 {
			n.check(n.table.Set(isolatedPort, Port{Interface: "p3"}))
			n.check(n.table.Remove(Port{Interface: "p3"}))
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(restored) > 0 {
			t.Errorf("restored after a change of our own: %+v", <-restored)
		}
	})
}

// A connection attempt that a change allows comes up with the change, without another
// attempt of the client's program, and one that a change forbids does not.
func TestChange(t *testing.T) {
	inNetwork(t, func(n *network) {
		n.serve(1, "tcp", 80)
		n.open(Port{Interface: "p1", Link: link, Ingress: none})
		for i := range 20 {
			open := i%2 == 0
			port := Port{Interface: "p1", Link: link, Ingress: none}
			if open {
				port.Ingress = allow(Rule{pod(2), tcp(80, 80)})
			}
			n.check(n.table.Set(port))
			n.connects(fmt.Sprint("change ", i), 2, 1, "tcp", 80, open)
		}
	})
}
