package cni

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// Peer is an address that a pod must reach, and the protocol that tests it.
type Peer struct {
	network string // icmp, tcp, udp
	addr    netip.AddrPort
}

// ParsePeer reads ADDRESS, which must answer a ping, tcp://ADDRESS:PORT, which must accept
// a connection, or udp://ADDRESS:PORT, which must answer a datagram.
func ParsePeer(s string) (Peer, error) {
	if network, rest, ok := strings.Cut(s, "://"); ok && (network == "tcp" || network == "udp") {
		if addr, err := netip.ParseAddrPort(rest); err == nil {
			return Peer{network, addr}, nil
		}
	} else if addr, err := netip.ParseAddr(s); err == nil {
		return pinged(addr), nil
	}
	return Peer{}, fmt.Errorf("peer %q: want ADDRESS, tcp://ADDRESS:PORT or udp://ADDRESS:PORT", s)
}

func pinged(a netip.Addr) Peer { return Peer{"icmp", netip.AddrPortFrom(a, 0)} }

// String returns the form that ParsePeer reads.
func (p Peer) String() string {
	if p.network == "icmp" {
		return p.addr.Addr().String()
	}
	return p.network + "://" + p.addr.String()
}

// Time limits for one reply of a peer. The kernel resolves a neighbour that has moved only
// after some seconds, and a busy emulated guest is slow to answer.
const (
	firstReply = 250 * time.Millisecond
	lateReply  = 5 * time.Second
)

// reach sends packets from the network namespace until the peer answers, for as long as
// limit.
func (p Peer) reach(ctx context.Context, netns string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	for wait := firstReply; ctx.Err() == nil; wait = min(2*wait, lateReply) {
		if err = p.try(ctx, netns, wait); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("reach %s from the pod: %w", p, errors.Join(context.Cause(ctx), err))
}

// try sends once and waits for the reply.
func (p Peer) try(ctx context.Context, netns string, wait time.Duration) error {
	if p.network == "icmp" {
		return p.ping(netns, wait)
	}
	ctx, cancel := context.WithTimeout(ctx, 4*wait) // a connection may need a second SYN
	defer cancel()
	var c net.Conn
	err := ns.WithNetNSPath(netns, func(ns.NetNS) (err error) {
		c, err = new(net.Dialer).DialContext(ctx, p.network, p.addr.String())
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	if p.network == "tcp" {
		return nil
	}
	if _, err := c.Write([]byte("unnest\n")); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1500))
	return err
}

// family is what differs between ICMP and ICMPv6.
type family struct {
	network, any   string
	request, reply icmp.Type
	protocol       int
}

func familyOf(a netip.Addr) family {
	if a.Is6() {
		return family{"ip6:ipv6-icmp", "::", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58}
	}
	return family{"ip4:icmp", "0.0.0.0", ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1}
}

// ping sends one echo request and waits for its reply.
func (p Peer) ping(netns string, wait time.Duration) error {
	f := familyOf(p.addr.Addr())
	var c *icmp.PacketConn
	err := ns.WithNetNSPath(netns, func(ns.NetNS) (err error) {
		c, err = icmp.ListenPacket(f.network, f.any)
		return err
	})
	if err != nil {
		return err
	}
	defer c.Close()
	id := rand.Uint32()
	echo := &icmp.Echo{ID: int(id & 0xffff), Seq: 1, Data: binary.BigEndian.AppendUint32(nil, id)}
	request, err := (&icmp.Message{Type: f.request, Body: echo}).Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(request, &net.IPAddr{IP: p.addr.Addr().AsSlice()}); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	return awaitReply(c, f, echo)
}

// awaitReply waits for the reply to sent and ignores other packets.
func awaitReply(c *icmp.PacketConn, f family, sent *icmp.Echo) error {
	for b := make([]byte, 1500); ; {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return err
		}
		m, err := icmp.ParseMessage(f.protocol, b[:n])
		if err != nil || m.Type != f.reply {
			continue
		}
		if e, ok := m.Body.(*icmp.Echo); ok && e.ID == sent.ID && string(e.Data) == string(sent.Data) {
			return nil
		}
	}
}
