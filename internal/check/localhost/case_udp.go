package localhost

import (
	"fmt"
	"slices"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// udpCases check UDP between fractions.
var udpCases = []testCase{
	{"server-on-loopback-answers-all-others", false, both, func(t *trial) { t.everyServer(t.udp, t.loopback) }},
	{"server-on-any-address-answers-all-others", false, both, func(t *trial) { t.everyServer(t.udp, t.any) }},
	{"server-answers-its-own-fraction", true, both, func(t *trial) { t.ownServer(t.udp) }},
	{"unconnected-clients-are-answered-from-where-they-sent-to", false, both, udpUnconnected},
	{"each-server-answers-for-itself", false, both, func(t *trial) { t.eachForItself(t.udp) }},
	{"answer-from-another-port-arrives", false, both, udpElsewhere},
	{"client-on-a-fixed-port-is-answered", false, both, udpFixedClientPort},
	{"two-clients-on-one-fixed-port-get-their-own-answers", false, both, udpTwoClientsOnePort},
	{"clients-in-turn-on-one-fixed-port-are-answered-from-another-port", false, both, udpElsewhereInTurn},
	{"client-bound-to-device-lo-is-answered", false, both, udpClientOnDevice},

	{"dead-port-is-refused-at-once", true, both, func(t *trial) { t.deadPort(t.udp, 10) }},
	{"first-datagram-to-a-dead-port-is-refused-at-once", true, both, udpFirstRefused},
	{"server-moves-with-at-most-one-error", false, both, udpMoves},
	{"server-moves-unnoticed-after-one-datagram", false, both, udpMovesUnnoticed},

	{"one-way-datagrams-arrive-exactly-once", false, both, udpOneWay},
	{"burst-of-one-way-datagrams-arrives", false, both, udpBurst},
	{"60000-bytes-come-back-whole", false, both, udpSizes(60000)},
	{"65480-bytes-come-back-whole", false, both, udpSizes(65480)},
	{"65500-bytes-come-back-whole", false, onlyIPv4, udpSizes(65500)},
	{"largest-unfragmented-datagram-comes-back-whole", false, both, func(t *trial) { udpSizes(t.largest)(t) }},
	{"datagrams-of-any-size-come-back-whole", false, both, udpSizes(0, 1, 17, 18, 19, 511, 512, 1399, 1400, 1472, 1473, 1500, 4096, 8972, 9000, 16383, 32768, 65000)},
	{"buffer-cut-by-the-kernel-arrives-whole", false, both, udpSegments},
}

func repeat(size, times int) []int { return slices.Repeat([]int{size}, times) }

// udpUnconnected has a server on any address, which must answer from loopback.
func udpUnconnected(t *trial) {
	for _, f := range t.fractions {
		s := t.serverOn(f, t.udp, t.any, agent.Echo)
		t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Sizes: repeat(10, 20)})
	}
}

func udpElsewhere(t *trial) {
	s := t.udpServer(t.fraction(1), agent.Elsewhere)
	t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Anyone: true, Sizes: repeat(100, 5)})
}

// udpElsewhereInTurn has clients of all fractions call from one port, each after the former has ended.
func udpElsewhereInTurn(t *trial) {
	s, local := t.udpServer(t.fraction(1), agent.Elsewhere), t.newAddress(t.loopback)
	for _, f := range append(t.others(s.fraction), s.fraction) {
		t.eachAsks([]*fraction{f}, agent.Datagrams{Network: t.udp, Address: s.address, Local: local, Anyone: true, Sizes: repeat(10, 3)})
	}
}

// udpFixedClientPort has clients on ports outside all ephemeral ranges.
func udpFixedClientPort(t *trial) {
	s := t.udpServer(t.fraction(1), agent.Echo)
	each(t.others(s.fraction), func(f *fraction) {
		for _, connected := range []bool{true, false} {
			t.eachAsks([]*fraction{f}, agent.Datagrams{Network: t.udp, Address: s.address, Local: t.newAddress(t.loopback),
				Connected: connected, Sizes: repeat(10, 5)})
		}
	})
}

func udpClientOnDevice(t *trial) {
	s := t.udpServer(t.fraction(1), agent.Echo)
	t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Device: "lo", Connected: true, Sizes: repeat(10, 5)})
}

// udpFirstRefused uses a new port for each fraction, so that no earlier datagram can have
// shown that it is dead.
func udpFirstRefused(t *trial) {
	for _, f := range t.fractions {
		t.refused(f, t.udp, t.newAddress(t.loopback), 1)
	}
}

// udpMoves moves a server through all fractions while a client keeps its socket. Datagrams
// that the client sends while there is no server are refused. After each move, one
// datagram may be lost.
func udpMoves(t *trial) {
	r := agent.Serve{Network: t.udp, Address: t.newAddress(t.loopback), Kind: agent.Echo}
	client, _ := t.hold(t.fraction(2), agent.Hold{Network: t.udp, Address: r.Address, Times: 1})
	once := agent.Exchange{Handle: client.handle, Times: 1, Size: 5}
	for k := 1; k <= len(t.fractions)+1; k++ {
		s := t.serve(t.fraction(k), t.loopback, r)
		first := do(t, client.fraction, once)
		check.Within(fmt.Sprintf("server in %s, after the first datagram ended with %s", s.fraction, word(first[0].Code)),
			func() { t.exchange(client, 10) })
		t.stop(&s.running)
		t.allEndAtOnce(client.fraction, "call the stopped server of "+s.fraction.String(), do(t, client.fraction, once), refusal)
	}
}

