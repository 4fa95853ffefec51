package cni

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
)

func TestParsePeer(t *testing.T) {
	for _, good := range []string{"10.0.0.1", "fd00::1", "tcp://10.0.0.1:80", "udp://[fd00::1]:53"} {
		p, err := ParsePeer(good)
		if err != nil || p.String() != good {
			t.Errorf("%s: %s, %v", good, p, err)
		}
	}
	for _, bad := range []string{"", "host", "10.0.0.1:80", "tcp://10.0.0.1", "http://10.0.0.1:80", "tcp://host:80"} {
		if p, err := ParsePeer(bad); err == nil || !strings.Contains(err.Error(), "want ADDRESS") {
			t.Errorf("%q: %s, %v", bad, p, err)
		}
	}
}

// TestReach reaches servers of this process in a network namespace.
func TestReach(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	p, err := newPod()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	}()
	var tcp net.Listener
	var udp net.PacketConn
	err = ns.WithNetNSPath(p.path, func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		if tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	go echo(udp)
	for _, peer := range []string{"127.0.0.1", "::1", "tcp://" + tcp.Addr().String(), "udp://" + udp.LocalAddr().String()} {
		if err := parsed(t, peer).reach(t.Context(), p.path, time.Minute); err != nil {
			t.Error(err)
		}
	}
	udp.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	for _, peer := range []string{"192.0.2.1", "2001:db8::1", "tcp://127.0.0.1:1", "udp://" + udp.LocalAddr().String()} {
		if err := parsed(t, peer).reach(ctx, p.path, time.Minute); err == nil || !strings.Contains(err.Error(), "reach "+peer+" from the pod: ") {
			t.Errorf("%s: %v", peer, err)
		}
	}
}

func parsed(t *testing.T, peer string) Peer {
	t.Helper()
	p, err := ParsePeer(peer)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func echo(c net.PacketConn) {
	for b := make([]byte, 100); ; {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], from)
	}
}

func TestLatency(t *testing.T) {
	var samples []time.Duration
	for i := range 200 {
		samples = append(samples, time.Duration(200-i))
	}
	if got, want := latencyOf(samples), (Latency{P50: 100, P90: 180, P99: 198, Max: 200}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := latencyOf([]time.Duration{7}), (Latency{7, 7, 7, 7}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := latencyOf(nil); got != (Latency{}) {
		t.Errorf("got %v", got)
	}
}
