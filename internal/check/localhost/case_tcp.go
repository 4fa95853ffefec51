package localhost

import (
	"net"
	"slices"
	"strings"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// everyServer has each fraction serve on an address in turn, and all others call it.
func (t *trial) everyServer(network, host string) {
	for _, f := range t.fractions {
		t.reach(t.others(f), t.serverOn(f, network, host, agent.Echo))
	}
}

// ownServer has each fraction call its own server.
func (t *trial) ownServer(network string) {
	each(t.fractions, func(f *fraction) {
		t.reach([]*fraction{f}, t.serverOn(f, network, t.loopback, agent.Echo))
	})
}

// tcpDualStack binds [::] for both families, as Java and Node.js do.
func tcpDualStack(t *trial) {
	for _, f := range t.fractions {
		port := t.ports.take()
		s := t.serve(f, ipv6.loopback, agent.Serve{Network: "tcp", Address: at(ipv6.any, port), Kind: agent.Echo})
		for _, family := range []family{ipv6, ipv4} {
			s.network, s.address = family.tcp, at(family.loopback, port)
			t.reach(t.others(f), s)
		}
	}
}

// eachForItself has all fractions serve, each with its own name.
func (t *trial) eachForItself(network string) {
	var servers []*server
	for _, f := range t.fractions {
		servers = append(servers, t.serverOn(f, network, t.loopback, agent.Name))
	}
	t.eachAnswersForItself(servers)
}

// eachAnswersForItself has all fractions call all Name servers at the same time.
func (t *trial) eachAnswersForItself(servers []*server) {
	each(t.fractions, func(f *fraction) {
		for _, s := range servers {
			t.says(f, s)
		}
	})
}

// says ends the case unless a Name server answers with its own name.
func (t *trial) says(f *fraction, s *server) {
	var attempts agent.Attempts
	if strings.HasPrefix(s.network, "udp") {
		attempts = do(t, f, agent.Datagrams{Network: s.network, Address: s.address, Connected: true, Named: true, Sizes: []int{1, 1, 1}})
	} else {
		attempts = do(t, f, agent.Connect{Network: s.network, Address: s.address, Times: 3})
	}
	t.allEnd(f, "call the server of "+s.fraction.String(), attempts, success)
	for _, a := range attempts {
		if a.Said != s.fraction.String() {
			check.Failf("%s: the server of %s answered as %q", f, s.fraction, a.Said)
		}
	}
}

// tcpAddresses compares getsockname and getpeername of both ends.
func tcpAddresses(t *trial) {
	s := t.serverOn(t.fraction(1), t.tcp, t.any, agent.Echo)
	attempts := map[*fraction]agent.Attempts{}
	for _, f := range t.fractions {
		attempts[f] = t.attempt(f, t.tcp, s.address, 2)
		t.allEnd(f, "call the server of fraction 1", attempts[f], success)
	}
	seen := do(t, s.fraction, agent.Report{Handle: s.handle})
	for _, f := range t.fractions {
		for _, a := range attempts[f] {
			if host, _, _ := net.SplitHostPort(a.Local); host != t.loopback || a.Peer != s.address {
				check.Failf("%s: a connection has the local address %s and the peer %s; want %s and %s", f, a.Local, a.Peer, t.loopback, s.address)
			}
			if !slices.ContainsFunc(seen.Conns, func(c agent.Conn) bool { return c.Local == a.Peer && c.Remote == a.Local }) {
				check.Failf("%s: the server saw no connection from %s to %s, but %v", f, a.Local, a.Peer, seen.Conns)
			}
		}
	}
}

func tcpServerOnDevice(t *trial) {
	for _, f := range t.fractions {
		s := t.serve(f, t.loopback, agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Echo, Device: "lo"})
		t.reach(t.others(f), s)
	}
}

func tcpClientOnDevice(t *trial) {
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Device: "lo", Times: 3, Message: 5})
}

// tcpFixedClientPort has clients on ports outside all ephemeral ranges.
func tcpFixedClientPort(t *trial) {
	s := t.tcpEcho()
	for _, f := range t.others(s.fraction) {
		t.eachConnects([]*fraction{f}, agent.Connect{Network: t.tcp, Address: s.address, Local: t.newAddress(t.loopback), Times: 1, Message: 5})
	}
}

