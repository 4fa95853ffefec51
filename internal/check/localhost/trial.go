package localhost

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// ports gives every server of a run a new port.
type ports struct {
	mu   sync.Mutex
	next int
}

func (p *ports) take() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > lastPort {
		check.Failf("no port is left below %d: start with a lower --first-port", lastPort+1)
	}
	p.next++
	return p.next - 1
}

// trial is one case running in one family. Methods that return no error end the case when
// they fail, see package check.
type trial struct {
	family
	ctx       context.Context
	fractions []*fraction
	patience  time.Duration
	ports     *ports
	large     bool

	mu      sync.Mutex
	running []*running
}

// running is a server or a set of sockets in a fraction.
type running struct {
	*fraction
	handle  int
	stopped bool
}

type server struct {
	running
	network string
	address string // for clients
}

// fraction returns the k-th fraction, from 1. The first follows the last.
func (t *trial) fraction(k int) *fraction { return t.fractions[(k-1)%len(t.fractions)] }

// size returns the size of a case of load.
func (t *trial) size(usual, large int) int {
	if t.large {
		return large
	}
	return usual
}

func (t *trial) others(but *fraction) []*fraction {
	return slices.DeleteFunc(slices.Clone(t.fractions), func(f *fraction) bool { return f == but })
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// newAddress returns an address of a host with a new port, on which no server listens.
func (t *trial) newAddress(host string) string { return at(host, t.ports.take()) }

// keep has a handle stopped at the end of the trial.
func (t *trial) keep(r *running) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = append(t.running, r)
}

// tryStop stops r, once.
func (t *trial) tryStop(r *running) error {
	t.mu.Lock()
	stopped := r.stopped
	r.stopped = true
	t.mu.Unlock()
	if stopped {
		return nil
	}
	_, err := try(t, r.fraction, agent.Stop{Handle: r.handle})
	return err
}

func (t *trial) stop(r *running) { check.Must(t.tryStop(r)) }

// stopAll stops everything in reverse order.
func (t *trial) stopAll() error {
	if t.ctx.Err() != nil {
		return nil // the agents end and stop everything
	}
	var errs []error
	for _, r := range slices.Backward(t.running) {
		errs = append(errs, t.tryStop(r))
	}
	return errors.Join(errs...)
}

// tryServe starts the server that r describes. Clients use host and the port of r.
func (t *trial) tryServe(f *fraction, host string, r agent.Serve) (*server, error) {
	served, err := try(t, f, r)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(r.Address)
	if err != nil {
		return nil, err
	}
	s := &server{running{fraction: f, handle: served.Handle}, r.Network, net.JoinHostPort(host, port)}
	t.keep(&s.running)
	return s, nil
}

func (t *trial) serve(f *fraction, host string, r agent.Serve) *server {
	return check.Get(t.tryServe(f, host, r))
}

// tcpServer starts a TCP server on a new port of the family's loopback address.
func (t *trial) tcpServer(f *fraction, kind agent.Kind) *server {
	return t.serverOn(f, t.tcp, t.loopback, kind)
}

func (t *trial) tcpEcho() *server { return t.tcpServer(t.fraction(1), agent.Echo) }

// udpServer starts a UDP server on a new port of the family's loopback address.
func (t *trial) udpServer(f *fraction, kind agent.Kind) *server {
	return t.serverOn(f, t.udp, t.loopback, kind)
}

// serverOn starts a server on a new port of an address. Clients of a server on any address
// use the loopback address.
func (t *trial) serverOn(f *fraction, network, host string, kind agent.Kind) *server {
	clients := host
	if host == t.any {
		clients = t.loopback
	}
	return t.serve(f, clients, agent.Serve{Network: network, Address: t.newAddress(host), Kind: kind, Name: f.String()})
}

// hold opens connections that stay open, and returns their local addresses.
func (t *trial) hold(f *fraction, r agent.Hold) (*running, []string) {
	held := do(t, f, r)
	h := &running{fraction: f, handle: held.Handle}
	t.keep(h)
	return h, held.Locals
}

// holdOne opens one connection to a server.
func (t *trial) holdOne(f *fraction, s *server) *running {
	r, _ := t.hold(f, agent.Hold{Network: s.network, Address: s.address, Times: 1})
	return r
}

