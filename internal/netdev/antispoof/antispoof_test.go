package antispoof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
)

const (
	linkLocal1 = "fe80::ff:fe00:1" // of mac1
	all6       = "ff02::1"
	solicited1 = "ff02::1:ff00:1"
)

func addrs(all ...string) (parsed []netip.Addr) {
	for _, a := range all {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return parsed
}

func open(n *network) *Table {
	n.t.Helper()
	t, err := Open()
	n.check(err)
	n.t.Cleanup(func() { t.Close() })
	return t
}

// A guest sends each frame from its port p1 to all. It arrives, or is dropped for the
// given reason. From p3, which is not guarded, it always arrives.
func TestFrames(t *testing.T) {
	full := Port{"p1", mac1, addrs("10.0.0.1", "fd00::1"), false, 0}
	silent := Port{"p1", mac1, nil, false, 0}
	asking := Port{"p1", mac1, nil, true, 0}
	leased := Port{"p1", mac1, addrs("10.0.0.1"), true, 0}

	arpFrame := func(payload []byte) []byte { return ether(broadcast, mac1, unix.ETH_P_ARP, payload) }
	ip4 := func(payload []byte) []byte { return ether(broadcast, mac1, unix.ETH_P_IP, payload) }
	ip6 := func(payload []byte) []byte { return ether(broadcast, mac1, unix.ETH_P_IPV6, payload) }
	udp4 := func(from, to string, source, destination uint16) []byte {
		return ip4(ipv4(unix.IPPROTO_UDP, from, to, datagram(source, destination)))
	}
	udp6 := func(from, to string, source, destination uint16) []byte {
		return ip6(ipv6(unix.IPPROTO_UDP, from, to, datagram(source, destination)))
	}
	icmp := func(kind byte, from, to, target string) []byte {
		return ip6(ipv6(unix.IPPROTO_ICMPV6, from, to, icmp6(kind, target)))
	}
	options := func(next byte, rest []byte) []byte { return append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, rest...) }
	fragment := func(size, padding int) []byte {
		packet := fragment4(ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", append(datagram(1000, 2000), make([]byte, size-32)...)))
		return ip4(append(packet, make([]byte, padding-4)...)) // send adds 4 bytes
	}
	fragment6 := func(size, padding int, last byte) []byte {
		packet := ipv6(unix.IPPROTO_FRAGMENT, "fd00::1", "fd00::2", append([]byte{unix.IPPROTO_UDP, 0, last, 1 - last, 0, 0, 0, 7}, make([]byte, size-48)...))
		return ip6(append(packet, make([]byte, padding-4)...))
	}
	own4, own6 := udp4("10.0.0.1", "10.0.0.2", 1000, 2000), udp6("fd00::1", "fd00::2", 1000, 2000)

	tests := []struct {
		name   string
		port   Port
		frame  []byte
		reason string // empty: passes
	}{
		{"IPv4", full, own4, ""},
		{"IPv4 from another MAC", full, ether(broadcast, forged, unix.ETH_P_IP, own4[14:]), "mac"},
		{"IPv4 from a neighbour's MAC", full, ether(broadcast, mac2, unix.ETH_P_IP, own4[14:]), "mac"},
		{"IPv4 from another address", full, udp4("10.0.0.9", "10.0.0.2", 1000, 2000), "ipv4"},
		{"IPv4 from a neighbour's address", full, udp4("10.0.0.2", "10.0.0.3", 1000, 2000), "ipv4"},
		{"IPv4 from nothing", full, udp4("0.0.0.0", "10.0.0.2", 1000, 2000), "ipv4"},
		{"invalid IPv4", full, ip4(append([]byte{0x4f, 0, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0}, 10, 0, 0, 1, 10, 0, 0, 2)), "ipv4"},
		{"IPv4 without leave", silent, own4, "ipv4"},
		{"IPv4 with a lease", leased, own4, ""},

		{"802.1Q", full, tagged(unix.ETH_P_8021Q, own4), "vlan"},
		{"802.1ad", full, tagged(unix.ETH_P_8021AD, own4), "vlan"},
		{"802.1Q in 802.1Q", full, tagged(unix.ETH_P_8021Q, tagged(unix.ETH_P_8021Q, own4)), "vlan"},
		{"802.1Q, forged", full, tagged(unix.ETH_P_8021Q, ether(broadcast, forged, unix.ETH_P_IP, own4[14:])), "mac"},
		{"PPPoE discovery", full, ether(broadcast, mac1, unix.ETH_P_PPP_DISC, make([]byte, 50)), "ethertype"},
		{"LLDP to all", full, ether(broadcast, mac1, 0x88cc, make([]byte, 50)), "ethertype"},
		{"spanning tree", full, ether(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, mac1, 38, append([]byte{0x42, 0x42, 3}, make([]byte, 35)...)), "ethertype"},
		{"local experiment", full, ether(broadcast, mac1, 0x88b5, make([]byte, 50)), "ethertype"},

		{"ARP request", full, arpFrame(arp(1, mac1, "10.0.0.1", "10.0.0.2")), ""},
		{"ARP reply", full, arpFrame(arp(2, mac1, "10.0.0.1", "10.0.0.2")), ""},
		{"ARP announcement", full, arpFrame(arp(1, mac1, "10.0.0.1", "10.0.0.1")), ""},
		{"ARP for a neighbour", full, arpFrame(arp(2, mac1, "10.0.0.2", "10.0.0.3")), "arp"},
		{"ARP with another MAC inside", full, arpFrame(arp(2, forged, "10.0.0.1", "10.0.0.2")), "arp"},
		{"ARP probe", full, arpFrame(arp(1, mac1, "0.0.0.0", "10.0.0.1")), ""},
		{"ARP probe for another's", full, arpFrame(arp(1, mac1, "0.0.0.0", "10.0.0.2")), "arp"},
		{"ARP of other kind", full, arpFrame(append([]byte{0, 6}, arp(1, mac1, "10.0.0.1", "10.0.0.2")[2:]...)), "arp"},
		{"ARP without leave", silent, arpFrame(arp(1, mac1, "10.0.0.1", "10.0.0.2")), "arp"},
		{"ARP probe without leave", silent, arpFrame(arp(1, mac1, "0.0.0.0", "10.0.0.1")), "arp"},
		{"ARP probe of an offered address", asking, arpFrame(arp(1, mac1, "0.0.0.0", "10.0.0.7")), ""},
		{"ARP of an offered address", asking, arpFrame(arp(1, mac1, "10.0.0.7", "10.0.0.2")), "arp"},

		{"DHCP discover", asking, udp4("0.0.0.0", "255.255.255.255", 68, 67), ""},
		{"DHCP discover, leased", leased, udp4("0.0.0.0", "255.255.255.255", 68, 67), ""},
		{"DHCP renewal", leased, udp4("10.0.0.1", "10.0.0.2", 68, 67), ""},
		{"DHCP discover to one", asking, udp4("0.0.0.0", "10.0.0.2", 68, 67), "ipv4"},
		{"from nothing to another port", asking, udp4("0.0.0.0", "255.255.255.255", 68, 69), "ipv4"},
		{"DHCP discover without leave", full, udp4("0.0.0.0", "255.255.255.255", 68, 67), "ipv4"},
		{"DHCP offer", full, udp4("10.0.0.1", "255.255.255.255", 67, 68), "dhcp"},
		{"DHCP offer from another port", leased, udp4("10.0.0.1", "10.0.0.2", 1000, 68), "dhcp"},
		{"TCP to port 68", full, ip4(ipv4(unix.IPPROTO_TCP, "10.0.0.1", "10.0.0.2", append(datagram(67, 68), make([]byte, 12)...))), ""},
		{"DHCPv6 solicit", asking, udp6(linkLocal1, "ff02::1:2", 546, 547), ""},
		{"DHCPv6 reply", full, udp6(linkLocal1, "fe80::2", 547, 546), "dhcp"},

		{"IPv6", full, own6, ""},
		{"IPv6 from the link-local address", full, udp6(linkLocal1, all6, 1000, 2000), ""},
		{"IPv6 from another link-local address", full, udp6("fe80::ff:fe00:2", all6, 1000, 2000), "ipv6"},
		{"IPv6 from another address", full, udp6("fd00::9", "fd00::2", 1000, 2000), "ipv6"},
		{"IPv6 from nothing", full, udp6("::", all6, 1000, 2000), "ipv6"},
		{"IPv6 without leave", silent, own6, "ipv6"},
		{"IPv6 link-local without leave", silent, udp6(linkLocal1, all6, 1000, 2000), "ipv6"},
		{"echo request", full, icmp(128, "fd00::1", "fd00::2", "::"), ""},
		{"router solicitation", full, icmp(133, linkLocal1, "ff02::2", "::"), ""},
		{"router advertisement", full, icmp(134, linkLocal1, all6, "::"), "router"},
		{"router advertisement behind options", full, ip6(ipv6(unix.IPPROTO_DSTOPTS, linkLocal1, all6, options(unix.IPPROTO_ICMPV6, icmp6(134, "::")))), "router"},
		{"header chain without an end", full, ip6(ipv6(unix.IPPROTO_DSTOPTS, linkLocal1, all6, []byte{unix.IPPROTO_DSTOPTS, 200, 0, 0})), "ipv6"},
		{"second fragment", full, ip6(ipv6(unix.IPPROTO_FRAGMENT, "fd00::1", "fd00::2", append([]byte{unix.IPPROTO_UDP, 0, 1, 0, 0, 0, 0, 7}, "the rest"...))), ""},
		{"fragment without a type", full, ip6(ipv6(unix.IPPROTO_FRAGMENT, linkLocal1, all6, []byte{unix.IPPROTO_ICMPV6, 0, 0, 1, 0, 0, 0, 7})), "fragment"},
		{"fragment with options and no type", full, ip6(ipv6(unix.IPPROTO_FRAGMENT, linkLocal1, all6, append([]byte{unix.IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 7, unix.IPPROTO_ICMPV6, 3, 1, 28}, make([]byte, 28)...))), "fragment"},
		{"fragment without ports", full, ip4(fragment4(ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", nil))), "fragment"},
		{"first fragment", full, ip4(fragment4(ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", append(datagram(1000, 2000), make([]byte, 484)...)))), ""},
		{"fragment of 1,500 bytes", full, fragment(1496, 4), ""},
		{"fragment padded to 1,500 bytes", full, fragment(100, 1400), ""},
		{"fragment padded beyond", full, fragment(1500, 4), "fragment"},
		{"fragment of 9,216 bytes", full, fragment(9212, 4), ""},
		{"fragment padded to 9,216 bytes", full, fragment(8000, 1216), "fragment"},
		{"longer fragment", full, fragment(9213, 4), "fragment"},
		{"longer packet", full, ip4(ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", append(datagram(1000, 2000), make([]byte, 15000)...))), ""},
		{"IPv6 fragment of 1,500 bytes", full, fragment6(1496, 4, 0), ""},
		{"IPv6 fragment padded beyond", full, fragment6(1500, 4, 0), "fragment"},
		{"last IPv6 fragment padded beyond", full, fragment6(100, 1401, 1), "fragment"},
		{"IPv6 fragment of 9,216 bytes", full, fragment6(9212, 4, 0), ""},
		{"longer IPv6 fragment", full, fragment6(9213, 4, 0), "fragment"},
		{"last IPv6 fragment, longer", full, fragment6(9213, 4, 1), "fragment"},
		{"longer IPv6 packet", full, ip6(ipv6(unix.IPPROTO_UDP, "fd00::1", "fd00::2", append(datagram(1000, 2000), make([]byte, 15000)...))), ""},
		{"IGMP query", full, ip4(ipv4(unix.IPPROTO_IGMP, "10.0.0.1", "224.0.0.1", []byte{0x11, 1, 0, 0, 0, 0, 0, 0})), "router"},
		{"IGMP report", full, ip4(ipv4(unix.IPPROTO_IGMP, "10.0.0.1", "224.0.0.22", []byte{0x22, 0, 0, 0, 0, 0, 0, 0})), ""},
		{"listener query", full, icmp(130, linkLocal1, all6, "::"), "router"},
		{"listener report", full, icmp(143, linkLocal1, "ff02::16", "::"), ""},
		{"redirect", full, icmp(137, linkLocal1, all6, "fd00::1"), "router"},
		{"neighbour solicitation", full, icmp(135, "fd00::1", "ff02::1:ff00:2", "fd00::2"), ""},
		{"neighbour advertisement", full, icmp(136, "fd00::1", all6, "fd00::1"), ""},
		{"neighbour advertisement, link-local", full, icmp(136, linkLocal1, all6, linkLocal1), ""},
		{"neighbour advertisement for another", full, icmp(136, "fd00::1", all6, "fd00::2"), "neighbour"},
		{"neighbour advertisement from another", full, icmp(136, "fd00::2", all6, "fd00::2"), "ipv6"},
		{"detection of a duplicate", full, icmp(135, "::", solicited1, "fd00::1"), ""},
		{"detection for another's address", full, icmp(135, "::", "ff02::1:ff00:2", "fd00::2"), "ipv6"},
		{"detection sent to one", full, icmp(135, "::", "fd00::2", "fd00::1"), "ipv6"},
		{"detection without leave", silent, icmp(135, "::", solicited1, "fd00::1"), "ipv6"},
		{"listener report from nothing", full, icmp(143, "::", "ff02::16", "::"), ""},
		{"neighbour advertisement from nothing", full, icmp(136, "::", all6, "fd00::2"), "neighbour"},
	}
	inNetwork(t, func(n *network) {
		table := open(n)
		n.check(table.Set(Port{"p2", mac2, addrs("10.0.0.2", "fd00::2"), false, 0}))
		for i, tt := range slices.Concat(tests, tests) {
			if i == len(tests) { // again, with the rules as nft restores them
				n.restore(n.save())
			}
			if i >= len(tests) {
				tt.name += ", restored"
			}
			n.check(table.Set(tt.port))
			before := n.drops(table)
			sent := n.send("g1", tt.frame)
			if tt.reason == "" {
				if !n.arrives("g2", sent, patience) {
					t.Errorf("%s: does not arrive", tt.name)
				}
				if got := n.drops(table); !cmp.Equal(got, before) {
					t.Errorf("%s: passes, but drops are %v", tt.name, got)
				}
			} else {
				if got := n.dropsFor(table, before); got != tt.reason {
					t.Errorf("%s: dropped for %q, want %q", tt.name, got, tt.reason)
				}
				if n.arrives("g2", sent, 25*time.Millisecond) {
					t.Errorf("%s: arrives", tt.name)
				}
			}
			if sent := n.send("g3", tt.frame); !n.arrives("g2", sent, patience) {
				t.Errorf("%s: does not arrive from a port that is not guarded", tt.name)
			}
		}
	})
}

// A guest says how much of a frame is headers. The kernel puts no more than that into the first piece of a frame of 4 KB or more. The rules find the
// header of IPv6 even where it is in another piece.
func TestAttackHeadersApart(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		n.check(table.Set(Port{"t1", mac1, addrs("fd00::1"), false, 0}))
		guest, err := tap.Open(tap.Device{Name: "t1", Bridge: "br0", MTU: 9216})
		n.check(err)
		defer guest.Close()
		for _, restored := range []bool{false, true} {
			if restored {
				n.restore(n.save())
			}
			for size := 3900; size < 8000; size += 1000 {
				for name, c := range map[string]struct {
					packet []byte
					reason string
				}{
					"router advertisement":    {ipv6(unix.IPPROTO_ICMPV6, linkLocal1, all6, append(icmp6(routerAdvertisement, "::"), make([]byte, size)...)), "router"},
					"fragment without a type": {ipv6(unix.IPPROTO_FRAGMENT, "fd00::1", all6, append([]byte{unix.IPPROTO_DSTOPTS, 0, 0, 1, 0, 0, 0, 7}, make([]byte, size)...)), "fragment"},
					"echo request":            {ipv6(unix.IPPROTO_ICMPV6, "fd00::1", all6, append(icmp6(128, "::"), make([]byte, size)...)), ""},
				} {
					before, frame := n.drops(table), ether(broadcast, mac1, unix.ETH_P_IPV6, c.packet)
					header := make([]byte, vnetHeader)
					binary.NativeEndian.PutUint16(header[2:], 14)
					_, err := guest.Write(slices.Concat(header, frame))
					n.check(err)
					if c.reason == "" {
						if !n.arrives("g2", frame, patience) {
							t.Errorf("%s of %d bytes: does not arrive", name, size)
						}
					} else if got := n.dropsFor(table, before); got != c.reason {
						t.Errorf("%s of %d bytes: dropped for %q, want %q", name, size, got, c.reason)
					}
				}
			}
		}
	})
}

// The bridge receives frames to itself before prerouting. It must not learn their source.
func TestControlFrame(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		frame := ether(net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 3}, forged, unix.ETH_P_PAE, make([]byte, 50))
		learnt := func() bool {
			entries, err := netlink.NeighList(0, unix.AF_BRIDGE)
			n.check(err)
			return slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return e.HardwareAddr.String() == forged.String() })
		}
		n.check(table.Set(Port{"p1", mac1, addrs("10.0.0.1"), false, 0}))
		before := n.drops(table)
		n.send("g1", frame)
		if got := n.dropsFor(table, before); got != "control" {
			t.Errorf("dropped for %q, want control", got)
		}
		if learnt() {
			t.Error("the bridge has learnt a forged address")
		}
		n.check(table.Remove("p1"))
		n.send("g1", frame)
		for end := time.Now().Add(patience); !learnt(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the bridge does not learn an unguarded port's address: the test shows nothing")
			}
		}
	})
}

// The host receives frames over the bridge, but not from a guarded port without a bridge.
func TestHost(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		for _, link := range []struct{ name, address string }{{"br0", "10.0.0.254/24"}, {"p4", "10.0.4.254/24"}} {
			l, err := netlink.LinkByName(link.name)
			n.check(err)
			address, err := netlink.ParseAddr(link.address)
			n.check(err)
			n.check(netlink.AddrAdd(l, address))
		}
		n.check(os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0))
		conn, err := net.ListenPacket("udp4", ":4000")
		n.check(err)
		defer conn.Close()
		reaches := func(guest, from, to string, limit time.Duration) bool {
			n.send(guest, ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, from, to, datagram(1000, 4000))))
			n.check(conn.SetReadDeadline(time.Now().Add(limit)))
			_, _, err := conn.ReadFrom(make([]byte, 100))
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				n.check(err)
			}
			return err == nil
		}
		guard := func(on bool) {
			for _, p := range []Port{{"p1", mac1, addrs("10.0.0.1"), false, 0}, {"p4", mac1, addrs("10.0.4.1"), false, 0}} {
				if on {
					n.check(table.Set(p))
				} else {
					n.check(table.Remove(p.Interface))
				}
			}
		}
		for _, call := range []string{"0", "1"} {
			n.check(os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte(call), 0))
			guard(true)
			if !reaches("g1", "10.0.0.1", "10.0.0.254", patience) {
				t.Errorf("bridge-nf-call-iptables=%s: a guarded port on the bridge cannot reach the host", call)
			}
			before := n.drops(table)
			if reaches("g4", "10.0.4.1", "10.0.4.254", 200*time.Millisecond) {
				t.Errorf("bridge-nf-call-iptables=%s: a guarded port on no bridge reaches the host", call)
			}
			if got := n.dropsFor(table, before); got != "unbridged" {
				t.Errorf("dropped for %q, want unbridged", got)
			}
			guard(false)
			if !reaches("g4", "10.0.4.1", "10.0.4.254", patience) {
				t.Errorf("bridge-nf-call-iptables=%s: a port that is not guarded does not reach the host", call)
			}
		}
		guard(true)
		before := n.drops(table)
		n.send("g4", ether(broadcast, mac1, unix.ETH_P_ARP, arp(1, mac1, "10.0.4.1", "10.0.4.254")))
		if got := n.dropsFor(table, before); got != "unbridged" {
			t.Errorf("ARP is dropped for %q, want unbridged", got)
		}
	})
}

