package localhost

import (
	"fmt"
	"net"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// ownCases check the addresses that fractions have in addition to loopback's, which all
// fractions serve: inside, and outside, to which the address of another fraction belongs.
var ownCases = []testCase{
	{"tcp-server-is-reached-at-the-address-of-its-client", false, both, func(t *trial) { t.ownAddress(t.tcp) }},
	{"udp-server-is-reached-at-the-address-of-its-client", false, both, func(t *trial) { t.ownAddress(t.udp) }},
	{"tcp-server-is-reached-at-the-address-of-another-fraction", false, both, func(t *trial) { t.otherAddress(t.tcp) }},
	{"udp-server-is-reached-at-the-address-of-another-fraction", false, both, func(t *trial) { t.otherAddress(t.udp) }},
	{"dead-port-is-refused-at-once", true, both, ownDead},
	{"server-on-loopback-is-refused", false, both, ownLoopback},
	{"many-short-connections-to-another-address-succeed", false, both, outsideChurn},
	{"thousands-of-connections-to-another-address-live-side-by-side", false, both, outsideThousands},
	{"burst-to-another-address-arrives", false, both, outsideBurst},
}

// own returns an address of the fraction in the family, or ends the case.
func (t *trial) own(f *fraction) string {
	for _, a := range f.about.Addresses {
		if (net.ParseIP(a).To4() != nil) == (t.family.name == ipv4.name) {
			return a
		}
	}
	check.Skip(fmt.Sprintf("%s: an %s address other than loopback's", f, t.family.name))
	return ""
}

// atOwn is the server as clients see it at the address of a fraction.
func (t *trial) atOwn(s *server, f *fraction) *server {
	_, port, err := net.SplitHostPort(s.address)
	check.Must(err)
	return &server{running: s.running, network: s.network, address: net.JoinHostPort(t.own(f), port)}
}

// onAny starts a server of a fraction on any address.
func (t *trial) onAny(f *fraction, network string) *server {
	return t.serverOn(f, network, t.any, agent.Echo)
}

func (t *trial) ownAddress(network string) {
	for _, f := range t.fractions {
		s := t.onAny(f, network)
		each(t.fractions, func(client *fraction) { t.reach([]*fraction{client}, t.atOwn(s, client)) })
	}
}

func (t *trial) otherAddress(network string) {
	for i, f := range t.fractions {
		t.reach(t.fractions, t.atOwn(t.onAny(f, network), t.fraction(i+2)))
	}
}

func ownDead(t *trial) {
	port := t.ports.take()
	each(t.fractions, func(f *fraction) {
		t.refused(f, t.tcp, at(t.own(f), port), 5)
		t.refused(f, t.udp, at(t.own(f), port), 5)
	})
}

// ownLoopback has a server on loopback, which is reached there and not at other addresses.
func ownLoopback(t *trial) {
	s := t.tcpEcho()
	t.reach(t.fractions, s)
	for _, carrier := range t.fractions {
		address := t.atOwn(s, carrier).address
		each(t.fractions, func(f *fraction) { t.refused(f, t.tcp, address, 3) })
	}
}

// carried returns a server in the first fraction at the address of the second one.
func (t *trial) carried() *server {
	return t.atOwn(t.onAny(t.fraction(1), t.tcp), t.fraction(2))
}

// outsideChurn stays below the number of ephemeral ports: except on loopback, the kernel keeps
// the port of a connection for a minute after its end.
func outsideChurn(t *trial) {
	s := t.carried()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: t.size(100, min(25_000, 100_000/len(t.fractions))), Message: 200})
}

func outsideThousands(t *trial) {
	s := t.carried()
	held := make([]*running, len(t.fractions))
	check.Each(len(t.fractions), func(i int) {
		held[i], _ = t.hold(t.fractions[i], agent.Hold{Network: t.tcp, Address: s.address, Times: t.size(1000, 10_000) / len(t.fractions), AtOnce: true})
	})
	check.Each(len(t.fractions), func(i int) { t.exchange(held[i], 1) })
}

// outsideBurst has the last fraction send to the address of the second one as fast as it can.
func outsideBurst(t *trial) {
	count := t.size(500, 20_000)
	sink := t.serverOn(t.fraction(1), t.udp, t.any, agent.Sink)
	address := t.atOwn(sink, t.fraction(2)).address
	from := t.fraction(len(t.fractions))
	// The first datagram finds the server.
	t.eachAsks([]*fraction{from}, agent.Datagrams{Network: t.udp, Address: t.atOwn(t.onAny(t.fraction(1), t.udp), t.fraction(2)).address, Sizes: repeat(10, 2)})
	failed := do(t, from, agent.Pour{Network: t.udp, Address: address, From: from.String(), Count: count})
	if len(failed) > 0 {
		check.Failf("%s: could not send %d of %d datagrams: %s", from, len(failed), count, failed[0])
	}
	t.counted(sink, agent.Seen{Datagrams: count, Distinct: count})
}

// pingCases check that every ping has exactly one reply.
var pingCases = []testCase{
	{"every-request-has-one-reply", true, both, func(t *trial) { t.eachPings(t.loopback, 56) }},
	{"large-requests-have-one-reply", true, both, func(t *trial) { t.eachPings(t.loopback, 60000) }},
}

// eachPings lets the fractions ping one after the other. On one loopback, concurrent pings
// see each other's replies, and the socket buffers are too small for all of them.
func (t *trial) eachPings(address string, size int) {
	const times = 5
	for _, f := range t.fractions {
		got := do(t, f, agent.Ping{Address: address, Times: times, Size: size})
		if got.Replies != times || got.Duplicates != 0 {
			check.Failf("%s: ping %s: %d requests had %d replies and %d duplicates", f, address, times, got.Replies, got.Duplicates)
		}
	}
}