func tcpMultipath(t *trial) {
	s := t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Echo, Multipath: true})
	for _, multipath := range []bool{true, false} {
		t.eachConnects(t.others(s.fraction), agent.Connect{Network: t.tcp, Address: s.address, Multipath: multipath, Times: 3, Message: 1 << 16})
	}
}

// tcpCases check TCP between fractions.
var tcpCases = []testCase{
	{"server-on-loopback-is-reached-by-all-others", false, both, func(t *trial) { t.everyServer(t.tcp, t.loopback) }},
	{"server-on-any-address-is-reached-by-all-others", false, both, func(t *trial) { t.everyServer(t.tcp, t.any) }},
	{"server-is-reached-by-its-own-fraction", true, both, func(t *trial) { t.ownServer(t.tcp) }},
	{"dual-stack-server-is-reached-by-both-families", false, onlyIPv6, tcpDualStack},
	{"each-server-answers-for-itself", false, both, func(t *trial) { t.eachForItself(t.tcp) }},
	{"both-ends-see-the-same-loopback-addresses", false, both, tcpAddresses},
	{"server-bound-to-device-lo-is-reached", false, both, tcpServerOnDevice},
	{"client-bound-to-device-lo-reaches-servers", false, both, tcpClientOnDevice},
	{"client-on-a-fixed-port-reaches-servers", false, both, tcpFixedClientPort},
	{"multipath-connections-work", false, both, tcpMultipath},

	{"dead-port-is-refused-at-once", true, both, func(t *trial) { t.deadPort(t.tcp, 30) }},
	{"dead-port-refuses-data-in-the-syn-at-once", true, both, tcpFastOpenRefused},
	{"port-of-a-stopped-server-is-refused-at-once", false, both, func(t *trial) { t.refusedOnceStopped(t.tcpEcho()) }},
	{"refused-port-is-reached-once-its-server-is-there", false, both, tcpLateServer},
	{"server-moves-between-fractions", false, both, tcpMoves},
	{"client-of-a-killed-server-is-told-at-once", false, both, tcpKilled},
	{"port-of-a-killed-server-is-refused-at-once", false, both, func(t *trial) { t.refusedOnceStopped(t.serverInProcess()) }},
	{"reset-of-the-client-reaches-the-server", false, both, tcpReset},

	{"many-short-connections-are-never-reset", false, both, tcpChurn},
	{"simultaneous-connects-all-succeed", false, both, tcpSimultaneous},
	{"thousands-of-connections-live-side-by-side", false, both, tcpThousands},
	{"thousands-of-connects-to-a-dead-port-are-refused", true, both, tcpThousandsRefused},
	{"full-backlog-is-not-refused", false, both, tcpFullBacklog},
	{"connects-beyond-the-backlog-succeed-once-accepted", false, both, tcpLateAccept},
	{"held-connections-of-all-pairs-live-side-by-side", false, both, tcpSideBySide},

	{"outgoing-connections-never-share-a-port", false, both, tcpOutgoing},
	{"listener-on-a-foreign-ephemeral-port-is-reached", false, both, tcpEphemeralListener},
	{"client-on-the-port-of-a-foreign-listener-disturbs-nobody", false, both, tcpClientOnListenersPort},
	{"client-on-the-port-of-its-server-does-not-reach-itself", false, both, tcpClientOnItsServersPort},
	{"first-of-two-clients-on-one-fixed-port-goes-on", false, both, func(t *trial) { t.twoClientsOnePort() }},

	{"bulk-both-ways-arrives-whole", false, both, func(t *trial) { t.bulk(t.fraction(2), t.fraction(1), 20<<20) }},
	{"bulk-within-a-fraction-arrives-whole", true, both, func(t *trial) { t.bulk(t.fraction(2), t.fraction(2), 20<<20) }},
	{"bulk-of-all-fractions-at-once-arrives-whole", false, both, tcpBulkRing},
	{"traffic-within-a-fraction-leaves-by-no-interface", true, both, tcpStaysInside},
	{"segments-are-larger-than-16-KiB", false, both, tcpSegments},
	{"large-request-arrives-whole-after-a-half-close", false, both, tcpLargeRequest},
	{"large-response-arrives-whole", false, both, tcpLargeResponse},
	{"server-that-half-closes-still-receives", false, both, tcpServerHalfCloses},
	{"urgent-bytes-keep-their-place", false, both, tcpUrgent},
}

