package loopback

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/testbed/place"
)

const (
	tunnelDevice = nicName
	vni          = 4711
)

// tunnelWorld has nodes, which are network namespaces on a bridge, and a pod on each but the last.
type tunnelWorld struct {
	t           *testing.T
	nodes, pods []ns.NetNS
	addresses   []netip.Addr
}

// newTunnelWorld is a world with n fractions, which have joined, whose nodes have addresses in the network, such as "10.9.0.", and
// a further node.
func newTunnelWorld(t *testing.T, n int, network string, mtu int) *tunnelWorld {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	w := &tunnelWorld{t: t}
	fabric := w.namespace()
	w.in(fabric, func() error {
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: mtu}}), upLink("br0"))
	})
	for i := range n + 1 {
		node, port := w.namespace(), fmt.Sprint("port", i)
		address := netip.MustParseAddr(network + fmt.Sprint(i+1))
		w.in(fabric, func() error {
			bridge, err := netlink.LinkByName("br0")
			if err != nil {
				return err
			}
			v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: port, MTU: mtu}, PeerName: "eth0", PeerNamespace: netlink.NsFd(node.Fd())}
			err = netlink.LinkAdd(v)
			if err == nil {
				err = errors.Join(netlink.LinkSetMaster(v, bridge), upLink(port))
			}
			return err
		})
		w.in(node, func() error {
			_ = os.WriteFile("/proc/sys/net/ipv6/conf/eth0/accept_dad", []byte("0"), 0)
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			bits := map[bool]int{true: 24, false: 64}[address.Is4()]
			to := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(bits, address.BitLen())}}
			return errors.Join(netlink.LinkSetMTU(link, mtu), netlink.AddrAdd(link, to), upLink("eth0"))
		})
		w.nodes, w.addresses = append(w.nodes, node), append(w.addresses, address)
	}
	for i := range n {
		pod := w.namespace()
		w.pods = append(w.pods, pod)
		w.in(pod, func() error { return upLink("lo") })
		c := w.config(i)
		w.in(w.nodes[i], func() error { return MakeTunnel(pod, tunnelDevice, "pod", c) })
		if err := Join(pod, tunnelDevice, Config{Fraction: c.Fraction, Members: c.Members(), MTU: c.MTU()}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *tunnelWorld) config(i int) Tunnel {
	return Tunnel{VNI: vni, Fraction: segment.Fraction(i + 1), Nodes: w.addresses[:len(w.addresses)-1]}
}

func upLink(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func (w *tunnelWorld) namespace() ns.NetNS {
	w.t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { n.Close() })
	return n
}

func (w *tunnelWorld) in(n ns.NetNS, f func() error) {
	w.t.Helper()
	if err := n.Do(func(ns.NetNS) error { return f() }); err != nil {
		w.t.Fatal(err)
	}
}

// The localhost cases pass between fractions on three nodes, whose links take frames of the usual size.
func TestTunnelLocalhostCases(t *testing.T) {
	for _, network := range []string{"10.9.0.", "fd00:9::"} {
		t.Run(network, func(t *testing.T) {
			w := newTunnelWorld(t, 3, network, 1500)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			only := map[bool]string{true: `.`, false: `^(tcp|udp)/.*/(server|dead|many-short)`}[w.addresses[0].Is4()]
			if cases := os.Getenv("UNNEST_LOCALHOST_CASES"); cases != "" { // by hand
				only = cases
			}
			// docs/hostlo.md says why the first three differ. The others take most of the time.
			skip := `^bind/|/segments-are-larger|^udp/ipv6/.*-whole|^udp/ipv4/(65480|65500|largest)|full-backlog|beyond-the-backlog|ping|^programs/|burst`
			o := localhost.Options{Only: regexp.MustCompile(only), Skip: regexp.MustCompile(skip), Patience: 10 * time.Second}
			for _, pod := range w.pods {
				o.Fractions = append(o.Fractions, localhost.Fraction{Place: place.Local{NetNS: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pod.Fd())}, Args: []string{exe, "agent"}})
			}
			ran := 0
			err = localhost.Run(context.WithoutCancel(t.Context()), o, func(out localhost.Outcome) {
				ran++
				if t.Logf("%-9s %-70s %6dms %v%s", out.Verdict(), out.Case, out.Duration.Milliseconds(), out.Err, out.NotThere); out.Verdict() == localhost.Fail {
					t.Errorf("%s: %v", out.Case, out.Err)
				}
			})
			if err != nil || ran < 10 {
				t.Errorf("%d cases ran, %v", ran, err)
			}
		})
	}
}

