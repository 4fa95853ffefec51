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
