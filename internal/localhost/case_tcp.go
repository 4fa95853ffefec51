package localhost

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"unnest/internal/localhost/agent"
)

// tcpCases ask for TCP between fractions.
var tcpCases = []Case{
	{"tcp", "server-on-loopback-is-reached-by-all-others", false, both, func(t *trial) error { return t.everyServer(t.tcp, t.loopback) }},
	{"tcp", "server-on-any-address-is-reached-by-all-others", false, both, func(t *trial) error { return t.everyServer(t.tcp, t.any) }},
	{"tcp", "server-is-reached-by-its-own-fraction", true, both, func(t *trial) error { return t.ownServer(t.tcp) }},
	{"tcp", "dual-stack-server-is-reached-by-both-families", false, onlyIPv6, tcpDualStack},
	{"tcp", "each-server-answers-for-itself", false, both, func(t *trial) error { return t.eachForItself(t.tcp) }},
	{"tcp", "both-ends-see-the-same-loopback-addresses", false, both, tcpAddresses},
	{"tcp", "server-bound-to-device-lo-is-reached", false, both, tcpServerOnDevice},
	{"tcp", "client-bound-to-device-lo-reaches-servers", false, both, tcpClientOnDevice},
	{"tcp", "client-on-a-fixed-port-reaches-servers", false, both, tcpFixedClientPort},
	{"tcp", "multipath-connections-work", false, both, tcpMultipath},

	{"tcp", "dead-port-is-refused-at-once", true, both, func(t *trial) error { return t.deadPort(t.tcp, 30) }},
	{"tcp", "port-of-a-stopped-server-is-refused-at-once", false, both, tcpStopped},
	{"tcp", "refused-port-is-reached-once-its-server-is-there", false, both, tcpLateServer},
	{"tcp", "server-moves-between-fractions", false, both, tcpMoves},
	{"tcp", "client-of-a-killed-server-is-told-at-once", false, both, tcpKilled},
	{"tcp", "port-of-a-killed-server-is-refused-at-once", false, both, tcpKilledPort},
	{"tcp", "reset-of-the-client-reaches-the-server", false, both, tcpReset},

	{"tcp", "many-short-connections-are-never-reset", false, both, tcpChurn},
	{"tcp", "simultaneous-connects-all-succeed", false, both, tcpSimultaneous},
	{"tcp", "full-backlog-is-not-refused", false, both, tcpFullBacklog},
	{"tcp", "connects-beyond-the-backlog-succeed-once-accepted", false, both, tcpLateAccept},
	{"tcp", "held-connections-of-all-pairs-live-side-by-side", false, both, tcpSideBySide},

	{"tcp", "outgoing-connections-never-share-a-port", false, both, tcpOutgoing},
	{"tcp", "listeners-on-port-0-never-share-a-port", false, both, func(t *trial) error { return t.givenPorts(t.tcp) }},
	{"tcp", "listener-on-a-foreign-ephemeral-port-is-reached", false, both, tcpEphemeralListener},
	{"tcp", "client-on-the-port-of-a-foreign-listener-disturbs-nobody", false, both, tcpClientOnListenersPort},
	{"tcp", "first-of-two-clients-on-one-fixed-port-goes-on", false, both, tcpSameClientPort},

	{"tcp", "bulk-both-ways-arrives-whole", false, both, func(t *trial) error { return t.bulk(t.fraction(2), t.fraction(1), 20<<20) }},
	{"tcp", "bulk-within-a-fraction-arrives-whole", true, both, func(t *trial) error { return t.bulk(t.fraction(2), t.fraction(2), 20<<20) }},
	{"tcp", "bulk-of-all-fractions-at-once-arrives-whole", false, both, tcpBulkRing},
	{"tcp", "traffic-within-a-fraction-leaves-by-no-interface", true, both, tcpStaysInside},
	{"tcp", "segments-are-larger-than-16-KiB", false, both, tcpSegments},
	{"tcp", "large-request-arrives-whole-after-a-half-close", false, both, tcpLargeRequest},
	{"tcp", "large-response-arrives-whole", false, both, tcpLargeResponse},
	{"tcp", "server-that-half-closes-still-receives", false, both, tcpServerHalfCloses},
	{"tcp", "urgent-bytes-keep-their-place", false, both, tcpUrgent},
}

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

// deadPort has every fraction call an address where nobody listens, first one after
// the other, then all at the same time.
func (t *trial) deadPort(network string, times int) error {
	address, err := t.dead(t.loopback)
	if err != nil {
		return err
	}
	for _, f := range t.fractions {
		if err := t.refused(f, network, address, times); err != nil {
			return err
		}
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, network, address, times) })
}

