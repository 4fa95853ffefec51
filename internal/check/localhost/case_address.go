package localhost

import (
	"net"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// addressCases check the addresses of 127.0.0.0/8 other than 127.0.0.1.
var addressCases = []testCase{
	{"tcp-server-on-127.0.0.2-is-reached", false, onlyIPv4, serveOn("tcp4", "127.0.0.2")},
	{"tcp-server-on-127.255.0.1-is-reached", false, onlyIPv4, serveOn("tcp4", "127.255.0.1")},
	{"tcp-server-on-127.255.255.254-is-reached", false, onlyIPv4, serveOn("tcp4", "127.255.255.254")},
	{"udp-server-on-127.0.0.2-answers", false, onlyIPv4, serveOn("udp4", "127.0.0.2")},
	{"udp-server-on-127.255.0.1-answers", false, onlyIPv4, serveOn("udp4", "127.255.0.1")},
	{"server-on-any-address-is-reached-at-127.0.0.2", false, onlyIPv4, anyAtOther},
	{"server-on-127.0.0.2-is-refused-at-127.0.0.1", false, onlyIPv4, otherAtUsual},
	{"one-port-on-two-addresses-has-two-servers", false, onlyIPv4, onePortTwoServers},
	{"client-bound-to-127.0.0.5-is-seen-as-such", false, onlyIPv4, clientOnOther},
	{"dead-port-of-127.0.0.2-is-refused-at-once", true, onlyIPv4, deadOnOther},
	{"ping-of-127.255.0.1-has-one-reply", true, onlyIPv4, func(t *trial) { t.eachPings("127.255.0.1", 56) }},
}

const other = "127.0.0.2"

func serveOn(network, host string) func(*trial) {
	return func(t *trial) { t.everyServer(network, host) }
}

func anyAtOther(t *trial) {
	s := t.serverOn(t.fraction(1), t.tcp, t.any, agent.Echo)
	_, port, err := net.SplitHostPort(s.address)
	check.Must(err)
	s.address = net.JoinHostPort(other, port)
	t.reach(t.fractions, s)
}

func otherAtUsual(t *trial) {
	port := t.ports.take()
	t.reach(t.fractions, t.serve(t.fraction(1), other, agent.Serve{Network: t.tcp, Address: at(other, port), Kind: agent.Echo}))
	t.allRefused(t.tcp, at(t.loopback, port), 5)
}

// onePortTwoServers has two fractions serve on the same port of two addresses.
func onePortTwoServers(t *trial) {
	port := t.ports.take()
	var servers []*server
	for k, host := range []string{other, "127.0.0.3"} {
		f := t.fraction(k + 1)
		servers = append(servers, t.serve(f, host, agent.Serve{Network: t.tcp, Address: at(host, port), Kind: agent.Name, Name: f.String()}))
	}
	t.eachAnswersForItself(servers)
}

func clientOnOther(t *trial) {
	const local = "127.0.0.5"
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Local: at(local, 0), Times: 3, Message: 5})
	seen := do(t, s.fraction, agent.Report{Handle: s.handle})
	if len(seen.Conns) != 3*len(t.fractions) {
		check.Failf("the server saw %d connections, want %d", len(seen.Conns), 3*len(t.fractions))
	}
	for _, c := range seen.Conns {
		if host, _, _ := net.SplitHostPort(c.Remote); host != local {
			check.Failf("the server saw a client at %s, want %s", c.Remote, local)
		}
	}
}

func deadOnOther(t *trial) {
	address := t.newAddress(other)
	each(t.fractions, func(f *fraction) {
		t.refused(f, t.tcp, address, 5)
		t.refused(f, t.udp, address, 5)
	})
}
