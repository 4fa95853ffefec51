package loopback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"unnest.io/unnest/internal/hostapi/segment"
)

// key is a public key of 32 equal bytes.
func key(b byte) (k wgtypes.Key) {
	for i := range k {
		k[i] = b
	}
	return k
}

func TestPeersOf(t *testing.T) {
	a := netip.MustParseAddr
	own := Node{"own", key(1).String(), []netip.Addr{a("10.0.0.1")}}
	of := func(names ...string) (text string) {
		for _, name := range names {
			text += " " + WireGuardAddress(name).String() + "/128"
		}
		return text
	}
	for name, tt := range map[string]struct {
		nodes   []Node
		present []byte
		want    []string // key's first byte, endpoint, addresses
	}{
		"none":                       {[]Node{own}, nil, nil},
		"one of a common family":     {[]Node{own, {"b", key(2).String(), []netip.Addr{a("fd00::2"), a("10.0.0.2")}}}, []byte{2}, []string{"2 10.0.0.2:26678" + of("b")}},
		"one of another family":      {[]Node{own, {"b", key(2).String(), []netip.Addr{a("fd00::2")}}}, nil, []string{"2 <nil>" + of("b")}},
		"no key yet":                 {[]Node{own, {"b", "", []netip.Addr{a("10.0.0.2")}}}, nil, nil},
		"no key":                     {[]Node{own, {"b", "x", nil}, {"c", key(0).String(), nil}}, nil, nil},
		"it has another key":         {[]Node{own, {"b", key(3).String(), []netip.Addr{a("10.0.0.2")}}}, []byte{2}, []string{"2 removed", "3 10.0.0.2:26678" + of("b")}},
		"it is gone":                 {[]Node{own}, []byte{2}, []string{"2 removed"}},
		"a node has another's key":   {[]Node{own, {"c", key(2).String(), []netip.Addr{a("10.0.0.3")}}, {"b", key(2).String(), []netip.Addr{a("10.0.0.2")}}}, nil, []string{"2 <nil>" + of("b", "c")}},
		"this node is not known yet": {[]Node{{"b", key(2).String(), []netip.Addr{a("10.0.0.2")}}}, nil, []string{"2 <nil>" + of("b")}},
	} {
		var present []wgtypes.Peer
		for _, b := range tt.present {
			present = append(present, wgtypes.Peer{PublicKey: key(b)})
		}
		var got []string
		for _, p := range peersOf("own", tt.nodes, present) {
			text := fmt.Sprint(p.PublicKey[0], " ", p.Endpoint)
			for _, allowed := range p.AllowedIPs {
				text += " " + allowed.String()
			}
			if p.Remove {
				text = fmt.Sprint(p.PublicKey[0], " removed")
			}
			if p.Remove != p.UpdateOnly || p.Remove == p.ReplaceAllowedIPs {
				t.Errorf("%s: %+v", name, p)
			}
			got = append(got, text)
		}
		if strings.Join(got, ", ") != strings.Join(tt.want, ", ") {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// Nodes of different versions find each other by these addresses.
func TestWireGuardAddress(t *testing.T) {
	if got := WireGuardAddress("node1"); got.String() != "fd75:6e6e:6573:ca12:f31b:8cbf:5f29:e268" || got == WireGuardAddress("node2") {
		t.Errorf("node1 has the address %s", got)
	}
	inside := Tunnel{1, 1, []netip.Addr{WireGuardAddress("a"), WireGuardAddress("b")}}
	if err := inside.Check(); err != nil || !inside.encrypted() || inside.MTU() != 29450 {
		t.Errorf("%v, encrypted %v, MTU %d", err, inside.encrypted(), inside.MTU())
	}
}

// wireGuardWorld has two nodes, which are network namespaces, with a link outside and one that is in place of WireGuard: the kernel may have none.
func wireGuardWorld(t *testing.T) (nodes [2]ns.NetNS) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	w := &tunnelWorld{t: t}
	nodes = [2]ns.NetNS{w.namespace(), w.namespace()}
	for name, addresses := range map[string][2]string{
		"eth0": {"fd00:9::1", "fd00:9::2"}, wireGuardDevice: {WireGuardAddress("a").String(), WireGuardAddress("b").String()},
	} {
		w.in(nodes[0], func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name, PeerNamespace: netlink.NsFd(nodes[1].Fd())})
		})
		for i, address := range addresses {
			w.in(nodes[i], func() error {
				link, err := netlink.LinkByName(name)
				if err != nil {
					return err
				}
				to := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(48, 128)}, Flags: unix.IFA_F_NODAD}
				return errors.Join(netlink.AddrAdd(link, to), netlink.LinkSetUp(link))
			})
		}
	}
	return nodes
}

