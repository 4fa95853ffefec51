package localhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"unnest/internal/check/localhost/agent"
)

// ports gives every server of a run a port of its own.
type ports struct {
	mu   sync.Mutex
	next int
}

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next > lastPort {
		return 0, fmt.Errorf("no port is left below %d: begin with a lower one", lastPort+1)
	}
	p.next++
	return p.next - 1, nil
}

// trial is one case under way in one family.
type trial struct {
	family
	ctx       context.Context
	fractions []*fraction
	patience  time.Duration
	ports     *ports

	mu      sync.Mutex
	running []*running
}

// running is what a fraction runs or holds for a trial.
type running struct {
	*fraction
	handle  int
	stopped bool
}

// server is a running server.
type server struct {
	running
	network string
	address string // as clients are to call it
}

// fraction returns the k-th fraction, from 1; after the last comes the first.
func (t *trial) fraction(k int) *fraction { return t.fractions[(k-1)%len(t.fractions)] }

// others are all fractions but one.
func (t *trial) others(but *fraction) []*fraction {
	var others []*fraction
	for _, f := range t.fractions {
		if f != but {
			others = append(others, f)
		}
	}
	return others
}

// each does something in several fractions at the same time.
func each(fractions []*fraction, do func(*fraction) error) error {
	errs := make([]error, len(fractions))
	var all sync.WaitGroup
	for i, f := range fractions {
		all.Go(func() { errs[i] = do(f) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// at is an address with a port.
func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// dead is an address of the host where nobody listens.
func (t *trial) dead(host string) (string, error) {
	port, err := t.ports.take()
	return at(host, port), err
}

// keep has a handle stopped when the trial ends.
func (t *trial) keep(r *running) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = append(t.running, r)
}

// stop stops what runs, once.
func (t *trial) stop(r *running) error {
	t.mu.Lock()
	stopped := r.stopped
	r.stopped = true
	t.mu.Unlock()
	if stopped {
		return nil
	}
	_, err := do(t, r.fraction, agent.Stop{Handle: r.handle})
	return err
}

// stopAll stops what was started, the last first.
func (t *trial) stopAll() error {
	if t.ctx.Err() != nil {
		return nil // the agents end, and all with them
	}
	var errs []error
	for i := len(t.running) - 1; i >= 0; i-- {
		errs = append(errs, t.stop(t.running[i]))
	}
	return errors.Join(errs...)
}

// serve starts a server as ordered; clients call it by host and the port of the
// order's address.
func (t *trial) serve(f *fraction, host string, o agent.Serve) (*server, error) {
	served, err := do(t, f, o)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return nil, err
	}
	s := &server{running{fraction: f, handle: served.Handle}, o.Network, net.JoinHostPort(host, port)}
	t.keep(&s.running)
	return s, nil
}

// tcpServer starts a TCP server on a new port of the family's loopback.
func (t *trial) tcpServer(f *fraction, kind agent.Kind) (*server, error) {
	return t.serverOn(f, t.tcp, t.loopback, kind)
}

// udpServer starts a UDP server on a new port of the family's loopback.
func (t *trial) udpServer(f *fraction, kind agent.Kind) (*server, error) {
	return t.serverOn(f, t.udp, t.loopback, kind)
}

// serverOn starts a server on a new port of an address. One on any address is to be
// called by the family's loopback.
func (t *trial) serverOn(f *fraction, network, host string, kind agent.Kind) (*server, error) {
	port, err := t.ports.take()
	if err != nil {
		return nil, err
	}
	call := host
	if host == t.any {
		call = t.loopback
	}
	return t.serve(f, call, agent.Serve{Network: network, Address: at(host, port), Kind: kind, Name: f.String()})
}

// hold opens connections that stay.
func (t *trial) hold(f *fraction, o agent.Hold) (*running, []string, error) {
	held, err := do(t, f, o)
	if err != nil {
		return nil, nil, err
	}
	r := &running{fraction: f, handle: held.Handle}
	t.keep(r)
	return r, held.Locals, nil
}

// holdOne opens one connection to a server.
func (t *trial) holdOne(f *fraction, s *server) (*running, error) {
	r, _, err := t.hold(f, agent.Hold{Network: s.network, Address: s.address, Times: 1})
	return r, err
}

// exchange has every held connection carry short messages, there and back.
func (t *trial) exchange(r *running, times int) error {
	attempts, err := do(t, r.fraction, agent.Exchange{Handle: r.handle, Times: times, Size: 5})
	if err != nil {
		return err
	}
	return t.all(r.fraction, "exchange over a held connection", attempts, "")
}

// connect has a fraction connect to an address several times, and returns how.
func (t *trial) connect(f *fraction, network, address string, times int) (agent.Attempts, error) {
	return do(t, f, agent.Connect{Network: network, Address: address, Times: times, Message: 5})
}

// reaches returns an error unless a fraction reaches an echo server, of TCP or UDP,
// every time.
func (t *trial) reaches(f *fraction, s *server) error {
	const times = 5
	var attempts agent.Attempts
	var err error
	if strings.HasPrefix(s.network, "udp") {
		attempts, err = do(t, f, agent.Datagrams{Network: s.network, Address: s.address, Connected: true, Sizes: repeat(10, times)})
	} else {
		attempts, err = t.connect(f, s.network, s.address, times)
	}
	if err != nil {
		return err
	}
	return t.all(f, "call the server of "+s.fraction.String(), attempts, "")
}

// reach returns an error unless all of the fractions reach a server.
func (t *trial) reach(fractions []*fraction, s *server) error {
	return each(fractions, func(f *fraction) error { return t.reaches(f, s) })
}

// refused returns an error unless a fraction is refused at an address, at once and
// every time.
func (t *trial) refused(f *fraction, network, address string, times int) error {
	var attempts agent.Attempts
	var err error
	if strings.HasPrefix(network, "udp") {
		attempts, err = do(t, f, agent.Datagrams{Network: network, Address: address, Connected: true, Sizes: repeat(10, times)})
	} else {
		attempts, err = t.connect(f, network, address, times)
	}
	if err != nil {
		return err
	}
	return t.allAtOnce(f, "call "+address+", where nobody listens", attempts, refusal)
}

// refusal is how a port where nobody listens answers.
const refusal = "ECONNREFUSED"

func repeat(size, times int) []int {
	sizes := make([]int, times)
	for i := range sizes {
		sizes[i] = size
	}
	return sizes
}

// all returns an error unless every attempt has ended as wanted.
func (t *trial) all(f *fraction, what string, attempts agent.Attempts, want string) error {
	if len(attempts) == 0 {
		return fmt.Errorf("%s: %s: nothing was tried", f, what)
	}
	wrong, first := 0, agent.Attempt{}
	for _, a := range attempts {
		if a.Code != want {
			if wrong == 0 {
				first = a
			}
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%s: %s: %d of %d ended with %s, the first after %v; want %s",
			f, what, wrong, len(attempts), word(first.Code), first.Took.Round(time.Microsecond), word(want))
	}
	return nil
}

// allAtOnce is all, and that none took longer than the patience.
func (t *trial) allAtOnce(f *fraction, what string, attempts agent.Attempts, want string) error {
	if err := t.all(f, what, attempts, want); err != nil {
		return err
	}
	for i, a := range attempts {
		if a.Took > t.patience {
			return fmt.Errorf("%s: %s: the %s of attempt %d took %v, which is not at once",
				f, what, word(want), i+1, a.Took.Round(time.Millisecond))
		}
	}
	return nil
}

// word is an attempt's code for people.
func word(code string) string {
	if code == "" {
		return "success"
	}
	return code
}

// distinct returns an error when two of the values, by fraction, are equal.
func distinct(what string, values map[*fraction][]string) error {
	owner := map[string]*fraction{}
	for f, mine := range values {
		for _, v := range mine {
			if other := owner[v]; other != nil {
				return fmt.Errorf("%s %s is of %s and of %s at the same time", what, v, other, f)
			}
			owner[v] = f
		}
	}
	return nil
}

// eventually tries until it succeeds or ten patiences are over.
func (t *trial) eventually(try func() error) error {
	for end := time.Now().Add(10 * t.patience); ; {
		err := try()
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		case <-time.After(t.patience / 20):
		}
	}
}
