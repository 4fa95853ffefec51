package localhost

import (
	"fmt"
	"time"

	"unnest/internal/check/localhost/agent"
)

// udpCases ask for UDP between fractions.
var udpCases = []Case{
	{"udp", "server-on-loopback-answers-all-others", false, both, func(t *trial) error { return t.everyServer(t.udp, t.loopback) }},
	{"udp", "server-on-any-address-answers-all-others", false, both, func(t *trial) error { return t.everyServer(t.udp, t.any) }},
	{"udp", "server-answers-its-own-fraction", true, both, func(t *trial) error { return t.ownServer(t.udp) }},
	{"udp", "unconnected-clients-are-answered-from-where-they-sent-to", false, both, udpUnconnected},
	{"udp", "each-server-answers-for-itself", false, both, func(t *trial) error { return t.eachForItself(t.udp) }},
	{"udp", "answer-from-another-port-arrives", false, both, udpElsewhere},
	{"udp", "client-on-a-fixed-port-is-answered", false, both, udpFixedClientPort},
	{"udp", "client-bound-to-device-lo-is-answered", false, both, udpClientOnDevice},

	{"udp", "dead-port-is-refused-at-once", true, both, func(t *trial) error { return t.deadPort(t.udp, 10) }},
	{"udp", "first-datagram-to-a-dead-port-is-refused-at-once", true, both, udpFirstRefused},
	{"udp", "server-moves-with-at-most-one-error", false, both, udpMoves},

	{"udp", "one-way-datagrams-arrive-exactly-once", false, both, udpOneWay},
	{"udp", "60000-bytes-come-back-whole", false, both, udpSizes(60000)},
	{"udp", "65480-bytes-come-back-whole", false, both, udpSizes(65480)},
	{"udp", "65500-bytes-come-back-whole", false, onlyIPv4, udpSizes(65500)},
	{"udp", "largest-unfragmented-datagram-comes-back-whole", false, both, func(t *trial) error { return udpSizes(t.largest)(t) }},
	{"udp", "datagrams-of-any-size-come-back-whole", false, both, udpSizes(0, 1, 17, 18, 19, 511, 512, 1399, 1400, 1472, 1473, 1500, 4096, 8972, 9000, 16383, 32768, 65000)},
	{"udp", "buffer-cut-by-the-kernel-arrives-whole", false, both, udpSegments},
	{"udp", "sockets-on-port-0-never-share-a-port", false, both, func(t *trial) error { return t.givenPorts(t.udp) }},
}

// eachAsks returns an error unless every datagram of every fraction is answered.
func (t *trial) eachAsks(fractions []*fraction, o agent.Datagrams) error {
	return each(fractions, func(f *fraction) error {
		attempts, err := do(t, f, o)
		if err != nil {
			return err
		}
		return t.all(f, "send datagrams to "+o.Address, attempts, "")
	})
}

// udpUnconnected has a server on any address, which has to answer from loopback.
func udpUnconnected(t *trial) error {
	for _, f := range t.fractions {
		s, err := t.serverOn(f, t.udp, t.any, agent.Echo)
		if err != nil {
			return err
		}
		if err := t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Sizes: repeat(10, 20)}); err != nil {
			return err
		}
	}
	return nil
}

func udpElsewhere(t *trial) error {
	s, err := t.udpServer(t.fraction(1), agent.Elsewhere)
	if err != nil {
		return err
	}
	return t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Anyone: true, Sizes: repeat(100, 5)})
}

// udpFixedClientPort has clients on ports that are in no ephemeral range.
func udpFixedClientPort(t *trial) error {
	s, err := t.udpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return each(t.others(s.fraction), func(f *fraction) error {
		for _, connected := range []bool{true, false} {
			local, err := t.dead(t.loopback)
			if err != nil {
				return err
			}
			if err := t.eachAsks([]*fraction{f}, agent.Datagrams{Network: t.udp, Address: s.address, Local: local,
				Connected: connected, Sizes: repeat(10, 5)}); err != nil {
				return err
			}
		}
		return nil
	})
}

func udpClientOnDevice(t *trial) error {
	s, err := t.udpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachAsks(t.fractions, agent.Datagrams{Network: t.udp, Address: s.address, Device: "lo", Connected: true, Sizes: repeat(10, 5)})
}