// pastWireGuard leads the nodes past WireGuard to each other.
func pastWireGuard(t *testing.T, nodes [2]ns.NetNS) {
	t.Helper()
	for i, to := range [2]string{"b", "a"} {
		(&tunnelWorld{t: t}).in(nodes[i], func() error {
			return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP([2]string{"fd00:9::2", "fd00:9::1"}[i]), Dst: &net.IPNet{IP: WireGuardAddress(to).AsSlice(), Mask: net.CIDRMask(128, 128)}})
		})
	}
}

// sendInside sends what fraction 1 of node a sends to node b, so many times, and returns whether one arrives.
func sendInside(t *testing.T, nodes [2]ns.NetNS, port uint16, times int) (arrives bool) {
	t.Helper()
	w, from, to := &tunnelWorld{t: t}, netip.AddrPortFrom(WireGuardAddress("a"), 0), netip.AddrPortFrom(WireGuardAddress("b"), port)
	var server net.PacketConn
	w.in(nodes[1], func() (err error) {
		server, err = net.ListenPacket("udp6", fmt.Sprintf("[::]:%d", port))
		return err
	})
	defer server.Close()
	for ; times > 0 && !arrives; times-- {
		w.in(nodes[0], func() error {
			c, err := net.DialUDP("udp6", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
			if err != nil {
				return err
			}
			defer c.Close()
			if _, err = c.Write(frame(vni, 1, "x")); errors.Is(err, unix.EPERM) {
				return nil // a packet filter
			}
			return err
		})
		if err := server.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, _, err := server.ReadFrom(make([]byte, 1500))
		arrives = err == nil
	}
	return arrives
}

const untilUp = 100 // times to send, until the links are up

// Whatever the routes are, a tunnel inside WireGuard sends nothing past its device, and takes nothing that comes past it.
func TestTunnelStaysInsideWireGuard(t *testing.T) {
	for guarded, name := range []string{"sender", "receiver"} {
		t.Run(name, func(t *testing.T) {
			nodes := wireGuardWorld(t)
			protect := func(f func(string, Tunnel) error) {
				c := Tunnel{vni, segment.Fraction(guarded + 1), []netip.Addr{WireGuardAddress("a"), WireGuardAddress("b")}}
				(&tunnelWorld{t: t}).in(nodes[guarded], func() error { return f("pod", c) })
			}
			protect(guard)
			if !sendInside(t, nodes, TunnelPort, untilUp) {
				t.Error("nothing arrives by the device")
			}
			protect(func(id string, _ Tunnel) error { return ReleaseTunnel(id) })
			pastWireGuard(t, nodes)
			if !sendInside(t, nodes, TunnelPort, untilUp) {
				t.Error("nothing arrives past the device without a filter, so the test would not see it")
			}
			protect(guard)
			if sendInside(t, nodes, TunnelPort, 2) {
				t.Error("it arrives past the device")
			}
		})
	}
}

// A mark that a program of the node sets changes the route after it has been looked up. That does not lead past the device either.
func TestMarkedTunnelStaysInsideWireGuard(t *testing.T) {
	nodes := wireGuardWorld(t)
	(&tunnelWorld{t: t}).in(nodes[0], func() error {
		rule := netlink.NewRule()
		rule.Family, rule.Mark, rule.Table = netlink.FAMILY_V6, 1, 9
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := c.AddTable(&nftables.Table{Name: "marks", Family: nftables.TableFamilyIPv6})
		chain := c.AddChain(&nftables.Chain{Name: "output", Table: table, Type: nftables.ChainTypeRoute, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityMangle})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Immediate{Register: 1, Data: binary.NativeEndian.AppendUint32(nil, 1)}, &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
		}})
		to := &net.IPNet{IP: WireGuardAddress("b").AsSlice(), Mask: net.CIDRMask(128, 128)}
		return errors.Join(netlink.RuleAdd(rule), netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP("fd00:9::2"), Dst: to, Table: 9}), c.Flush())
	})
	(&tunnelWorld{t: t}).in(nodes[1], func() error { // the receiver sees by which link it comes
		link, err := netlink.LinkByName(wireGuardDevice)
		if err == nil {
			err = netlink.LinkSetDown(link)
		}
		if err == nil {
			err = netlink.AddrAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}, &netlink.Addr{IPNet: &net.IPNet{IP: WireGuardAddress("b").AsSlice(), Mask: net.CIDRMask(128, 128)}, Flags: unix.IFA_F_NODAD})
		}
		return errors.Join(err, upLink("lo"))
	})
	if !sendInside(t, nodes, TunnelPort, untilUp) {
		t.Error("nothing arrives past the device without a filter, so the test would not see it")
	}
	(&tunnelWorld{t: t}).in(nodes[0], func() error {
		return guard("pod", Tunnel{vni, 1, []netip.Addr{WireGuardAddress("a"), WireGuardAddress("b")}})
	})
	if sendInside(t, nodes, TunnelPort, 2) {
		t.Error("a mark leads past the device")
	}
}

