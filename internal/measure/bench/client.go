package bench

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// Some clients idle for seconds before they load the network (workload's Lead). The
// clients of the next two executions are therefore started while the present one runs, so that
// their idle time passes in parallel. Loads never overlap: a client that is not claimed
// shortly before it would begin to load is killed, and started again in its turn.
//
// A client in a guest is never started in advance: its start would take CPU time from
// what is being measured in that guest.

const (
	claimGuard = 150 * time.Millisecond // a client must be claimed this long before its load begins
	loadGap    = 250 * time.Millisecond // from the expected end of one client to the load of the next
)

// The states of a client.
const (
	pending int32 = iota // not started yet
	idling               // started in advance
	claimed              // its turn has come
	expired              // it was not claimed in time
)

// client is a client of a workload, started or to be started.
type client struct {
	execution experiment.Execution
	workload  workload.Workload
	state     atomic.Int32
	started   time.Time // or when it will be
	stop      context.CancelFunc
	done      chan struct{} // closed when it has ended
	printed   []byte
	err       error
	generator *generator // nil: another client
}

// newClient returns a client of e that starts after delay, in the state pending or
// claimed. It is killed by its stop, or when ctx ends.
func (s *services) newClient(ctx context.Context, e experiment.Execution, delay time.Duration, state int32) *client {
	c := &client{execution: e, workload: lookup(e.Case), started: time.Now().Add(delay), done: make(chan struct{})}
	c.state.Store(state)
	from, command := s.clientCommand(e)
	run := func(ctx context.Context) ([]byte, error) { return place.Output(ctx, from, command...) }
	if isGenerator(c.workload) {
		c.generator = newGenerator()
		run = func(ctx context.Context) ([]byte, error) { return c.generator.run(ctx, from, command) }
	}
	ctx, c.stop = context.WithCancel(ctx)
	go func() {
		defer close(c.done)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		c.state.CompareAndSwap(pending, idling)
		expiry := time.AfterFunc(c.workload.Lead()-claimGuard, func() {
			if c.state.CompareAndSwap(idling, expired) {
				c.stop()
			}
		})
		defer expiry.Stop()
		c.printed, c.err = run(ctx)
	}()
	return c
}

// clientNetwork returns this host in the network from which clients load a configuration: the network of this
// process if the user has named its host, else that of the lab's clients.
func (b *Bench) clientNetwork(c stack.Configuration) place.Local {
	if c.Host != "" {
		return place.Local{}
	}
	return place.Local{NetNS: b.lab.ClientNS()}
}

// clientCommand returns the place and the command of the client of e. The load generator has
// its path in the guests' images only in guests, and with the guests' programs on this host. A machine
// that is reached over SSH is loaded from the network of this process, others from that of the lab's clients.
func (s *services) clientCommand(e experiment.Execution) (place.Place, []string) {
	one := s.instances[e.Configuration.Name]
	command := lookup(e.Case).Client(e.Case.Params, one.endpoint(e.Case))
	if workload.IsPeer(lookup(e.Case)) {
		command = append(command, workload.WaitFlag)
	}
	from, programs := s.client, s.programs
	if e.Configuration.Host != "" {
		from, programs = place.Local{}, s.programsHere
	}
	switch {
	case one.client != nil:
		return one.client, command
	case len(workload.ExtraOf(lookup(e.Case)).Packages) > 0:
		return programs.inside, command
	}
	if command[0] == workload.Generator {
		command[0] = filepath.Join(s.options.Binaries, filepath.Base(workload.Generator))
	}
	return from, command
}

// isGenerator reports whether the client of w is the load generator, which waits to be told to begin.
func isGenerator(w workload.Workload) bool { return len(w.Programs()) > 0 || workload.IsPeer(w) }

// belongs reports whether the client was started for e.
func (c *client) belongs(e experiment.Execution) bool { return c.execution.Key() == e.Key() }

// claim gives the client its turn if it still idles, and reports whether it does. A claimed client
// is not killed before its load.
func (c *client) claim() bool { return c.state.CompareAndSwap(idling, claimed) }