// transfer moves a stream between a client and a server of a kind.
func (t *trial) transfer(client, serving *fraction, kind agent.Kind, size int64) (*server, agent.Transferred) {
	s := t.tcpServer(serving, kind)
	return s, do(t, client, agent.Transfer{Network: t.tcp, Address: s.address, Kind: kind, Size: size})
}

// bulk sends a stream from a client to a server and back.
func (t *trial) bulk(client, serving *fraction, size int64) agent.Transferred {
	_, moved := t.transfer(client, serving, agent.Echo, size)
	if moved.Sent != size || moved.Received != size || moved.SentSum != moved.ReceivedSum {
		check.Failf("%s: sent %d of %d bytes with checksum %x, received %d with checksum %x",
			client, moved.Sent, size, moved.SentSum, moved.Received, moved.ReceivedSum)
	}
	return moved
}

func tcpBulkRing(t *trial) {
	each(t.fractions, func(f *fraction) { t.bulk(f, t.fraction(f.number+1), 4<<20) })
}

// tcpStaysInside compares the traffic of other interfaces before and after a bulk
// transfer, which is larger than any other traffic.
func tcpStaysInside(t *trial) {
	const size = 16 << 20
	f := t.fraction(2)
	before := do(t, f, agent.Traffic{})
	t.bulk(f, f, size)
	after := do(t, f, agent.Traffic{})
	if sent := after.Bytes - before.Bytes; sent > size/16 {
		check.Failf("%s: while %d bytes went to its own server, %d bytes left by interfaces other than lo", f, size, sent)
	}
}

// tcpSegments checks the segment size that both ends have negotiated. lo allows 64 KiB, of
// which the kernel may use half a window.
func tcpSegments(t *trial) {
	const least = 16 << 10
	if moved := t.bulk(t.fraction(2), t.fraction(1), 4<<20); moved.MSS <= least {
		check.Failf("segments between fractions have at most %d bytes, want more than %d", moved.MSS, least)
	}
}

const large = 8 << 20

// tcpLargeRequest sends a large request. The server answers after it has all of it.
func tcpLargeRequest(t *trial) {
	_, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Tally, large)
	if want := agent.TallyText(large, moved.SentSum); moved.Sent != large || moved.Said != want {
		check.Failf("the server received %q, want %q", moved.Said, want)
	}
}

func tcpLargeResponse(t *trial) {
	_, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Source, large)
	if want := agent.StreamSum(large); moved.Received != large || moved.ReceivedSum != want {
		check.Failf("received %d bytes with checksum %x, want %d with %x", moved.Received, moved.ReceivedSum, large, want)
	}
}

// tcpServerHalfCloses has the server close its direction before the client sends.
func tcpServerHalfCloses(t *trial) {
	s, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Greet, large)
	if moved.Said != s.fraction.String() {
		check.Failf("the server sent %q, want %q", moved.Said, s.fraction)
	}
	t.eventually(func() {
		seen := do(t, s.fraction, agent.Report{Handle: s.handle})
		if len(seen.Conns) != 1 || seen.Conns[0].Received != large || seen.Conns[0].Sum != moved.SentSum || seen.Conns[0].End != agent.End {
			check.Failf("the client sent %d bytes with checksum %x and closed; the server saw %+v", large, moved.SentSum, seen.Conns)
		}
	})
}

func tcpUrgent(t *trial) {
	c := t.holdOne(t.fraction(2), t.tcpEcho())
	attempts := do(t, c.fraction, agent.Exchange{Handle: c.handle, Times: 5, Size: 1001, Urgent: true})
	t.allEnd(c.fraction, "exchange messages with an urgent byte", attempts, success)
}