func tcpStopped(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	if err := t.reach(t.fractions, s); err != nil {
		return err
	}
	if err := t.stop(&s.running); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, s.address, 5) })
}

func tcpLateServer(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	address := at(t.loopback, port)
	if err := each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, address, 5) }); err != nil {
		return err
	}
	s, err := t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
	if err != nil {
		return err
	}
	return t.reach(t.fractions, s)
}

// tcpMoves has a server go round all fractions, and its client follow behind.
func tcpMoves(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	address := at(t.loopback, port)
	for k := 1; k <= max(6, len(t.fractions)); k++ {
		s, err := t.serve(t.fraction(k), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
		if err != nil {
			return err
		}
		client := t.fraction(k + 1)
		if err := t.reaches(client, s); err != nil {
			return fmt.Errorf("move %d: %w", k, err)
		}
		if err := t.stop(&s.running); err != nil {
			return err
		}
		if err := t.refused(client, t.tcp, address, 1); err != nil {
			return fmt.Errorf("after move %d: %w", k, err)
		}
	}
	return nil
}

// mortal starts a server in a process of its own, which stop kills.
func (t *trial) mortal() (*server, error) {
	port, err := t.ports.take()
	if err != nil {
		return nil, err
	}
	return t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Echo, Process: true})
}

// tcpKilled kills a server whose clients wait for it to say something.
func tcpKilled(t *trial) error {
	s, err := t.mortal()
	if err != nil {
		return err
	}
	var clients []*running
	for _, f := range t.others(s.fraction) {
		c, err := t.holdOne(f, s)
		if err != nil {
			return err
		}
		if err := t.exchange(c, 1); err != nil {
			return err
		}
		clients = append(clients, c)
	}
	if err := t.stop(&s.running); err != nil {
		return err
	}
	for _, c := range clients {
		end, err := do(t, c.fraction, agent.AwaitEnd{Handle: c.handle})
		if err != nil {
			return err
		}
		if end.Code != agent.End && end.Code != "ECONNRESET" || end.Took > t.patience {
			return fmt.Errorf("%s: when its server was killed, the client saw %s after %v", c.fraction, word(end.Code), end.Took.Round(time.Millisecond))
		}
	}
	return nil
}

func tcpKilledPort(t *trial) error {
	s, err := t.mortal()
	if err != nil {
		return err
	}
	if err := t.reach(t.fractions, s); err != nil {
		return err
	}
	if err := t.stop(&s.running); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error { return t.refused(f, t.tcp, s.address, 5) })
}

func tcpReset(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	c, err := t.holdOne(t.fraction(2), s)
	if err != nil {
		return err
	}
	if err := t.exchange(c, 1); err != nil {
		return err
	}
	if _, err := do(t, c.fraction, agent.Abort{Handle: c.handle}); err != nil {
		return err
	}
	return t.eventually(func() error {
		seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
		if err != nil {
			return err
		}
		if len(seen.Conns) != 1 || seen.Conns[0].End != "ECONNRESET" {
			return fmt.Errorf("the client has reset its connection, the server saw %+v", seen.Conns)
		}
		return nil
	})
}

func tcpChurn(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 300, Message: 200})
}

func tcpSimultaneous(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	return t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 64, AtOnce: true, Message: 200})
}

// muteCall is a connect to a server that accepts nothing: only connecting counts.
func (t *trial) muteCall(s *server, times int) agent.Hold {
	return agent.Hold{Network: t.tcp, Address: s.address, Times: times}
}

// tcpFullBacklog has one client fill the backlog of 0, which holds one connection.
// Others may wait until they give up, but nobody may be refused.
func tcpFullBacklog(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Mute)
	if err != nil {
		return err
	}
	if _, _, err := t.hold(t.fraction(2), t.muteCall(s, 1)); err != nil {
		return err
	}
	return each(t.fractions, func(f *fraction) error {
		attempts, err := do(t, f, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 1, Patience: 2 * t.patience})
		if err != nil {
			return err
		}
		return t.all(f, "connect to a server whose backlog is full", attempts, agent.Timeout)
	})
}

// tcpLateAccept has the server accept while more clients wait than its backlog holds.
func tcpLateAccept(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Mute)
	if err != nil {
		return err
	}
	if _, _, err := t.hold(t.fraction(2), t.muteCall(s, 1)); err != nil {
		return err
	}
	resumed := make(chan error, 1)
	go func() {
		time.Sleep(t.patience / 2) // so that they wait
		_, err := do(t, s.fraction, agent.Resume{Handle: s.handle})
		resumed <- err
	}()
	err = t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 5})
	return errors.Join(err, <-resumed)
}

