package localhost

import (
	"errors"
	"fmt"
	"net"

	"unnest/internal/check/localhost/agent"
)

// addressCases ask for the addresses of 127.0.0.0/8 other than 127.0.0.1.
var addressCases = []Case{
	{"address", "tcp-server-on-127.0.0.2-is-reached", false, onlyIPv4, serveOn("tcp", "127.0.0.2")},
	{"address", "tcp-server-on-127.255.0.1-is-reached", false, onlyIPv4, serveOn("tcp", "127.255.0.1")},
	{"address", "tcp-server-on-127.255.255.254-is-reached", false, onlyIPv4, serveOn("tcp", "127.255.255.254")},
	{"address", "udp-server-on-127.0.0.2-answers", false, onlyIPv4, serveOn("udp", "127.0.0.2")},
	{"address", "udp-server-on-127.255.0.1-answers", false, onlyIPv4, serveOn("udp", "127.255.0.1")},
	{"address", "server-on-any-address-is-reached-at-127.0.0.2", false, onlyIPv4, anyAtOther},
	{"address", "server-on-127.0.0.2-is-refused-at-127.0.0.1", false, onlyIPv4, otherAtUsual},
	{"address", "one-port-on-two-addresses-has-two-servers", false, onlyIPv4, twoOnOneServersPort},
	{"address", "client-bound-to-127.0.0.5-is-seen-as-such", false, onlyIPv4, clientOnOther},
	{"address", "dead-port-of-127.0.0.2-is-refused-at-once", true, onlyIPv4, deadOnOther},
	{"address", "ping-of-127.255.0.1-has-one-reply", true, onlyIPv4, pingOther},
}

const other = "127.0.0.2"

func serveOn(protocol, host string) func(*trial) error {
	return func(t *trial) error { return t.everyServer(protocol+"4", host) }
}

func anyAtOther(t *trial) error {
	s, err := t.serverOn(t.fraction(1), t.tcp, t.any, agent.Echo)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(s.address)
	if err != nil {
		return err
	}
	s.address = net.JoinHostPort(other, port)
	return t.reach(t.fractions, s)
}

func otherAtUsual(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	s, err := t.serve(t.fraction(1), other, agent.Serve{Network: t.tcp, Address: at(other, port), Kind: agent.Echo})
	if err != nil {
		return err
	}
	if err := t.reach(t.fractions, s); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, at(t.loopback, port), 5) })
}

// twoOnOneServersPort has the servers of two fractions differ in their address only.
func twoOnOneServersPort(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	var servers []*server
	for k, host := range []string{other, "127.0.0.3"} {
		f := t.fraction(k + 1)
		s, err := t.serve(f, host, agent.Serve{Network: t.tcp, Address: at(host, port), Kind: agent.Name, Name: f.String()})
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	return each(t.fractions, func(f *fraction) error {
		return errors.Join(t.says(f, servers[0]), t.says(f, servers[1]))
	})
}

func clientOnOther(t *trial) error {
	const local = "127.0.0.5"
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	if err := t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Local: at(local, 0), Times: 3, Message: 5}); err != nil {
		return err
	}
	seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
	if err != nil {
		return err
	}
	if len(seen.Conns) != 3*len(t.fractions) {
		return fmt.Errorf("of %d connections the server saw %d", 3*len(t.fractions), len(seen.Conns))
	}
	for _, c := range seen.Conns {
		if host, _, _ := net.SplitHostPort(c.Remote); host != local {
			return fmt.Errorf("the server saw a client at %s, want %s", c.Remote, local)
		}
	}
	return nil
}

func deadOnOther(t *trial) error {
	address, err := t.dead(other)
	if err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		if err := t.refused(f, t.tcp, address, 5); err != nil {
			return err
		}
		return t.refused(f, t.udp, address, 5)
	})
}

func pingOther(t *trial) error {
	return t.eachPings("127.255.0.1", 56)
}