// udpFirstRefused has no earlier datagram to learn from, from no fraction.
func udpFirstRefused(t *trial) error {
	for _, f := range t.fractions {
		address, err := t.dead(t.loopback)
		if err != nil {
			return err
		}
		if err := t.refused(f, t.udp, address, 1); err != nil {
			return err
		}
	}
	return nil
}

// udpMoves has a server go round all fractions under a client that keeps its socket.
// What the client sends while nobody is there is refused; of what it sends
// afterwards, one may be lost.
func udpMoves(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	order := agent.Serve{Network: t.udp, Address: at(t.loopback, port), Kind: agent.Echo}
	client, _, err := t.hold(t.fraction(2), agent.Hold{Network: t.udp, Address: order.Address, Times: 1})
	if err != nil {
		return err
	}
	for k := 1; k <= len(t.fractions)+1; k++ {
		s, err := t.serve(t.fraction(k), t.loopback, order)
		if err != nil {
			return err
		}
		first, err := do(t, client.fraction, agent.Exchange{Handle: client.handle, Times: 1, Size: 5})
		if err != nil {
			return err
		}
		if err := t.exchange(client, 10); err != nil {
			return fmt.Errorf("server in %s, after the first datagram's %s: %w", s.fraction, word(first[0].Code), err)
		}
		if err := t.stop(&s.running); err != nil {
			return err
		}
		gone, err := do(t, client.fraction, agent.Exchange{Handle: client.handle, Times: 1, Size: 5})
		if err != nil {
			return err
		}
		if err := t.allAtOnce(client.fraction, "ask the stopped server of "+s.fraction.String(), gone, refusal); err != nil {
			return err
		}
	}
	return nil
}

// udpOneWay has all other fractions send to one, and asks for every datagram once.
func udpOneWay(t *trial) error {
	const count = 1000
	sink, err := t.udpServer(t.fraction(1), agent.Sink)
	if err != nil {
		return err
	}
	senders := t.others(sink.fraction)
	if err := each(senders, func(f *fraction) error {
		failed, err := do(t, f, agent.Pour{Network: t.udp, Address: sink.address, From: f.String(), Count: count, Gap: 500 * time.Microsecond})
		if err == nil && len(failed) > 0 {
			err = fmt.Errorf("%s: %d of %d could not be sent, the first for %s", f, len(failed), count, failed[0])
		}
		return err
	}); err != nil {
		return err
	}
	return t.counted(sink, agent.Seen{Datagrams: count * len(senders), Distinct: count * len(senders)})
}

// counted waits until a sink has got as much as it should, and looks for more.
func (t *trial) counted(sink *server, want agent.Seen) error {
	look := func() error {
		seen, err := do(t, sink.fraction, agent.Report{Handle: sink.handle})
		if err != nil {
			return err
		}
		if seen.Datagrams != want.Datagrams || seen.Distinct != want.Distinct || want.Bytes > 0 && seen.Bytes != want.Bytes {
			return fmt.Errorf("%d datagrams were sent; %d came, %d of them different, with %d bytes",
				want.Datagrams, seen.Datagrams, seen.Distinct, seen.Bytes)
		}
		return nil
	}
	if err := t.eventually(look); err != nil {
		return err
	}
	time.Sleep(t.patience / 10)
	return look()
}

// udpSizes sends one datagram of each size, or several of one.
func udpSizes(sizes ...int) func(*trial) error {
	if len(sizes) == 1 {
		sizes = repeat(sizes[0], 5)
	}
	return func(t *trial) error {
		s, err := t.udpServer(t.fraction(1), agent.Echo)
		if err != nil {
			return err
		}
		return t.eachAsks(t.others(s.fraction), agent.Datagrams{Network: t.udp, Address: s.address, Connected: true, Sizes: sizes})
	}
}

// udpSegments sends as QUIC does: one buffer, cut by the kernel or the NIC.
func udpSegments(t *trial) error {
	const size, count = 1400, 10
	sink, err := t.udpServer(t.fraction(1), agent.Sink)
	if err != nil {
		return err
	}
	failed, err := do(t, t.fraction(2), agent.Segments{Network: t.udp, Address: sink.address, Size: size, Count: count})
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%s: the buffer could not be sent: %s", t.fraction(2), failed[0])
	}
	return t.counted(sink, agent.Seen{Datagrams: count, Distinct: count, Bytes: size * count})
}