// tcpSideBySide holds a connection from every fraction to every fraction.
func tcpSideBySide(t *trial) error {
	var held []*running
	for _, f := range t.fractions {
		s, err := t.tcpServer(f, agent.Echo)
		if err != nil {
			return err
		}
		for _, client := range t.fractions {
			c, err := t.holdOne(client, s)
			if err != nil {
				return err
			}
			held = append(held, c)
		}
	}
	for range 2 {
		for _, c := range held {
			if err := t.exchange(c, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// tcpOutgoing holds many connections of all fractions to one server. Were their
// ports chosen from one range without regard to each other, some would be equal.
func tcpOutgoing(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	clients := make([]*running, len(t.fractions))
	locals := make([][]string, len(t.fractions))
	if err := each(t.fractions, func(f *fraction) error {
		var err error
		i := f.number - 1
		clients[i], locals[i], err = t.hold(f, agent.Hold{Network: t.tcp, Address: s.address, Times: 200})
		return err
	}); err != nil {
		return err
	}
	return errors.Join(distinct("the client's address", byFraction(t.fractions, locals)),
		each(t.fractions, func(f *fraction) error { return t.exchange(clients[f.number-1], 1) }))
}

func byFraction(fractions []*fraction, values [][]string) map[*fraction][]string {
	m := map[*fraction][]string{}
	for i, f := range fractions {
		m[f] = values[i]
	}
	return m
}

// givenPorts binds many sockets to ports that the kernel chooses. Were those chosen
// without regard to other fractions, some would be equal.
func (t *trial) givenPorts(network string) error {
	addresses := make([][]string, len(t.fractions))
	if err := each(t.fractions, func(f *fraction) error {
		bound, err := do(t, f, agent.Bind{Network: network, Address: at(t.loopback, 0), Times: 600})
		if err != nil {
			return err
		}
		t.keep(&running{fraction: f, handle: bound.Handle})
		addresses[f.number-1] = bound.Addresses
		return nil
	}); err != nil {
		return err
	}
	return distinct("the address", byFraction(t.fractions, addresses))
}

// ephemeralServer listens on a port out of the range from which another fraction's
// kernel chooses. Those that clients used a while ago are not free.
func (t *trial) ephemeralServer(f, of *fraction) (s *server, err error) {
	low, high := int(of.about.Ephemeral[0]), int(of.about.Ephemeral[1])
	for range 20 {
		address := at(t.loopback, low+rand.IntN(high-low+1))
		s, err = t.serve(f, t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
		if why := (*agent.Error)(nil); !errors.As(err, &why) || why.Code != inUse {
			return s, err
		}
	}
	return s, err
}

// tcpEphemeralListener has each fraction listen on a port that the next one's kernel
// might choose for its clients.
func tcpEphemeralListener(t *trial) error {
	for k, f := range t.fractions {
		s, err := t.ephemeralServer(f, t.fraction(k+2))
		if err != nil {
			return err
		}
		if err := t.reach(t.fractions, s); err != nil {
			return err
		}
	}
	return nil
}

// tcpClientOnListenersPort has fraction 1 listen on a port that fraction 2 binds a
// client to. One loopback would not allow that bind; where it is allowed, both have
// to work.
func tcpClientOnListenersPort(t *trial) error {
	listener, err := t.ephemeralServer(t.fraction(1), t.fraction(2))
	if err != nil {
		return err
	}
	other, err := t.tcpServer(t.fraction(3), agent.Echo)
	if err != nil {
		return err
	}
	attempts, err := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: other.address, Local: listener.address, Times: 1, Message: 5})
	if err != nil {
		return err
	}
	if attempts[0].Code != inUse {
		if err := t.all(t.fraction(2), "connect from the port where fraction 1 listens", attempts, ""); err != nil {
			return err
		}
	}
	return t.reach(t.fractions, listener)
}

// tcpSameClientPort has two fractions connect from the same port to the same server.
// Whatever becomes of the second, the first goes on.
func tcpSameClientPort(t *trial) error {
	_, err := t.twoOnOnePort()
	return err
}

// twoOnOnePort returns how the second of two clients ended that share address and
// port. An error says that the first did not go on.
func (t *trial) twoOnOnePort() (string, error) {
	s, err := t.tcpServer(t.fraction(3), agent.Echo)
	if err != nil {
		return "", err
	}
	local, err := t.dead(t.loopback)
	if err != nil {
		return "", err
	}
	first, _, err := t.hold(t.fraction(1), agent.Hold{Network: t.tcp, Address: s.address, Local: local, Times: 1})
	if err != nil {
		return "", err
	}
	if err := t.exchange(first, 1); err != nil {
		return "", err
	}
	// It may have to be given up: no address tells it from the first.
	second, err := do(t, t.fraction(2), agent.Connect{Network: t.tcp, Address: s.address, Local: local, Times: 1, Message: 5, Patience: 2 * t.patience})
	if err != nil {
		return "", err
	}
	if err := t.exchange(first, 3); err != nil {
		return "", fmt.Errorf("after a second client on %s ended with %s: %w", local, word(second[0].Code), err)
	}
	// From a port of its own the second fraction reaches the server.
	c, err := t.connect(t.fraction(2), t.tcp, s.address, 1)
	if err != nil {
		return "", err
	}
	return second[0].Code, t.all(t.fraction(2), "connect from a port of its own", c, "")
}

// bulk moves a stream from a client to a server and back.
func (t *trial) bulk(client, serving *fraction, size int64) error {
	s, err := t.tcpServer(serving, agent.Echo)
	if err != nil {
		return err
	}
	moved, err := do(t, client, agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Echo, Size: size})
	if err != nil {
		return err
	}
	if moved.Sent != size || moved.Received != size || moved.SentSum != moved.ReceivedSum {
		return fmt.Errorf("%s: sent %d of %d bytes with sum %x, and %d with sum %x came back",
			client, moved.Sent, size, moved.SentSum, moved.Received, moved.ReceivedSum)
	}
	return nil
}

func tcpBulkRing(t *trial) error {
	return each(t.fractions, func(f *fraction) error { return t.bulk(f, t.fraction(f.number+1), 4<<20) })
}

// tcpStaysInside compares what has left by other interfaces before and after bulk,
// which is more than anything else that may be going on.
func tcpStaysInside(t *trial) error {
	const size = 16 << 20
	f := t.fraction(2)
	before, err := do(t, f, agent.Traffic{})
	if err != nil {
		return err
	}
	if err := t.bulk(f, f, size); err != nil {
		return err
	}
	after, err := do(t, f, agent.Traffic{})
	if err != nil {
		return err
	}
	if left := after.Bytes - before.Bytes; left > size/16 {
		return fmt.Errorf("%s: while %d bytes went to a server of its own, %d left by interfaces other than lo", f, size, left)
	}
	return nil
}

// tcpSegments looks at what both ends have agreed on: lo allows 64 KiB, of which the
// kernel may take half a window.
func tcpSegments(t *trial) error {
	const least = 16 << 10
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Echo, Size: 4 << 20})
	if err != nil {
		return err
	}
	if moved.MSS <= least {
		return fmt.Errorf("segments between fractions have %d bytes at most, want more than %d", moved.MSS, least)
	}
	return nil
}