// frame is a datagram for 127.0.0.1:7000 in a tunnel, from a fraction to all.
func frame(number uint32, from segment.Fraction, text string) []byte {
	mac := segment.MAC(from)
	b := append([]byte{8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, number<<8)...)
	b = append(append(append(b, segment.Broadcast[:]...), mac[:]...), 0x08, 0)
	ip := []byte{0x45, 0, 0, byte(28 + len(text)), 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1}
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	b = append(b, ip...)
	b = append(b, 0x13, 0x88, 7000>>8, 7000&0xff, 0, byte(8+len(text)), 0, 0) // from port 5000, without a checksum
	return append(b, text...)
}

// Nobody else of the network of the nodes gets a packet into a pod, nor does a node as a fraction that it has not, nor
// as the reflector. What a peer sends arrives, so the test would see the others.
func TestTunnelStrangers(t *testing.T) {
	for _, network := range []string{"10.9.0.", "fd00:9::"} {
		t.Run(network, func(t *testing.T) {
			w := newTunnelWorld(t, 3, network, 1500)
			var server net.PacketConn
			w.in(w.pods[0], func() (err error) {
				server, err = net.ListenPacket("udp4", "127.0.0.1:7000")
				return err
			})
			defer server.Close()
			send := func(node int, b []byte) {
				w.in(w.nodes[node], func() error {
					c, err := net.Dial("udp", netip.AddrPortFrom(w.addresses[0], TunnelPort).String())
					if err != nil {
						return err
					}
					defer c.Close()
					_, err = c.Write(b)
					return err
				})
			}
			send(3, frame(vni, 2, "a stranger as fraction 2"))
			send(3, frame(vni, 4, "a stranger as a fraction of its own"))
			send(2, frame(vni, 2, "fraction 3 as fraction 2"))
			send(1, frame(vni, 1, "fraction 2 as the receiver"))
			send(1, frame(vni+1, 2, "fraction 2 with another number"))
			none := segment.Membership{Generation: 1, Members: segment.Of(1)}.Frame(segment.Broadcast)
			for node := 1; node <= 3; node++ { // the segment would have no other members
				send(node, append(frame(vni, 0, "")[:8], none...))
			}
			sendFragments(w, 3, frame(vni, 2, "a stranger in fragments, with a source of its own"), 3)
			sendBehind(w, 1, false, frame(vni, 2, "a pod behind the address of fraction 2's node"))
			sendBehind(w, 0, true, frame(vni, 2, "a pod of the receiver's node with the address of fraction 2's"))
			sendFragments(w, 1, frame(vni, 2, "fraction 2"), 1)
			buffer := make([]byte, 100)
			if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			n, _, err := server.ReadFrom(buffer)
			if got := string(buffer[:n]); err != nil || got != "fraction 2" {
				t.Errorf("the server got %q first (%v), want what fraction 2 has sent", got, err)
			}
			known, err := Membership(w.pods[0])
			if err != nil || known.Members != segment.Of(1, 2, 3) {
				t.Errorf("the members are %s (%v)", known.Members, err)
			}
		})
	}
}

// sendFragments has a node send a datagram of the tunnel to the first one, of which the first fragment has the UDP header only.
// It is of the address of another node.
func sendFragments(w *tunnelWorld, node int, data []byte, as int) {
	w.t.Helper()
	from, to := w.addresses[as], w.addresses[0]
	udp := append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, 5000), TunnelPort), 0, 0, 0, 0)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(data)))
	udp = append(udp, data...)
	if to.Is6() {
		binary.BigEndian.PutUint16(udp[6:], checksum(append(append(from.AsSlice(), to.AsSlice()...), 0, 17, udp[4], udp[5]), udp))
	}
	w.in(w.nodes[node], func() error {
		domain, where := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte(to.AsSlice()[:4])})
		if to.Is6() {
			domain, where = unix.AF_INET6, &unix.SockaddrInet6{Addr: to.As16()}
		}
		s, err := unix.Socket(domain, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		for _, part := range []struct {
			offset int
			more   byte
			data   []byte
		}{{0, 1, udp[:8]}, {8, 0, udp[8:]}} {
			var b []byte
			if to.Is6() {
				b = append(b, 0x60, 0, 0, 0, 0, byte(8+len(part.data)), 44, 64)
				b = append(append(b, from.AsSlice()...), to.AsSlice()...)
				b = append(b, 17, 0, 0, byte(part.offset)|part.more, 0, 0, 0, byte(node+1))
			} else {
				b = append(b, 0x45, 0, 0, byte(20+len(part.data)), 0, byte(node+1), part.more<<5, byte(part.offset/8), 64, 17, 0, 0)
				b = append(append(b, from.AsSlice()...), to.AsSlice()...)
			}
			if err := unix.Sendto(s, append(b, part.data...), 0, where); err != nil {
				return err
			}
		}
		return nil
	})
}

