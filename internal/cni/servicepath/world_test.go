package servicepath

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

// addresses are the addresses of one family in the world.
type addresses struct {
	name                         string
	gateway, clientGateway       string // of the switch
	guest, a, b, remote, client  string
	length                       int
	ranges                       string
	tob, toRemote, toSelf, toAny string // services
	none                         string
	iptables                     string
}

var families = []addresses{
	{
		"IPv4", "10.201.0.1", "10.202.0.1", "10.201.0.2", "10.201.1.1", "10.201.1.2", "10.201.2.1", "10.202.0.2", 16,
		"10.96.0.0/12", "10.96.0.10", "10.96.0.11", "10.96.0.12", "10.96.0.13", "10.96.0.99", "iptables",
	},
	{
		"IPv6", "fd00:201::1", "fd00:202::1", "fd00:201::2", "fd00:201::1:1", "fd00:201::1:2", "fd00:201::2:1", "fd00:202::2", 64,
		"fd00:96::/112", "fd00:96::10", "fd00:96::11", "fd00:96::12", "fd00:96::13", "fd00:96::99", "ip6tables",
	},
}

// world is a network of a guest with the pods a and b, each with a NIC of its own,
// a pod of another guest, and a client behind a router.
type world struct {
	t                               *testing.T
	sw, guest, a, b, remote, client ns.NetNS
	pathA, pathB                    Path
	endsA                           Ends
}

func newNS(t *testing.T) ns.NetNS {
	t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func (w *world) in(n ns.NetNS, f func() error) {
	w.t.Helper()
	if err := n.Do(func(ns.NetNS) error { return f() }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run(n ns.NetNS, command string) {
	w.t.Helper()
	w.in(n, func() error {
		words := strings.Fields(command)
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
		return nil
	})
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	w := &world{t: t}
	for _, n := range []*ns.NetNS{&w.sw, &w.guest, &w.a, &w.b, &w.remote, &w.client} {
		*n = newNS(t)
		w.run(*n, "ip link set lo up")
	}
	w.run(w.sw, "ip link add br0 type bridge")
	w.run(w.sw, "ip link set br0 up")
	w.run(w.sw, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	for i, n := range []ns.NetNS{w.guest, w.a, w.b, w.remote} {
		w.plug(n, fmt.Sprintf("p%d", i), "br0")
	}
	w.plug(w.client, "p9", "")
	for _, f := range families {
		w.address(w.sw, "br0", f.gateway, f)
		w.address(w.sw, "p9", f.clientGateway, f)
		for n, addr := range map[ns.NetNS]string{w.guest: f.guest, w.a: f.a, w.b: f.b, w.remote: f.remote} {
			w.address(n, "eth0", addr, f)
			w.run(n, "ip route add default via "+f.gateway)
		}
		w.address(w.client, "eth0", f.client, f)
		w.run(w.client, "ip route add default via "+f.clientGateway)
		w.proxyRules(f)
	}
	w.pathA = w.path("a", func(f addresses) string { return f.a })
	w.pathB = w.path("b", func(f addresses) string { return f.b })
	return w
}

func (w *world) plug(n ns.NetNS, port, bridge string) {
	w.t.Helper()
	w.in(w.sw, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = port
		v := &netlink.Veth{LinkAttrs: a, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(n.Fd()))}
		return errors.Join(netlink.LinkAdd(v), netlink.LinkSetUp(v))
	})
	if bridge != "" {
		w.run(w.sw, "ip link set "+port+" master "+bridge)
	}
	w.run(n, "ip link set eth0 up")
}

func (w *world) address(n ns.NetNS, link, addr string, f addresses) {
	w.t.Helper()
	flag := ""
	if f.name == "IPv6" {
		flag = " nodad"
	}
	w.run(n, fmt.Sprintf("ip addr add %s/%d dev %s%s", addr, f.length, link, flag))
}

func (w *world) path(container string, addr func(addresses) string) Path {
	p := Path{Owner: Owner{"net", container, "eth0"}, MTU: 1400}
	for _, f := range families {
		p.Addresses = append(p.Addresses, netip.MustParseAddr(addr(f)))
		p.Ranges = append(p.Ranges, netip.MustParsePrefix(f.ranges))
	}
	return p
}

// proxyRules are rules like those of kube-proxy and portmap: destination NAT before
// routing, for forwarded packets and for the guest's own.
func (w *world) proxyRules(f addresses) {
	w.t.Helper()
	to := func(addr string) string { return " -j DNAT --to-destination " + net.JoinHostPort(addr, "8080") }
	for _, protocol := range []string{"tcp", "udp"} {
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			rule := f.iptables + " -w -t nat -A " + chain + " -p " + protocol + " --dport 80 -d "
			w.run(w.guest, rule+f.tob+to(f.b))
			w.run(w.guest, rule+f.toRemote+to(f.remote))
			w.run(w.guest, rule+f.toSelf+to(f.a))
			w.run(w.guest, rule+f.toAny+" -m statistic --mode random --probability 0.5"+to(f.b))
			w.run(w.guest, rule+f.toAny+to(f.remote))
			w.run(w.guest, rule+f.guest+to(f.a)) // a host port
		}
	}
}

// serve answers on port 8080 with the server's name and the client's address.
func (w *world) serve(n ns.NetNS, name, addr string) {
	w.t.Helper()
	var wg sync.WaitGroup
	w.t.Cleanup(wg.Wait)
	at := net.JoinHostPort(addr, "8080")
	w.in(n, func() error {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { l.Close() })
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(c, "%s %s", name, c.RemoteAddr().(*net.TCPAddr).IP) // the client reports an error
				c.Close()
			}
		})
		p, err := net.ListenPacket("udp", at)
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { p.Close() })
		wg.Go(func() {
			b := make([]byte, 100)
			for {
				_, from, err := p.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = p.WriteTo([]byte(name+" "+from.(*net.UDPAddr).IP.String()), from)
			}
		})
		return nil
	})
}

// ask returns the server's answer or the error.
func (w *world) ask(n ns.NetNS, network, addr, port string) string {
	return w.askFor(time.Minute, n, network, addr, port)
}

func (w *world) askFor(limit time.Duration, n ns.NetNS, network, addr, port string) (answer string) {
	err := n.Do(func(ns.NetNS) error {
		c, err := (&net.Dialer{Timeout: limit}).Dial(network, net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		if network == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			b := make([]byte, 100)
			got, err := c.Read(b)
			answer = string(b[:got])
			return err
		}
		b, err := io.ReadAll(c)
		answer = string(b)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return answer
}
