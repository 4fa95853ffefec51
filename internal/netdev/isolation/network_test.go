package isolation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// network is a bridge in the namespace host with the ports p1 to p4, each to a namespace of
// its own, a pod with the addresses 10.0.0.N and fd00::N. The host has 10.0.0.254 and
// fd00::fe.
type network struct {
	second map[int]byte // addresses from which pods dial; none: their first
	t      *testing.T
	host   netns.NsHandle
	pods   map[int]netns.NsHandle
	table  *Table
	flows  uint16 // of UDP, each from another port: a rule does not end the flows before it
}

// patience is for what must happen, on any machine.
const patience = time.Minute

// inNetwork runs f in the host's namespace of a fresh network, which ends with the test.
func inNetwork(t *testing.T, f func(*network)) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	_ = thread.Do(func() error { // t.Fatal ends its goroutine, and the thread with it
		n := &network{t: t, pods: map[int]netns.NsHandle{}}
		n.host = n.newNS()
		defer n.host.Close()
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 0xff}}}
		n.check(netlink.LinkAdd(bridge))
		n.address("br0", 254)
		for _, name := range []string{"iptables", "ip6tables"} {
			n.check(os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+name, []byte("0"), 0))
		}
		for i := 1; i <= 4; i++ {
			n.plug(i, bridge)
			ns := n.pods[i]
			defer ns.Close()
		}
		f(n)
		return nil
	})
}

func (n *network) check(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *network) newNS() netns.NsHandle {
	n.t.Helper()
	ns, err := netns.New()
	n.check(err)
	lo, err := netlink.LinkByName("lo")
	n.check(err)
	n.check(netlink.LinkSetUp(lo)) // else package net takes IPv6 as missing
	return ns
}

func (n *network) plug(i int, bridge netlink.Link) {
	n.t.Helper()
	n.pods[i] = n.newNS()
	n.check(netns.Set(n.host))
	name := fmt.Sprint("p", i)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.pods[i])}
	n.check(netlink.LinkAdd(veth))
	n.check(netlink.LinkSetUp(veth))
	n.in(i, func() { n.address("eth0", byte(i)) })
}

func (n *network) address(iface string, number byte) {
	n.t.Helper()
	link, err := netlink.LinkByName(iface)
	n.check(err)
	for _, a := range []netip.Prefix{netip.PrefixFrom(v4(number), 24), netip.PrefixFrom(v6(number), 64)} {
		ipnet := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		n.check(netlink.AddrAdd(link, &netlink.Addr{IPNet: ipnet, Flags: unix.IFA_F_NODAD}))
	}
	n.check(netlink.LinkSetUp(link))
}

func v4(number byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, number}) }
func v6(number byte) netip.Addr { return netip.AddrFrom16([16]byte{0xfd, 15: number}) }

// in runs f in the namespace of a pod; 254 is the host.
func (n *network) in(pod int, f func()) {
	n.t.Helper()
	ns, ok := n.pods[pod]
	if !ok {
		ns = n.host
	}
	n.check(netns.Set(ns))
	defer func() { n.check(netns.Set(n.host)) }()
	f()
}

// open opens the table, which closes with the test.
func (n *network) open(ports ...Port) {
	n.t.Helper()
	table, err := Open(ports)
	n.check(err)
	n.table = table
	n.t.Cleanup(func() { table.Close() })
}

// serve has a pod answer on a port: it sends back what it receives.
func (n *network) serve(pod int, protocol string, port uint16) {
	n.t.Helper()
	n.in(pod, func() {
		address := fmt.Sprintf("[::]:%d", port) // also IPv4
		if protocol == "udp" {
			c, err := net.ListenPacket("udp", address)
			n.check(err)
			n.t.Cleanup(func() { c.Close() })
			go echoDatagrams(c)
			return
		}
		l, err := net.Listen("tcp", address)
		n.check(err)
		n.t.Cleanup(func() { l.Close() })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go echo(c)
			}
		}()
	})
}

func echoDatagrams(c net.PacketConn) {
	b := make([]byte, 65536)
	for size, from, err := c.ReadFrom(b); err == nil; size, from, err = c.ReadFrom(b) {
		_, _ = c.WriteTo(b[:size], from)
	}
}

