package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/testbed/fleet"
)

// daemonAddress is the address of the daemon in a lab.
const daemonAddress = "10.200.0.1:7443"

// dialDaemon returns a client of the daemon that connects from inside the guest, through the
// guest's SSH server, with the credentials in /etc/unnest of the guest.
func (m *node) dialDaemon() hostdpb.HostDaemonClient {
	m.nodes.t.Helper()
	pair, err := tls.X509KeyPair([]byte(m.run("cat /etc/unnest/client.crt")), []byte(m.run("cat /etc/unnest/client.key")))
	m.nodes.check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(m.run("cat /etc/unnest/ca.crt")))
	conn, err := grpc.NewClient("passthrough:///"+daemonAddress,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots})),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return m.dial() }))
	m.nodes.check(err)
	m.nodes.t.Cleanup(func() { conn.Close() })
	return hostdpb.NewHostDaemonClient(conn)
}

func (m *node) dial() (net.Conn, error) { return m.ssh.Client().Dial("tcp", daemonAddress) }

// Hostile root in a guest gets errors, and can harm neither the daemon nor the pods of another
// guest.
func TestRogueGuest(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) {
		f.Policy.Tenants[0].Limits.RequestsPerSecond, f.Policy.Tenants[0].Limits.Burst = 50, 100
	})
	rogue, victim := n.boot(fleet.Options{Name: "rogue", Slots: 4}), n.boot(fleet.Options{Name: "victim", Slots: 4})
	their := victim.pod("v1", nil)[0]
	mine := rogue.pod("r1", nil)[0]
	other := victim.pod("v2", nil)[0]
	gateway := netip.MustParseAddr("10.201.0.1")
	rogue.wantReach("r1", their, true)

	t.Run("requests", func(t *testing.T) { rogueRequests(t, rogue, victim, their) })
	t.Run("another guest's name", func(t *testing.T) { rogueName(t, rogue, victim) })
	t.Run("container without a key", func(t *testing.T) { rogueKeyless(t, rogue) })
	t.Run("garbage", func(t *testing.T) { rogueGarbage(t, rogue) })
	t.Run("flood of requests", func(t *testing.T) { rogueFlood(t, rogue, victim) })
	t.Run("flood of connections", func(t *testing.T) { rogueConnections(t, rogue, victim) })

	t.Run("spoofed address", func(t *testing.T) {
		rogue.run(fmt.Sprintf("ip -n r1 addr add %s/16 dev eth0", other))
		if out, err := rogue.try(fmt.Sprintf("ip netns exec r1 busybox ping -c 2 -W 1 -I %s %s", other, gateway), ""); err == nil {
			t.Errorf("a packet from another pod's address was answered: %s", out)
		}
		// It cannot announce the address by ARP either.
		rogue.run(fmt.Sprintf("ip netns exec r1 busybox arping -U -c 3 -I eth0 -s %s %s || true", other, other))
		victim.wantReach("v1", other, true)
		victim.wantReach("v2", gateway, true)
		rogue.run(fmt.Sprintf("ip -n r1 addr del %s/16 dev eth0", other))
		rogue.wantReach("r1", gateway, true)
	})
	t.Run("spoofed address after the rules were deleted", func(t *testing.T) {
		mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "nft", "delete table bridge unnest-antispoof; delete table inet unnest-antispoof")
		n.eventually("the daemon restores the rules", func() bool {
			list := "nft list table bridge unnest-antispoof && nft list table inet unnest-antispoof"
			return exec.Command("nsenter", "--net="+n.fleet.Lab.HostNS(), "sh", "-c", list).Run() == nil
		})
		rogue.run(fmt.Sprintf("ip -n r1 addr add %s/16 dev eth0", other))
		if out, err := rogue.try(fmt.Sprintf("ip netns exec r1 busybox ping -c 2 -W 1 -I %s %s", other, gateway), ""); err == nil {
			t.Errorf("a packet from another pod's address was answered: %s", out)
		}
		rogue.run(fmt.Sprintf("ip -n r1 addr del %s/16 dev eth0", other))
		rogue.wantReach("r1", gateway, true)
	})
	t.Run("chosen MAC", func(t *testing.T) {
		was := strings.TrimSpace(rogue.run("ip netns exec r1 cat /sys/class/net/eth0/address"))
		rogue.run("ip -n r1 link set eth0 address 02:11:22:33:44:55")
		rogue.wantReach("r1", gateway, false)
		rogue.run("ip -n r1 link set eth0 address " + was)
		rogue.wantReach("r1", gateway, true)
	})
	t.Run("spoofed by the guest's own NIC", func(t *testing.T) {
		rogue.run(fmt.Sprintf("ip addr add %s/16 dev eth0", other))
		if out, err := rogue.try(fmt.Sprintf("busybox ping -c 2 -W 1 -I %s %s", other, gateway), ""); err == nil {
			t.Errorf("a packet from a pod's address was answered: %s", out)
		}
		rogue.run(fmt.Sprintf("ip addr del %s/16 dev eth0", other))
	})
	t.Run("NICs in the pool cannot send", func(t *testing.T) {
		// All NICs that belong neither to the guest nor to a pod get an address.
		rogue.run(`for d in /sys/class/net/*; do d=${d##*/}; case $d in lo|eth0|mgmt) continue;; esac
			ip addr add 10.201.200.9/16 dev $d; ip link set $d up; done`)
		if out, err := rogue.try("busybox ping -c 2 -W 1 -I 10.201.200.9 10.201.0.1", ""); err == nil {
			t.Errorf("a packet from a NIC in the pool was answered: %s", out)
		}
	})
	victim.wantReach("v1", mine, true)
	t.Run("revoked certificate", func(t *testing.T) { rogueCertificate(t, rogue, victim) })
	if _, err := victim.brfusion("DEL", "v1", nil); err != nil {
		t.Errorf("DEL in the victim: %v", err)
	}
}