// end is when the client is expected to end.
func (c *client) end() time.Time { return c.started.Add(c.workload.Wall(c.execution.Case.Params)) }

// kill ends the client and waits for its end.
func (c *client) kill() {
	c.stop()
	<-c.done
}

// Next sets the executions that follow, see experiment.Lookahead.
func (s *services) Next(following []experiment.Execution) { s.next = following }

// turn returns the client of e: the one started in advance, if it belongs to e and can
// still be claimed, or a new one. It calls prepare before the client loads the network.
// It also starts clients of the next executions in advance.
func (s *services) turn(ctx context.Context, e experiment.Execution, prepare func() error) (*client, error) {
	c := s.claim(e)
	switch {
	case c != nil:
		context.AfterFunc(ctx, c.stop)
	case isGenerator(lookup(e.Case)):
		c = s.startPrepared(ctx, e)
	case s.instances[e.Configuration.Name].client != nil:
		c = s.startIdle(ctx, e)
	}
	if err := prepare(); err != nil {
		if c != nil {
			c.kill()
		}
		return nil, err
	}
	if c == nil {
		c = s.newClient(ctx, e, 0, claimed)
	}
	c.begin()
	s.startEarly(ctx, s.next, c.end())
	s.next = nil
	return c, nil
}

// startIdle starts the client of e in its pod and returns shortly before the client
// begins to load, so that the CPU time of its start is not counted. It returns nil if
// the client does not idle.
func (s *services) startIdle(ctx context.Context, e experiment.Execution) *client {
	idle := lookup(e.Case).Lead() - claimGuard
	if idle <= 0 {
		return nil
	}
	c := s.newClient(ctx, e, 0, claimed)
	select {
	case <-time.After(idle):
	case <-c.done:
	}
	return c
}

// claim returns the client of e that was started in advance, if it idles. It kills those that
// belong neither to e nor to the executions that follow.
func (s *services) claim(e experiment.Execution) (claimed *client) {
	var others []*client
	for _, c := range s.early {
		switch {
		case c.belongs(e) && c.claim():
			claimed = c
		case slices.ContainsFunc(s.next, c.belongs):
			others = append(others, c)
		default:
			c.kill()
		}
	}
	s.early = others
	return claimed
}

// dropEarly kills the clients that were started in advance.
func (s *services) dropEarly() {
	for _, c := range s.early {
		c.kill()
	}
	s.early = nil
}

// startEarly starts the clients of executions that follow each other, so that the load of each
// begins soon after the one before. The load before the first ends at end. A client that does not idle
// for long enough is not started in advance, and the first in a guest ends the plan.
func (s *services) startEarly(ctx context.Context, following []experiment.Execution, end time.Time) {
	for _, e := range following {
		w := lookup(e.Case)
		switch {
		case s.instances[e.Configuration.Name].client != nil:
			return
		case w.Lead() <= loadGap+claimGuard:
			end = end.Add(w.Wall(e.Case.Params))
		default:
			end = s.startAfter(ctx, e, end).end()
		}
	}
}

// startAfter returns the client of e that was started in advance, or starts one whose load begins
// soon after end. It replaces a client that would have to be claimed before end.
func (s *services) startAfter(ctx context.Context, e experiment.Execution, end time.Time) *client {
	lead := lookup(e.Case).Lead()
	i := slices.IndexFunc(s.early, func(c *client) bool { return c.belongs(e) })
	if i >= 0 {
		c := s.early[i]
		if !c.started.Add(lead - claimGuard).Before(end) {
			return c
		}
		c.kill()
		s.early = slices.Delete(s.early, i, i+1)
	}
	// The client outlives the present execution. Down kills it if it is never claimed.
	c := s.newClient(context.WithoutCancel(ctx), e, max(0, time.Until(end.Add(loadGap-lead))), pending)
	s.early = append(s.early, c)
	return c
}

func lookup(c experiment.Case) workload.Workload {
	w, err := workload.Lookup(c.Tool)
	if err != nil {
		panic(err) // the experiment was validated
	}
	return w
}