// exchange sends short messages over every held connection and expects them back.
func (t *trial) exchange(r *running, times int) {
	attempts := do(t, r.fraction, agent.Exchange{Handle: r.handle, Times: times, Size: 5})
	t.allEnd(r.fraction, "exchange messages over a held connection", attempts, success)
}

// attempt contacts an address several times, by TCP or UDP.
func (t *trial) attempt(f *fraction, network, address string, times int) agent.Attempts {
	if strings.HasPrefix(network, "udp") {
		return do(t, f, agent.Datagrams{Network: network, Address: address, Connected: true, Sizes: slices.Repeat([]int{10}, times)})
	}
	return do(t, f, agent.Connect{Network: network, Address: address, Times: times, Message: 5})
}

// reach ends the case unless each of the fractions reaches an echo server every time.
func (t *trial) reach(fractions []*fraction, s *server) {
	each(fractions, func(f *fraction) {
		t.allEnd(f, "call the server of "+s.fraction.String(), t.attempt(f, s.network, s.address, 5), success)
	})
}

// refused ends the case unless a fraction is refused at an address every time, immediately.
func (t *trial) refused(f *fraction, network, address string, times int) {
	t.allEndAtOnce(f, "call "+address+", where no server listens", t.attempt(f, network, address, times), refusal)
}

// allRefused is refused for all fractions at the same time.
func (t *trial) allRefused(network, address string, times int) {
	each(t.fractions, func(f *fraction) { t.refused(f, network, address, times) })
}

// eachConnects ends the case unless every connection of every fraction works.
func (t *trial) eachConnects(fractions []*fraction, r agent.Connect) {
	each(fractions, func(f *fraction) { t.allEnd(f, "connect to "+r.Address, do(t, f, r), success) })
}

// eachAsks ends the case unless every datagram of every fraction is answered.
func (t *trial) eachAsks(fractions []*fraction, r agent.Datagrams) {
	each(fractions, func(f *fraction) { t.allEnd(f, "send datagrams to "+r.Address, do(t, f, r), success) })
}

const (
	success = ""
	refusal = "ECONNREFUSED" // the answer of a port without a server
	inUse   = "EADDRINUSE"
)

// allEnd ends the case unless every attempt ended with a code.
func (t *trial) allEnd(f *fraction, what string, attempts agent.Attempts, code string) {
	if len(attempts) == 0 {
		check.Failf("%s: %s: no attempt was made", f, what)
	}
	wrong := slices.DeleteFunc(slices.Clone(attempts), func(a agent.Attempt) bool { return a.Code == code })
	if len(wrong) > 0 {
		check.Failf("%s: %s: %d of %d attempts ended with %s, the first after %v; want %s",
			f, what, len(wrong), len(attempts), word(wrong[0].Code), wrong[0].Took.Round(time.Microsecond), word(code))
	}
}

// allEndAtOnce is allEnd, and no attempt may take longer than the patience.
func (t *trial) allEndAtOnce(f *fraction, what string, attempts agent.Attempts, code string) {
	t.allEnd(f, what, attempts, code)
	for i, a := range attempts {
		if a.Took > t.patience {
			check.Failf("%s: %s: attempt %d took %v to end with %s, want at most %v",
				f, what, i+1, a.Took.Round(time.Millisecond), word(code), t.patience)
		}
	}
}

// word returns the code of an attempt as text.
func word(code string) string {
	if code == success {
		return "success"
	}
	return code
}

// distinct ends the case if two values are equal. The values are ordered by fraction.
func (t *trial) distinct(what string, values [][]string) {
	owner := map[string]*fraction{}
	for i, f := range t.fractions {
		for _, v := range values[i] {
			if other := owner[v]; other != nil {
				check.Failf("%s and %s have the same %s %s", other, f, what, v)
			}
			owner[v] = f
		}
	}
}

// eventually repeats steps until they pass, or ends the case after ten times the patience.
func (t *trial) eventually(steps func()) {
	for end := time.Now().Add(10 * t.patience); ; {
		err := check.Run(steps)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			check.Must(err)
		}
		select {
		case <-t.ctx.Done():
			check.Must(context.Cause(t.ctx))
		case <-time.After(t.patience / 20):
		}
	}
}