const large = 8 << 20

// tcpLargeRequest sends a large request; the server answers when it has all.
func tcpLargeRequest(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Tally)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Tally, Size: large})
	if err != nil {
		return err
	}
	if want := agent.TallyText(large, moved.SentSum); moved.Sent != large || moved.Said != want {
		return fmt.Errorf("the server got %q, want %q", moved.Said, want)
	}
	return nil
}

func tcpLargeResponse(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Source)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Source, Size: large})
	if err != nil {
		return err
	}
	if moved.Received != large || moved.ReceivedSum != agent.StreamSum(large) {
		return fmt.Errorf("of a response of %d bytes %d came, with sum %x; want %x", large, moved.Received, moved.ReceivedSum, agent.StreamSum(large))
	}
	return nil
}

// tcpServerHalfCloses has the client see the end of what the server says before it
// sends anything.
func tcpServerHalfCloses(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Greet)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Greet, Size: large})
	if err != nil {
		return err
	}
	if moved.Said != s.fraction.String() {
		return fmt.Errorf("the server said %q, want %q", moved.Said, s.fraction)
	}
	return t.eventually(func() error {
		seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
		if err != nil {
			return err
		}
		if len(seen.Conns) != 1 || seen.Conns[0].Received != large || seen.Conns[0].Sum != moved.SentSum || seen.Conns[0].End != agent.End {
			return fmt.Errorf("after %d bytes with sum %x and the end, the server saw %+v", large, moved.SentSum, seen.Conns)
		}
		return nil
	})
}

func tcpUrgent(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	c, err := t.holdOne(t.fraction(2), s)
	if err != nil {
		return err
	}
	attempts, err := do(t, c.fraction, agent.Exchange{Handle: c.handle, Times: 5, Size: 1001, Urgent: true})
	if err != nil {
		return err
	}
	return t.all(c.fraction, "exchange messages with an urgent byte", attempts, "")
}
