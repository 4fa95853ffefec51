package localhost

import (
	"errors"
	"fmt"

	"unnest/internal/check/localhost/agent"
)

// bindCases ask whether a port that one fraction has bound is taken in all others,
// which an implementation across machines may not know in time.
var bindCases = []Case{
	{"bind", "tcp-port-of-another-fraction-is-in-use", false, both, func(t *trial) error { return t.conflict(t.tcp, t.loopback, t.loopback) }},
	{"bind", "udp-port-of-another-fraction-is-in-use", false, both, func(t *trial) error { return t.conflict(t.udp, t.loopback, t.loopback) }},
	{"bind", "tcp-loopback-conflicts-with-any-address", false, both, func(t *trial) error { return t.conflict(t.tcp, t.any, t.loopback) }},
	{"bind", "udp-loopback-conflicts-with-any-address", false, both, func(t *trial) error { return t.conflict(t.udp, t.any, t.loopback) }},
	{"bind", "tcp-any-address-conflicts-with-loopback", false, both, func(t *trial) error { return t.conflict(t.tcp, t.loopback, t.any) }},
	{"bind", "tcp-dual-stack-conflicts-with-ipv4", false, onlyIPv6, bindDualStack},
	{"bind", "first-server-keeps-its-port-after-a-conflict", false, both, bindFirstStays},
	{"bind", "port-is-free-again-after-its-server-stopped", false, both, func(t *trial) error { return t.freeAgain(false) }},
	{"bind", "port-is-free-again-after-its-server-was-killed", false, both, func(t *trial) error { return t.freeAgain(true) }},
	{"bind", "tcp-and-udp-do-not-conflict", true, both, bindBothProtocols},
	{"bind", "two-addresses-do-not-conflict", true, onlyIPv4, bindTwoAddresses},
	{"bind", "two-clients-of-one-server-cannot-share-a-port", false, both, bindSameClientPort},
}

const inUse = "EADDRINUSE"

// tryBind binds one socket, and keeps it when it can.
func (t *trial) tryBind(f *fraction, network, address string) error {
	bound, err := do(t, f, agent.Bind{Network: network, Address: address, Times: 1})
	if err != nil {
		return err
	}
	t.keep(&running{fraction: f, handle: bound.Handle})
	return nil
}

// inUse returns an error unless a fraction is told that an address is in use.
func (t *trial) inUse(f *fraction, network, address string) error {
	err := t.tryBind(f, network, address)
	if err == nil {
		return fmt.Errorf("%s: bound %s %s, which another fraction has bound; want %s", f, network, address, inUse)
	}
	if why := (*agent.Error)(nil); errors.As(err, &why) && why.Code == inUse {
		return nil
	}
	return err
}

// conflict has one fraction bind one address, and all others the other, of one port.
func (t *trial) conflict(network, first, second string) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	if err := t.tryBind(t.fraction(1), network, at(first, port)); err != nil {
		return err
	}
	for _, f := range t.others(t.fraction(1)) {
		if err := t.inUse(f, network, at(second, port)); err != nil {
			return err
		}
	}
	return nil
}

func bindDualStack(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	if err := t.tryBind(t.fraction(1), "tcp", at(ipv6.any, port)); err != nil {
		return err
	}
	return t.inUse(t.fraction(2), ipv4.tcp, at(ipv4.loopback, port))
}

func bindFirstStays(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	if err := t.inUse(t.fraction(2), t.tcp, s.address); err != nil {
		return err
	}
	return t.reach(t.fractions, s)
}

// freeAgain takes a port in one fraction after the other.
func (t *trial) freeAgain(killed bool) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	order := agent.Serve{Network: t.tcp, Address: at(t.loopback, port), Kind: agent.Echo, Process: killed}
	for k := 1; k <= len(t.fractions); k++ {
		s, err := t.serve(t.fraction(k), t.loopback, order)
		if err != nil {
			return fmt.Errorf("after the server of %s: %w", t.fraction(k+len(t.fractions)-1), err)
		}
		if err := t.inUse(t.fraction(k+1), t.tcp, order.Address); err != nil {
			return err
		}
		if err := t.stop(&s.running); err != nil {
			return err
		}
	}
	return nil
}

func bindBothProtocols(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	return errors.Join(
		t.tryBind(t.fraction(1), t.tcp, at(t.loopback, port)),
		t.tryBind(t.fraction(2), t.udp, at(t.loopback, port)))
}

func bindTwoAddresses(t *trial) error {
	port, err := t.ports.take()
	if err != nil {
		return err
	}
	return errors.Join(
		t.tryBind(t.fraction(1), t.tcp, at(t.loopback, port)),
		t.tryBind(t.fraction(2), t.tcp, at(other, port)))
}

func bindSameClientPort(t *trial) error {
	second, err := t.twoOnOnePort()
	if err == nil && second != "EADDRNOTAVAIL" && second != inUse {
		err = fmt.Errorf("the second client on one port ended with %s, want EADDRNOTAVAIL", word(second))
	}
	return err
}