// Other nodes reach tunnels by the device, and nothing else of the node.
func TestOnlyTunnels(t *testing.T) {
	nodes := wireGuardWorld(t)
	const kubelet = 10250
	if !sendInside(t, nodes, kubelet, untilUp) {
		t.Error("nothing arrives without a filter")
	}
	(&tunnelWorld{t: t}).in(nodes[1], func() error { return errors.Join(onlyTunnels(), onlyTunnels()) })
	if sendInside(t, nodes, kubelet, 2) || !sendInside(t, nodes, TunnelPort, untilUp) {
		t.Error("the filter does not accept tunnels alone")
	}
}

// The device keeps its key, and is removed with its filter. A kernel without WireGuard is named, and nothing is left. A tunnel whose peer
// has no key is not made.
func TestEnsureWireGuard(t *testing.T) {
	nodes := wireGuardWorld(t)
	w := &tunnelWorld{t: t}
	node, pod := w.namespace(), nodes[0]
	w.in(node, func() error {
		first, err := EnsureWireGuard("a")
		why := "is not its peer yet"
		if why = map[bool]string{true: why, false: "it is not there"}[err == nil]; err != nil {
			if !strings.Contains(err.Error(), "the node's kernel has no WireGuard: give the node") {
				t.Error(err)
			}
		} else if again, err := EnsureWireGuard("a"); err != nil || again != first {
			t.Errorf("it has the key %q, then %q (%v)", first, again, err)
		} else if err := SetWireGuardPeers("a", []Node{{"b", key(2).String(), []netip.Addr{netip.MustParseAddr("10.0.0.2")}}}); err != nil {
			t.Error(err)
		}
		c := Tunnel{vni, 1, []netip.Addr{WireGuardAddress("a"), WireGuardAddress("no key")}}
		if err := MakeTunnel(pod, tunnelDevice, "pod", c); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("a tunnel without a peer: %v", err)
		}
		if err := errors.Join(RemoveWireGuard(), RemoveWireGuard()); err != nil {
			t.Error(err)
		}
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := conn.ListTables()
		links, listErr := netlink.LinkList()
		if len(tables) > 0 || len(links) != 1 {
			t.Errorf("left: %v, %v", tables, links)
		}
		return errors.Join(err, listErr)
	})
}
