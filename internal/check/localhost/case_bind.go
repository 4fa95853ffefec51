package localhost

import (
	"errors"
	"fmt"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// bindCases check that a port that one fraction has bound is in use in all others. An
// implementation across machines may not know that in time.
var bindCases = []testCase{
	{"tcp-port-of-another-fraction-is-in-use", false, both, func(t *trial) { t.conflict(t.tcp, t.loopback, t.loopback) }},
	{"udp-port-of-another-fraction-is-in-use", false, both, func(t *trial) { t.conflict(t.udp, t.loopback, t.loopback) }},
	{"tcp-loopback-conflicts-with-any-address", false, both, func(t *trial) { t.conflict(t.tcp, t.any, t.loopback) }},
	{"udp-loopback-conflicts-with-any-address", false, both, func(t *trial) { t.conflict(t.udp, t.any, t.loopback) }},
	{"tcp-any-address-conflicts-with-loopback", false, both, func(t *trial) { t.conflict(t.tcp, t.loopback, t.any) }},
	{"tcp-dual-stack-conflicts-with-ipv4", false, onlyIPv6, bindDualStack},
	{"first-server-keeps-its-port-after-a-conflict", false, both, bindFirstStays},
	{"port-is-free-again-after-its-server-stopped", false, both, func(t *trial) { t.freeAgain(false) }},
	{"port-is-free-again-after-its-server-was-killed", false, both, func(t *trial) { t.freeAgain(true) }},
	{"tcp-and-udp-do-not-conflict", true, both, bindBothProtocols},
	{"two-addresses-do-not-conflict", true, onlyIPv4, bindTwoAddresses},
	{"two-clients-of-one-server-cannot-share-a-port", false, both, bindSameClientPort},
	{"listeners-on-port-0-never-share-a-port", false, both, func(t *trial) { t.givenPorts(t.tcp) }},
	{"sockets-on-port-0-never-share-a-port", false, both, func(t *trial) { t.givenPorts(t.udp) }},
}

// tryBind binds a socket until the end of the trial.
func (t *trial) tryBind(f *fraction, network, address string) error {
	bound, err := try(t, f, agent.Bind{Network: network, Address: address, Times: 1})
	if err == nil {
		t.keep(&running{fraction: f, handle: bound.Handle})
	}
	return err
}

func (t *trial) bind(f *fraction, network, address string) {
	check.Must(t.tryBind(f, network, address))
}

func hasCode(err error, code string) bool {
	failed := (*agent.Error)(nil)
	return errors.As(err, &failed) && failed.Code == code
}

// inUse ends the case unless the fraction cannot bind because the address is in use.
func (t *trial) inUse(f *fraction, network, address string) {
	err := t.tryBind(f, network, address)
	if err == nil {
		check.Failf("%s: bound %s %s, which another fraction has bound; want %s", f, network, address, inUse)
	}
	if !hasCode(err, inUse) {
		check.Must(err)
	}
}

// conflict has one fraction bind the first address, and all others the second address of
// the same port.
func (t *trial) conflict(network, first, second string) {
	port := t.ports.take()
	t.bind(t.fraction(1), network, at(first, port))
	for _, f := range t.others(t.fraction(1)) {
		t.inUse(f, network, at(second, port))
	}
}

func bindDualStack(t *trial) {
	port := t.ports.take()
	t.bind(t.fraction(1), "tcp", at(ipv6.any, port))
	t.inUse(t.fraction(2), ipv4.tcp, at(ipv4.loopback, port))
}

func bindFirstStays(t *trial) {
	s := t.tcpEcho()
	t.inUse(t.fraction(2), t.tcp, s.address)
	t.reach(t.fractions, s)
}

// freeAgain has one fraction after the other listen on the same port.
func (t *trial) freeAgain(killed bool) {
	r := agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Echo, Process: killed}
	for k := 1; k <= len(t.fractions); k++ {
		check.Within(fmt.Sprintf("after the server of %s", t.fraction(k+len(t.fractions)-1)), func() {
			s := t.serve(t.fraction(k), t.loopback, r)
			t.inUse(t.fraction(k+1), t.tcp, r.Address)
			t.stop(&s.running)
		})
	}
}

func bindBothProtocols(t *trial) {
	address := t.newAddress(t.loopback)
	t.bind(t.fraction(1), t.tcp, address)
	t.bind(t.fraction(2), t.udp, address)
}

func bindTwoAddresses(t *trial) {
	port := t.ports.take()
	t.bind(t.fraction(1), t.tcp, at(t.loopback, port))
	t.bind(t.fraction(2), t.tcp, at(other, port))
}

func bindSameClientPort(t *trial) {
	if second := t.twoClientsOnePort(); second != "EADDRNOTAVAIL" && second != inUse {
		check.Failf("the second client on the same port ended with %s, want EADDRNOTAVAIL", word(second))
	}
}