// udpMovesUnnoticed moves a server that each time has answered one datagram. The client sends none meanwhile.
func udpMovesUnnoticed(t *trial) {
	r := agent.Serve{Network: t.udp, Address: t.newAddress(t.loopback), Kind: agent.Echo}
	s := t.serve(t.fraction(1), t.loopback, r)
	client := t.holdOne(t.fraction(2), s)
	for _, k := range []int{3, 1} {
		t.exchange(client, 1)
		time.Sleep(t.patience / 10) // a copy of the datagram on its way would reach the next server, too
		t.stop(&s.running)
		s = t.serve(t.fraction(k), t.loopback, r)
	}
	t.exchange(client, 1)
}

// udpOneWay has all other fractions send to one. Every datagram must arrive once.
func udpOneWay(t *trial) {
	const count = 1000
	sink := t.udpServer(t.fraction(1), agent.Sink)
	senders := t.others(sink.fraction)
	each(senders, func(f *fraction) {
		failed := do(t, f, agent.Pour{Network: t.udp, Address: sink.address, From: f.String(), Count: count, Gap: 500 * time.Microsecond})
		if len(failed) > 0 {
			check.Failf("%s: could not send %d of %d datagrams: %s", f, len(failed), count, failed[0])
		}
	})
	t.counted(sink, agent.Seen{Datagrams: count * len(senders), Distinct: count * len(senders)})
}

// udpBurst has each other fraction send to one as fast as it can. Every datagram must
// arrive once.
func udpBurst(t *trial) {
	count := t.size(2000, 20000)
	for _, f := range t.others(t.fraction(1)) {
		sink := t.udpServer(t.fraction(1), agent.Sink)
		failed := do(t, f, agent.Pour{Network: t.udp, Address: sink.address, From: f.String(), Count: count})
		if len(failed) > 0 {
			check.Failf("%s: could not send %d of %d datagrams: %s", f, len(failed), count, failed[0])
		}
		t.counted(sink, agent.Seen{Datagrams: count, Distinct: count})
	}
}

// udpTwoClientsOnePort has two fractions call one server from the same address. One
// loopback does not allow that; if it is allowed, each must get its own answers.
func udpTwoClientsOnePort(t *trial) {
	s := t.udpServer(t.fraction(3), agent.Echo)
	local := t.newAddress(t.loopback)
	r := agent.Hold{Network: t.udp, Address: s.address, Local: local, Times: 1}
	first, _ := t.hold(t.fraction(1), r)
	bound, err := try(t, t.fraction(2), agent.Bind{Network: t.udp, Address: local, Times: 1})
	if hasCode(err, inUse) {
		t.exchange(first, 3)
		t.reach([]*fraction{t.fraction(2)}, s)
		return
	}
	check.Must(err)
	do(t, t.fraction(2), agent.Stop{Handle: bound.Handle})
	second, _ := t.hold(t.fraction(2), r)
	for range 3 {
		t.exchange(first, 1)
		t.exchange(second, 1)
	}
}

// counted waits until a sink has received what it should, and then checks that no more
// arrives.
func (t *trial) counted(sink *server, want agent.Seen) {
	count := func() {
		seen := do(t, sink.fraction, agent.Report{Handle: sink.handle})
		if seen.Datagrams != want.Datagrams || seen.Distinct != want.Distinct || want.Bytes > 0 && seen.Bytes != want.Bytes {
			check.Failf("%d datagrams were sent; %d arrived, %d of them distinct, with %d bytes",
				want.Datagrams, seen.Datagrams, seen.Distinct, seen.Bytes)
		}
	}
	t.eventually(count)
	time.Sleep(t.patience / 10)
	count()
}

// udpSizes sends one datagram of each size, or several if there is one size.
func udpSizes(sizes ...int) func(*trial) {
	if len(sizes) == 1 {
		sizes = repeat(sizes[0], 5)
	}
	return func(t *trial) {
		s := t.udpServer(t.fraction(1), agent.Echo)
		t.eachAsks(t.others(s.fraction), agent.Datagrams{Network: t.udp, Address: s.address, Connected: true, Sizes: sizes})
	}
}

// udpSegments sends one buffer that the kernel or the NIC cuts, as QUIC does.
func udpSegments(t *trial) {
	const size, count = 1400, 10
	sink := t.udpServer(t.fraction(1), agent.Sink)
	failed := do(t, t.fraction(2), agent.Segments{Network: t.udp, Address: sink.address, Size: size, Count: count})
	if len(failed) > 0 {
		check.Failf("%s: could not send the buffer: %s", t.fraction(2), failed[0])
	}
	t.counted(sink, agent.Seen{Datagrams: count, Distinct: count, Bytes: size * count})
}
