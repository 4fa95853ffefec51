package antispoof

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// nft runs the program nft with a script.
func (n *network) nft(script string, args ...string) string {
	n.t.Helper()
	c := exec.Command("nft", args...)
	c.Stdin = strings.NewReader(script)
	out, err := c.CombinedOutput()
	if err != nil {
		n.t.Fatalf("nft %s: %v\n%s%s", strings.Join(args, " "), err, out, script)
	}
	return string(out)
}

func (n *network) save() string {
	n.t.Helper()
	return n.nft("", "list", "ruleset")
}

func (n *network) restore(saved string) {
	n.t.Helper()
	n.nft("flush ruleset\n"+saved, "-f", "-")
}

var (
	own1    = ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", datagram(1, 2)))
	forged1 = ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.9", "10.0.0.2", datagram(1, 2)))
)

// passes checks that p1 may send its own frames or not, and no forged ones.
func (n *network) passes(what string, own bool) {
	n.t.Helper()
	if sent := n.send("g1", forged1); n.arrives("g2", sent, 100*time.Millisecond) {
		n.t.Errorf("%s: a forged frame arrives", what)
	}
	limit := 100 * time.Millisecond
	if own {
		limit = patience
	}
	if sent := n.send("g1", own1); n.arrives("g2", sent, limit) != own {
		n.t.Errorf("%s: the port's own frame arrives: %t, want %t", what, !own, own)
	}
}

var expires = regexp.MustCompile(` expires \w+`)

// Rules that nft has saved and restored filter as before, and Open takes them over with
// ports and counts.
func TestRestore(t *testing.T) {
	inNetwork(t, func(n *network) {
		port := Port{"p1", mac1, addrs("10.0.0.1", "fd00::1"), true, 0}
		table := open(n)
		n.check(table.Set(port))
		before := n.drops(table)
		n.send("g1", forged1)
		if got := n.dropsFor(table, before); got != "ipv4" {
			t.Errorf("dropped for %q, want ipv4", got)
		}
		saved, drops := n.save(), n.drops(table)
		n.nft(saved, "-f", "-") // over the rules themselves: every rule twice
		n.passes("restored over itself", true)
		n.check(table.Set(port))
		for _, again := range []bool{false, true} {
			n.restore(saved)
			if again {
				n.nft(saved, "-f", "-")
			} else if got, saved := expires.ReplaceAllString(n.save(), ""), expires.ReplaceAllString(saved, ""); got != saved {
				t.Errorf("restored rules differ: (-saved +restored)\n%s", cmp.Diff(saved, got))
			}
			wantPorts(n, table, []Port{port})
			if got := n.drops(table); !again && !cmp.Equal(got, drops) {
				t.Errorf("restored drops are %v, want %v", got, drops)
			}
			n.passes("restored", true)
			next := open(n)
			wantPorts(n, next, []Port{port})
			n.passes("restored and opened", true)
			n.check(next.Set(port))
			n.check(next.Remove("p1"))
			if sent := n.send("g1", forged1); !n.arrives("g2", sent, patience) {
				t.Error("removed: a port that is not guarded cannot send")
			}
		}
	})
}

// Open replaces whatever has the name of its tables, and keeps the ports that it can read.
func TestTakeOver(t *testing.T) {
	reasons := strings.Fields("arp control dhcp ethertype flood fragment ipv4 ipv6 mac neighbour router unbridged vlan")
	tests := []struct {
		name   string
		rules  func(*network) // what is there
		passes bool           // of p1's own frames
		drops  uint64         // for "mac"
	}{
		{"an earlier daemon's", func(n *network) {
			c, err := nftables.New()
			n.check(err)
			c.AddTable(bridgeTable)
			for _, s := range []*nftables.Set{ports, macs, v4} {
				n.check(c.AddSet(s, nil))
			}
			for _, e := range (Port{"p1", mac1, addrs("10.0.0.1"), false, 0}).elements() {
				if slices.Contains([]*nftables.Set{ports, macs, v4}, e.set) {
					n.check(c.SetAddElements(e.set, []nftables.SetElement{{Key: []byte(e.key)}}))
				}
			}
			for _, name := range []string{"mac", "vlan", "arp"} {
				c.AddObj(&nftables.CounterObj{Table: bridgeTable, Name: name, Packets: 7, Bytes: 700})
			}
			old := c.AddChain(&nftables.Chain{Table: bridgeTable, Name: "arp"})
			c.AddRule(&nftables.Rule{Table: bridgeTable, Chain: old, Exprs: nft.Accept()})
			n.check(c.Flush())
		}, true, 7},
		{"other types and hooks", func(n *network) {
			n.nft(`table bridge unnest-antispoof {
				set ports { type ifname; flags timeout; elements = { "p1" } }
				set macs { type ifname . ether_addr; flags interval; elements = { "p1" . 02:00:00:00:00:01 } }
				set v4 { type ifname . ipv4_addr . inet_service; elements = { "p1" . 10.0.0.1 . 80 } }
				set v6 { type ipv6_addr; elements = { fd00::1 } }
				map dhcp { type ifname : verdict; elements = { "p9" : accept } }
				quota drop-mac { 10 mbytes }
				chain prerouting { type filter hook output priority 5; policy drop; }
				chain input { type filter hook input priority -300; policy accept; accept; }
			}
			table inet unnest-antispoof {
				flags dormant
				set ports { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 } }
				chain prerouting { type filter hook output priority 5; }
			}
			table arp unnest-antispoof { set ports { type ifname; size 2; elements = { "p1" } }; }`, "-f", "-")
		}, false, 0},
		{"a port without MAC", func(n *network) {
			n.nft(`table bridge unnest-antispoof { set ports { type ifname; elements = { "p1" } }; }`, "-f", "-")
		}, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inNetwork(t, func(n *network) {
				n.t = t
				tt.rules(n)
				table := open(n)
				drops := n.drops(table)
				if drops["mac"] != tt.drops {
					t.Errorf("%d frames dropped for mac, want %d", drops["mac"], tt.drops)
				}
				var got []string
				for reason := range drops {
					got = append(got, reason)
				}
				if slices.Sort(got); !slices.Equal(got, reasons) {
					t.Errorf("reasons are %v, want %v", got, reasons)
				}
				n.passes("taken over", tt.passes)
				n.check(table.Set(Port{"p1", mac1, addrs("10.0.0.1"), false, 0}))
				n.passes("set", true)
				n.restore(n.save())
				n.passes("restored", true)
			})
		})
	}
}

// When someone replaces the tables while they are in use, the next change rebuilds them.
func TestReplacedWhileOpen(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		port := Port{"p1", mac1, addrs("10.0.0.1"), false, 0}
		n.check(table.Set(port))
		n.restore(`table bridge unnest-antispoof { set ports { type ipv4_addr; }; set macs { type ifname; }; }`)
		n.check(table.Set(port))
		n.passes("set", true)
	})
}