func somePorts(count int) []Port {
	var all []Port
	for i := range count {
		all = append(all, Port{
			Interface: fmt.Sprintf("tap%04d", i), MAC: net.HardwareAddr{2, 1, 0, 0, byte(i >> 8), byte(i)},
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0xfd, 14: byte(i >> 8), 15: byte(i)})},
			DHCP:      i%2 == 0,
		})
	}
	return all
}

func wantPorts(n *network, t *Table, want []Port) {
	n.t.Helper()
	got, err := t.Ports()
	n.check(err)
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		n.t.Errorf("ports: (-want +got)\n%s", diff)
	}
}

// One port is known without a look at those of all others, which would hold a tenant's changes up as often as another one checks: also when the
// kernel cannot be asked.
func TestAttackManyChecks(t *testing.T) {
	inNetwork(t, func(n *network) {
		table, want := open(n), somePorts(2)
		n.check(table.Reset(want))
		n.check(table.ns.Close())
		if got, err := table.Port("tap0001"); err != nil || !slices.Equal(got.Addresses, want[1].Addresses) {
			t.Errorf("got %v, %v, want %v", got, err, want[1])
		}
		if got, err := table.Port("tap0002"); err == nil {
			t.Errorf("got %v, want none", got)
		}
	})
}

// A thousand ports, set concurrently from threads outside the namespace, are all in the
// kernel, also after the table is opened again.
func TestManyPorts(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		all := somePorts(1000)
		var wait sync.WaitGroup
		for part := range slices.Chunk(all, 125) {
			wait.Go(func() {
				for _, p := range part {
					for _, p := range []Port{{p.Interface, mac2, addrs("10.9.9.9"), !p.DHCP, 0}, p} {
						if err := table.Set(p); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wait.Wait()
		wantPorts(n, table, all)
		wantPorts(n, open(n), all)
		n.check(table.Reset(all[:3]))
		wantPorts(n, table, all[:3])
		n.check(table.Reset(all))
		wantPorts(n, table, all)
		own := Port{"p1", mac1, addrs("10.0.0.1"), false, 0}
		start := time.Now()
		n.check(table.Set(own))
		t.Logf("Set with 1000 other ports: %v", time.Since(start))
		if sent := n.send("g1", ether(broadcast, mac1, unix.ETH_P_IP, ipv4(17, "10.0.0.1", "10.0.0.2", datagram(1, 2)))); !n.arrives("g2", sent, patience) {
			t.Error("the port's own frame does not arrive")
		}
		before := n.drops(table)
		n.send("g1", ether(broadcast, mac1, unix.ETH_P_IP, ipv4(17, "10.1.0.1", "10.0.0.2", datagram(1, 2))))
		if got := n.dropsFor(table, before); got != "ipv4" {
			t.Errorf("another port's address is dropped for %q", got)
		}
	})
}

// While the table is rebuilt and ports change, no forged frame passes and no valid frame
// is lost.
func TestAtomic(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		own := Port{"p1", mac1, addrs("10.0.0.1", "fd00::1"), false, -1}
		n.check(table.Set(own))
		const enough = 20
		var changes atomic.Int32
		var wait sync.WaitGroup
		defer wait.Wait()
		wait.Go(func() {
			for ; changes.Load() < enough; changes.Add(1) {
				if err := errors.Join(table.Reset([]Port{own}), table.Set(own)); err != nil {
					t.Error(err)
					changes.Store(enough)
				}
			}
		})
		right := ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.1", "10.0.0.2", datagram(1, 2)))
		wrong := ether(broadcast, mac1, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.9", "10.0.0.2", datagram(1, 2)))
		sent, forged := 0, 0
		for ; changes.Load() < enough; sent++ {
			n.send("g1", wrong)
			n.send("g1", right)
			for arrived := false; !arrived; {
				got := make([]byte, 2048)
				size, err := unix.Read(n.guest["g2"], got)
				if err != nil {
					t.Fatalf("after %d frames a right one is lost: %v", sent, err)
				}
				arrived = bytes.HasPrefix(got[:size], right)
				if bytes.HasPrefix(got[:size], wrong) {
					forged++
				}
			}
		}
		if forged > 0 || sent < enough {
			t.Errorf("%d forged frames of %d arrived", forged, sent)
		}
	})
}

// After a flush of all rules the next change restores everything.
func TestFlushed(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		all := somePorts(3)
		n.check(table.Reset(all[:2]))
		for _, change := range []func() error{
			func() error { return table.Set(all[2]) },
			func() error { return table.Set(all[2]) },
			func() error { return table.Remove(all[2].Interface) },
		} {
			c, err := nftables.New()
			n.check(err)
			c.FlushRuleset()
			n.check(c.Flush())
			wantPorts(n, table, nil)
			n.check(change())
		}
		wantPorts(n, table, all[:2])
		n.check(table.Remove("none"))
		c, err := nftables.New()
		n.check(err)
		for _, t := range tables {
			c.DelTable(t)
		}
		n.check(c.Flush())
		wantPorts(n, table, nil)
		n.check(table.Set(all[2]))
		wantPorts(n, table, all)
	})
}

// The link-local address of the MAC is implied, but may be given too.
func TestGivenLinkLocal(t *testing.T) {
	inNetwork(t, func(n *network) {
		table := open(n)
		n.check(table.Set(Port{"p1", mac1, addrs(linkLocal1, "::ffff:10.0.0.1"), false, 0}))
		wantPorts(n, table, []Port{{"p1", mac1, addrs("10.0.0.1"), false, 0}})
	})
}

func TestBadPort(t *testing.T) {
	table := &Table{ns: netns.None()}
	for want, p := range map[string]Port{
		"name":             {"", mac1, nil, false, 0},
		"sixteen--letters": {"sixteen--letters", mac1, nil, false, 0},
		"MAC ":             {"p1", nil, nil, false, 0},
		"unicast":          {"p1", broadcast, nil, false, 0},
		"address 0.0.0.0":  {"p1", mac1, addrs("0.0.0.0"), false, 0},
		"address ff02::1":  {"p1", mac1, addrs("ff02::1"), false, 0},
		"invalid":          {"p1", mac1, []netip.Addr{{}}, false, 0},
	} {
		for _, err := range []error{table.Set(p), table.Reset([]Port{p})} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got %v, want an error with %q", p, err, want)
			}
		}
	}
}