func rogueRequests(t *testing.T, rogue, victim *node, their netip.Addr) {
	d := rogue.dialDaemon()
	for _, c := range []struct {
		name    string
		request *hostdpb.AttachNICRequest
		code    codes.Code
	}{
		{"foreign bridge", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Bridge: "mgmt0"}, codes.PermissionDenied},
		{"another pod's address", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Addresses: []string{their.String() + "/16"}}, codes.PermissionDenied},
		{"the gateway's address", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Addresses: []string{"10.201.0.1/16"}}, codes.PermissionDenied},
		{"another guest's address", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Addresses: []string{victim.TenantIP + "/16"}}, codes.PermissionDenied},
		{"an address outside", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Addresses: []string{"192.0.2.1/24"}}, codes.PermissionDenied},
		{"no address", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Addresses: []string{"x"}}, codes.InvalidArgument},
		{"MTU", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Mtu: 9000}, codes.InvalidArgument},
		{"reserved container", &hostdpb.AttachNICRequest{ContainerId: "@trunk", Interface: "trunk"}, codes.InvalidArgument},
		{"bad network", &hostdpb.AttachNICRequest{ContainerId: "x", Interface: "eth0", Network: "a b=c"}, codes.InvalidArgument},
		{"alias too long", &hostdpb.AttachNICRequest{
			ContainerId: strings.Repeat("x", 128), Interface: "abcdefghijklmno", Network: strings.Repeat("n", 63), Allocate: true,
			Bandwidth: &hostdpb.Bandwidth{IngressRate: 1e15, IngressBurst: 1e15, EgressRate: 1e15, EgressBurst: 1e15},
		}, codes.InvalidArgument},
	} {
		if _, err := d.AttachNIC(t.Context(), c.request); status.Code(err) != c.code {
			t.Errorf("%s: got %v, want %v", c.name, err, c.code)
		}
	}
	// The rogue guest cannot detach, check or collect the containers of the victim.
	before := victim.nodes.guestStatus("victim").Attachments
	if _, err := d.DetachNIC(t.Context(), &hostdpb.DetachNICRequest{ContainerId: "v1", Interface: "eth0"}); err != nil {
		t.Errorf("detach a container that the guest does not have: %v", err)
	}
	if _, err := d.Check(t.Context(), &hostdpb.CheckRequest{ContainerId: "v1", Interface: "eth0"}); status.Code(err) != codes.NotFound {
		t.Errorf("check a pod of the victim: got %v, want NotFound", err)
	}
	list, err := d.ListNICs(t.Context(), &hostdpb.ListNICsRequest{})
	if err != nil || strings.Contains(list.String(), "v1") {
		t.Errorf("NICs of the rogue guest: %v, %v; want none of the victim", list, err)
	}
	if _, err := d.GC(t.Context(), &hostdpb.GCRequest{Network: "none"}); err != nil {
		t.Error(err)
	}
	if after := victim.nodes.guestStatus("victim").Attachments; after != before {
		t.Errorf("attachments of the victim: %d, before: %d", after, before)
	}
}