func echo(c net.Conn) {
	defer c.Close()
	b := make([]byte, 4096)
	for size, err := c.Read(b); err == nil; size, err = c.Read(b) {
		if _, err := c.Write(b[:size]); err != nil {
			return
		}
	}
}

// dial connects a pod to an address. It returns nil if the filter drops a packet before
// there is a connection.
func (n *network) dial(pod int, protocol string, to netip.AddrPort) net.Conn {
	n.t.Helper()
	before := n.dropped()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done := make(chan net.Conn, 1)
	go func() {
		defer close(done)
		err := thread.Do(func() error {
			if err := netns.Set(n.namespace(pod)); err != nil {
				return err
			}
			c, err := (&net.Dialer{LocalAddr: n.local(pod, protocol, to.Addr())}).DialContext(ctx, protocol, to.String())
			if err != nil {
				return err
			}
			if err := exchange(c, "hello", patience); err != nil {
				return errors.Join(err, c.Close())
			}
			done <- c
			return nil
		})
		if err != nil && ctx.Err() == nil {
			n.t.Errorf("%d to %s: %v", pod, to, err)
		}
	}()
	for {
		select {
		case c := <-done:
			return c
		case <-time.After(5 * time.Millisecond):
			if n.dropped() != before {
				cancel()
				if c := n.undone(done, protocol); c != nil {
					n.t.Errorf("%d to %s: connected, although packets were dropped", pod, to)
				}
				return nil
			}
		}
	}
}

// local returns the address from which the pod dials: its second one, if it has one, with a port for UDP.
func (n *network) local(pod int, protocol string, to netip.Addr) net.Addr {
	a := netip.IPv4Unspecified()
	if to.Is6() {
		a = netip.IPv6Unspecified()
	}
	if number, ok := n.second[pod]; ok {
		if a = v4(number); to.Is6() {
			a = v6(number)
		}
	}
	if protocol == "udp" {
		n.flows++
		return net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 1024+n.flows))
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))
}

// undone waits for a dial that was given up. One of UDP waits for its answer.
func (n *network) undone(done chan net.Conn, protocol string) net.Conn {
	if protocol == "udp" {
		return nil
	}
	return <-done
}

func (n *network) namespace(pod int) netns.NsHandle {
	if ns, ok := n.pods[pod]; ok {
		return ns
	}
	return n.host
}

func (n *network) dropped() (sum uint64) {
	for _, count := range n.table.Drops() {
		sum += count
	}
	return sum
}

// exchange sends a text and waits until it comes back.
func exchange(c net.Conn, text string, limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(text)); err != nil {
		return err
	}
	got := make([]byte, len(text))
	for read := 0; read < len(text); {
		size, err := c.Read(got[read:])
		if err != nil {
			return err
		}
		read += size
	}
	if string(got) != text {
		return errors.New("another answer")
	}
	return nil
}

// connects checks whether a pod can connect to another in both families.
func (n *network) connects(what string, from, to int, protocol string, port uint16, want bool) {
	n.t.Helper()
	for _, a := range []netip.Addr{v4(byte(to)), v6(byte(to))} {
		c := n.dial(from, protocol, netip.AddrPortFrom(a, port))
		if c != nil {
			c.Close()
		}
		if got := c != nil; got != want {
			n.t.Errorf("%s: %d to %s, %s %d: connects %t, want %t", what, from, a, protocol, port, got, want)
		}
	}
}

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

// known returns the connections of a port in a set of a kind.
func (n *network) known(iface, kind string) []nftables.SetElement {
	n.t.Helper()
	c, err := n.table.conn.New()
	n.check(err)
	for _, s := range n.table.flows(Port{Interface: iface}).all() {
		if strings.HasPrefix(s.Name, kind+"-") {
			if _, err := c.GetSetByName(table, s.Name); errors.Is(err, unix.ENOENT) { // GetSetElements hides it
				return nil
			}
			elements, err := c.GetSetElements(s)
			n.check(err)
			return elements
		}
	}
	n.t.Fatalf("port %s has no set %s", iface, kind)
	return nil
}