// checksum is that of the Internet (RFC 1071) over all parts, of which only the last may have an odd length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, p := range parts {
		for i, b := range p {
			sum += uint32(b) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// sendBehind has a pod behind a node send a datagram to the first node: with the address that the node gives to what it
// forwards, or with that of the second node.
func sendBehind(w *tunnelWorld, node int, forged bool, data []byte) {
	w.t.Helper()
	pod, to := w.namespace(), w.addresses[0]
	inner, bits := [2]string{"10.99.0.1", "10.99.0.2"}, 24
	if to.Is6() {
		inner, bits = [2]string{"fd00:99::1", "fd00:99::2"}, 64
	}
	add := func(name, address string) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		ip := netip.MustParseAddr(address)
		return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(bits, ip.BitLen())}, Flags: unix.IFA_F_NODAD}), upLink(name))
	}
	w.in(w.nodes[node], func() error {
		for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0); err != nil {
				return err
			}
		}
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "behind"}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod.Fd())}
		if err := errors.Join(netlink.LinkAdd(v), add("behind", inner[0])); err != nil || forged {
			return err
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		nat := c.AddTable(&nftables.Table{Name: "nat", Family: nftables.TableFamilyINet})
		chain := c.AddChain(&nftables.Chain{Name: "nat", Table: nat, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		c.AddRule(&nftables.Rule{Table: nat, Chain: chain, Exprs: []expr.Any{&expr.Masq{}}})
		return c.Flush()
	})
	w.in(pod, func() error {
		source := inner[1]
		if forged {
			source = w.addresses[1].String()
		}
		err := add("eth0", inner[1])
		if err == nil && forged {
			bits = to.BitLen()
			err = add("eth0", source)
		}
		if err != nil {
			return err
		}
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(inner[0])})
		}
		if err != nil {
			return err
		}
		c, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0)), net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, TunnelPort)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(data)
		return err
	})
}

// TCP's segments fit into the packets of the nodes, and large datagrams are sent in fragments.
func TestTunnelPackets(t *testing.T) {
	w := newTunnelWorld(t, 2, "10.9.0.", 1400)
	fragments := func(node int) (created string) {
		w.in(w.nodes[node], func() error {
			content, err := os.ReadFile("/proc/thread-self/net/snmp")
			fields := strings.Fields(strings.Split(string(content), "\n")[1])
			created = fields[len(fields)-1] // FragCreates, or OutTransmits
			for i, name := range strings.Fields(strings.Split(string(content), "\n")[0]) {
				if name == "FragCreates" {
					created = fields[i]
				}
			}
			return err
		})
		return created
	}
	var listener net.Listener
	w.in(w.pods[0], func() (err error) {
		listener, err = net.Listen("tcp4", "127.0.0.1:7000")
		return err
	})
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = c.Write(make([]byte, 1<<20))
			c.Close()
		}
	}()
	var c net.Conn
	w.in(w.pods[1], func() (err error) {
		c, err = net.DialTimeout("tcp4", "127.0.0.1:7000", time.Minute)
		return err
	})
	defer c.Close()
	got, buffer := 0, make([]byte, 1<<16)
	for {
		n, err := c.Read(buffer)
		if got += n; err != nil {
			break
		}
	}
	if got != 1<<20 || fragments(0) != "0" || fragments(1) != "0" {
		t.Errorf("%d bytes came, and the nodes made %s and %s fragments; want a MiB and none", got, fragments(0), fragments(1))
	}
	var server net.PacketConn
	w.in(w.pods[0], func() (err error) {
		server, err = net.ListenPacket("udp4", "127.0.0.1:7001")
		return err
	})
	defer server.Close()
	large := w.config(0).MTU() - 28
	w.in(w.pods[1], func() error {
		c, err := net.Dial("udp4", "127.0.0.1:7001")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, large))
		return err
	})
	if err := server.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, _, err := server.ReadFrom(make([]byte, 1<<16)); err != nil || n != large || fragments(1) == "0" {
		t.Errorf("%d bytes came (%v), in %s fragments; want %d", n, err, fragments(1), large)
	}
}