// The name of a guest is in its certificate, which is useless without its key.
func rogueName(t *testing.T, rogue, victim *node) {
	theirs := victim.run("cat /etc/unnest/client.crt")
	_, err := tls.X509KeyPair([]byte(theirs), []byte(rogue.run("cat /etc/unnest/client.key")))
	if err == nil {
		t.Fatal("the key of the rogue guest matches the certificate of the victim")
	}
	for name, config := range map[string]*tls.Config{
		"no certificate": {InsecureSkipVerify: true},
		"self-made":      {InsecureSkipVerify: true, Certificates: []tls.Certificate{selfSigned(t, "unnest://guest/victim")}},
	} {
		conn, err := rogue.dial()
		if err != nil {
			t.Fatal(err)
		}
		secured := tls.Client(conn, config)
		_ = secured.HandshakeContext(t.Context()) // TLS 1.3 refuses a client certificate after the handshake
		_, _ = secured.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if n, err := secured.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: the daemon answered %d bytes", name, n)
		}
		conn.Close()
	}
}

func rogueGarbage(t *testing.T, rogue *node) {
	random := make([]byte, 1<<16)
	_, _ = rand.Read(random)
	for name, garbage := range map[string][]byte{"random": random, "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"), "nothing": nil} {
		conn, err := rogue.dial()
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = conn.Write(garbage) }() // ends with the connection, which may not read all
		answer := new(bytes.Buffer)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = answer.ReadFrom(conn)
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Errorf("%s: the daemon does not close the connection", name)
		}
		conn.Close()
	}
	if _, err := rogue.dialDaemon().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("after the garbage: %v", err)
	}
}

// Requests above the guest's rate wait, or are refused, while the daemon still serves the victim.
func rogueFlood(t *testing.T, rogue, victim *node) {
	d, theirs := rogue.dialDaemon(), victim.dialDaemon()
	limits := rogue.nodes.fleet.Policy.Tenants[0].Limits
	var served, others atomic.Int64
	var wg sync.WaitGroup
	const flood = 10 * time.Second
	begun := time.Now()
	for range 16 {
		wg.Go(func() {
			for time.Since(begun) < flood {
				switch _, err := d.Status(t.Context(), &hostdpb.StatusRequest{}); status.Code(err) {
				case codes.OK:
					served.Add(1)
				case codes.ResourceExhausted:
				default:
					others.Add(1)
				}
			}
		})
	}
	worst := time.Duration(0)
	for range 10 {
		begin := time.Now()
		if _, err := theirs.Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
			t.Errorf("request of the victim: %v", err)
		}
		worst = max(worst, time.Since(begin))
	}
	wg.Wait()
	most := float64(limits.Burst) + float64(limits.RequestsPerSecond)*time.Since(begun).Seconds()
	if n := served.Load(); limits.RequestsPerSecond == 0 || n < int64(limits.Burst)/2 || float64(n) > most+1 || others.Load() > 0 {
		t.Errorf("%d requests were served, want at most %.0f; %d failed", n, most, others.Load())
	}
	if worst > time.Minute {
		t.Errorf("a request of the victim took %v, want at most a minute", worst)
	}
	t.Logf("%d requests were served of at most %.0f; the victim waited at most %v", served.Load(), most, worst)
}

// The daemon closes connections beyond the limit of an address, and still serves the victim.
func rogueConnections(t *testing.T, rogue, victim *node) {
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 100 {
		if c, err := rogue.dial(); err == nil {
			open = append(open, c)
		}
	}
	if _, err := victim.dialDaemon().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("request of the victim: %v", err)
	}
}
