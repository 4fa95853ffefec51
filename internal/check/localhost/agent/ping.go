package agent

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// pinger sends echo requests to one address of a family.
type pinger struct {
	*icmp.PacketConn
	to        net.Addr
	request   icmp.Type
	reply     icmp.Type
	protocol  int // of ICMP, for parsing
	id        int
	kernelsID bool // the kernel chose the identifier: the socket receives only its own replies
	size      int
}

// newPinger opens a ping socket, which needs no privilege if the group is in
// net.ipv4.ping_group_range, or else a raw socket.
func newPinger(o Ping) (*pinger, error) {
	ip := net.ParseIP(o.Address)
	if ip == nil {
		return nil, fmt.Errorf("ping %q: want an IP address", o.Address)
	}
	p := &pinger{request: ipv4.ICMPTypeEcho, reply: ipv4.ICMPTypeEchoReply, protocol: unix.IPPROTO_ICMP,
		id: rand.IntN(1 << 16), size: max(o.Size, 8)}
	ping, raw, local := "udp4", "ip4:icmp", "0.0.0.0"
	if ip.To4() == nil {
		p.request, p.reply, p.protocol = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, unix.IPPROTO_ICMPV6
		ping, raw, local = "udp6", "ip6:ipv6-icmp", "::"
	}
	var err, rawErr error
	if p.PacketConn, err = icmp.ListenPacket(ping, local); err == nil {
		p.to, p.kernelsID = &net.UDPAddr{IP: ip}, true
		return p, nil
	}
	if p.PacketConn, rawErr = icmp.ListenPacket(raw, local); rawErr != nil {
		return nil, fmt.Errorf("open a ping socket: %w; open a raw socket: %w", err, rawErr)
	}
	p.to = &net.IPAddr{IP: ip}
	if err := p.onlyReplies(); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("set the filter of a raw socket: %w", err)
	}
	return p, nil
}

// onlyReplies filters requests, which loopback delivers to a raw socket, too.
func (p *pinger) onlyReplies() error {
	if c := p.IPv6PacketConn(); c != nil {
		var f ipv6.ICMPFilter
		f.SetAll(true)
		f.Accept(ipv6.ICMPTypeEchoReply)
		return c.SetICMPFilter(&f)
	}
	var f ipv4.ICMPFilter
	f.SetAll(true)
	f.Accept(ipv4.ICMPTypeEchoReply)
	return p.IPv4PacketConn().SetICMPFilter(&f)
}

// data is different for each request.
func (p *pinger) data(seq int) []byte { return message(uint64(p.id)<<16|uint64(seq), p.size) }

func (p *pinger) send(seq int) error {
	m := icmp.Message{Type: p.request, Body: &icmp.Echo{ID: p.id, Seq: seq, Data: p.data(seq)}}
	text, err := m.Marshal(nil) // the kernel fills in ICMPv6's checksum
	if err != nil {
		return err
	}
	_, err = p.WriteTo(text, p.to)
	return err
}

// next returns the sequence number of the next reply.
func (p *pinger) next(until time.Time) (int, error) {
	_ = p.SetReadDeadline(until) // if this fails, so does the next call
	for buffer := make([]byte, 1<<16); ; {
		n, _, err := p.ReadFrom(buffer)
		if err != nil {
			return 0, err
		}
		m, err := icmp.ParseMessage(p.protocol, buffer[:n])
		if err != nil || m.Type != p.reply {
			continue // a raw socket receives the packets of others, too
		}
		if e := m.Body.(*icmp.Echo); (p.kernelsID || e.ID == p.id) && bytes.Equal(e.Data, p.data(e.Seq)) {
			return e.Seq, nil
		}
	}
}

// ping counts every reply after the first to a request as a duplicate.
func (j *job) ping(o Ping) (Pinged, error) {
	p, err := newPinger(o)
	if err != nil {
		return Pinged{}, err
	}
	defer p.Close()
	var answer Pinged
	replied := map[int]bool{}
	await := func(seq int, until time.Time) error {
		for !replied[seq] {
			got, err := p.next(until)
			if err != nil {
				return err
			}
			if replied[got] {
				answer.Duplicates++
			}
			replied[got] = true
		}
		return nil
	}
	for seq := 1; seq <= o.Times; seq++ {
		if err := p.send(seq); err != nil {
			return answer, err
		}
		if err := await(seq, time.Now().Add(j.patience)); err != nil && codeOf(err) != Timeout {
			return answer, err
		}
	}
	// There is no request 0: this waits for additional replies.
	if err := await(0, time.Now().Add(4*j.quiet())); err == nil {
		return answer, errors.New("received a reply without a request")
	} else if codeOf(err) != Timeout {
		return answer, err
	}
	answer.Replies = len(replied)
	return answer, nil
}
