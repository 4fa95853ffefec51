package localhost

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"unnest/internal/check/localhost/agent"
)

// everyServer has each fraction in turn serve on an address, and all others call.
func (t *trial) everyServer(network, host string) error {
	for _, f := range t.fractions {
		s, err := t.serverOn(f, network, host, agent.Echo)
		if err != nil {
			return err
		}
		if err := t.reach(t.others(f), s); err != nil {
			return err
		}
	}
	return nil
}

// ownServer has each fraction call itself.
func (t *trial) ownServer(network string) error {
	return each(t.fractions, func(f *fraction) error {
		s, err := t.serverOn(f, network, t.loopback, agent.Echo)
		if err != nil {
			return err
		}
		return t.reaches(f, s)
	})
}

// tcpDualStack binds [::] for both families, as Java and Node.js do.
func tcpDualStack(t *trial) error {
	for _, f := range t.fractions {
		port, err := t.ports.take()
		if err != nil {
			return err
		}
		s, err := t.serve(f, ipv6.loopback, agent.Serve{Network: "tcp", Address: at(ipv6.any, port), Kind: agent.Echo})
		if err != nil {
			return err
		}
		s.network = ipv6.tcp
		if err := t.reach(t.others(f), s); err != nil {
			return err
		}
		s.network, s.address = ipv4.tcp, at(ipv4.loopback, port)
		if err := t.reach(t.others(f), s); err != nil {
			return err
		}
	}
	return nil
}

// eachForItself has all fractions call all servers at the same time: each has to
// say its own name.
func (t *trial) eachForItself(network string) error {
	var servers []*server
	for _, f := range t.fractions {
		s, err := t.serverOn(f, network, t.loopback, agent.Name)
		if err != nil {
			return err
		}
		servers = append(servers, s)
	}
	return each(t.fractions, func(f *fraction) error {
		for _, s := range servers {
			if err := t.says(f, s); err != nil {
				return err
			}
		}
		return nil
	})
}

// says returns an error unless the server says its own name.
func (t *trial) says(f *fraction, s *server) error {
	var attempts agent.Attempts
	var err error
	if strings.HasPrefix(s.network, "udp") {
		attempts, err = do(t, f, agent.Datagrams{Network: s.network, Address: s.address, Connected: true, Named: true, Sizes: repeat(1, 3)})
	} else {
		attempts, err = do(t, f, agent.Connect{Network: s.network, Address: s.address, Times: 3})
	}
	if err != nil {
		return err
	}
	if err := t.all(f, "ask the server of "+s.fraction.String(), attempts, ""); err != nil {
		return err
	}
	for _, a := range attempts {
		if a.Said != s.fraction.String() {
			return fmt.Errorf("%s: the server of %s answered as %q", f, s.fraction, a.Said)
		}
	}
	return nil
}

// tcpAddresses compares getsockname and getpeername of both ends.
func tcpAddresses(t *trial) error {
	s, err := t.serverOn(t.fraction(1), t.tcp, t.any, agent.Echo)
	if err != nil {
		return err
	}
	attempts := map[*fraction]agent.Attempts{}
	for _, f := range t.fractions {
		if attempts[f], err = t.connect(f, t.tcp, s.address, 2); err != nil {
			return err
		}
		if err := t.all(f, "call the server of fraction 1", attempts[f], ""); err != nil {
			return err
		}
	}
	seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
	if err != nil {
		return err
	}
	for _, f := range t.fractions {
		for _, a := range attempts[f] {
			if host, _, _ := net.SplitHostPort(a.Local); host != t.loopback || a.Peer != s.address {
				return fmt.Errorf("%s: its end of the connection is %s, the other %s; want %s and %s", f, a.Local, a.Peer, t.loopback, s.address)
			}
			if !slices.ContainsFunc(seen.Conns, func(c agent.Conn) bool { return c.Local == a.Peer && c.Remote == a.Local }) {
				return fmt.Errorf("%s: the server saw no connection from %s to %s, but %v", f, a.Local, a.Peer, seen.Conns)
			}
		}
	}
	return nil
}

func tcpServerOnDevice(t *trial) error {
	for _, f := range t.fractions {
		port, err := t.ports.take()
		if err != nil {
			return err
		}
		s, err := t.serve(f, t.loopback, agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Echo, Device: "lo"})
		if err != nil {
			return err
		}
		if err := t.reach(t.others(f), s); err != nil {
			return err
		}
	}
	return nil
}

func tcpClientOnDevice(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Device: "lo", Times: 3, Message: 5})
}

// eachConnects returns an error unless every connection of every fraction works.
func (t *trial) eachConnects(fractions []*fraction, o agent.Connect) error {
	return each(fractions, func(f *fraction) error {
		attempts, err := do(t, f, o)
		if err != nil {
			return err
		}
		return t.all(f, "connect to "+o.Address, attempts, "")
	})
}

// tcpFixedClientPort has clients on ports that are in no ephemeral range.
func tcpFixedClientPort(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	for _, f := range t.others(s.fraction) {
		local, err := t.dead(t.loopback)
		if err != nil {
			return err
		}
		if err := t.eachConnects([]*fraction{f}, agent.Connect{Network: t.tcp, Address: s.address, Local: local, Times: 1, Message: 5}); err != nil {
			return err
		}
	}
	return nil
}

func tcpMultipath(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	s, err := t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Echo, Multipath: true})
	if err != nil {
		return err
	}
	others := t.others(s.fraction)
	return errors.Join(
		t.eachConnects(others, agent.Connect{Network: t.tcp, Address: s.address, Multipath: true, Times: 3, Message: 1 << 16}),
		t.eachConnects(others, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, Message: 1 << 16}))
}