// Whoever leaves has left nothing in the node, nor in the pod. Two segments with one number are refused.
func TestTunnelLeave(t *testing.T) {
	w := newTunnelWorld(t, 2, "10.9.0.", 1500)
	other := w.namespace()
	tables := func() (names string) {
		c, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		all, err := c.ListTables()
		for _, table := range all {
			names += table.Name + " "
		}
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	limits := func(limited bool) error { // of the segments of TCP, for each local address once
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		seen := map[string]bool{}
		for _, r := range routes {
			if seen[r.Dst.String()] || r.Dst.IP.IsLoopback() && (r.AdvMSS != 0) != limited {
				t.Errorf("limited %t: %v", limited, r)
			}
			seen[r.Dst.String()] = true
		}
		if !seen["127.0.0.1/32"] || !seen["::1/128"] {
			t.Errorf("local addresses: %v", seen)
		}
		return err
	}
	w.in(w.pods[0], func() error { return limits(true) })
	w.in(w.nodes[0], func() error {
		if err := MakeTunnel(other, tunnelDevice, "other", w.config(0)); err == nil || !strings.Contains(err.Error(), "another pod of this node") {
			t.Errorf("a second pod joins by the same number: %v", err)
		}
		if got := tables(); got != "unnest-segment-pod " {
			t.Errorf("packet filters: %q", got)
		}
		if err := errors.Join(CollectTunnels(func(id string) bool { return id != "pod" }), ReleaseTunnel("po")); err != nil || tables() != "unnest-segment-pod " {
			t.Errorf("a collection that keeps the pod's: %v, %q", err, tables())
		}
		err := errors.Join(Leave(w.pods[0], tunnelDevice), RemoveTunnel(w.pods[0], tunnelDevice, "pod"), RemoveTunnel(w.pods[0], tunnelDevice, "pod"))
		if got := tables(); got != "" {
			t.Errorf("packet filters are left: %q", got)
		}
		return err
	})
	w.in(w.pods[0], func() error {
		links, err := netlink.LinkList()
		if err == nil && (len(links) != 1 || links[0].Attrs().MTU != loMTU) {
			t.Errorf("links are left: %v", links)
		}
		return errors.Join(err, limits(false))
	})
}

func TestTunnelCheck(t *testing.T) {
	a := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	for _, tt := range []struct {
		c    Tunnel
		want string // a part of the error
	}{
		{Tunnel{1, 1, a("10.0.0.1", "10.0.0.2")}, ""},
		{Tunnel{segment.MaxVNI, 2, a("fd00::1", "fd00::2")}, ""},
		{Tunnel{0, 1, a("10.0.0.1", "10.0.0.2")}, "vni 0"},
		{Tunnel{segment.MaxVNI + 1, 1, a("10.0.0.1", "10.0.0.2")}, "vni 16777216"},
		{Tunnel{1, 0, a("10.0.0.1", "10.0.0.2")}, "fraction 0"},
		{Tunnel{1, 3, a("10.0.0.1", "10.0.0.2")}, "fraction 3"},
		{Tunnel{1, 1, a("10.0.0.1")}, "nodes: 1 addresses"},
		{Tunnel{1, 1, a("10.0.0.1", "10.0.0.1")}, "is there twice"},
		{Tunnel{1, 1, a("10.0.0.1", "fd00::1")}, "one family"},
		{Tunnel{1, 1, a("fd00::1", WireGuardAddress("x").String())}, "all or none inside WireGuard"},
		{Tunnel{1, 1, a("10.0.0.1", "127.0.0.1")}, "want the address of a node"},
		{Tunnel{1, 1, a("10.0.0.1", "0.0.0.0")}, "want the address of a node"},
		{Tunnel{1, 1, a("fd00::1", "fe80::1%eth0")}, "want the address of a node"},
	} {
		if err := tt.c.Check(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.c, err, tt.want)
		}
	}
}

// A runtime takes lo down before it calls the plugins of a pod that ends, as containerd does. The tunnel goes all the same, and
// so do its routes.
func TestTunnelOfDownLo(t *testing.T) {
	w := newTunnelWorld(t, 2, "10.9.0.", 1500)
	w.in(w.pods[0], func() error { return netlink.LinkSetDown(lo) })
	w.in(w.nodes[0], func() error { return RemoveTunnel(w.pods[0], tunnelDevice, "pod") })
	w.in(w.pods[0], func() error {
		_, err := netlinksafe.LinkByName(tunnelDevice)
		if !errors.As(err, new(netlink.LinkNotFoundError)) {
			return fmt.Errorf("the device: %w", err)
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			local, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
			if err != nil {
				return err
			}
			seen := map[string]bool{}
			for _, r := range local {
				if r.AdvMSS != 0 || seen[r.Dst.String()] {
					return fmt.Errorf("the route %v is left, or twice", r)
				}
				seen[r.Dst.String()] = true
			}
			if len(local) == 0 {
				return fmt.Errorf("no local route of family %d", family)
			}
		}
		return nil
	})
}
