package bench

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// Some clients idle for seconds before they load the network (workload's Lead). The
// client of the next execution is therefore started while the present one runs, so that
// its idle time passes in parallel. Loads never overlap: a client that is not claimed
// shortly before it would begin to load is killed, and started again in its turn.
//
// A client in a guest is never started in advance: its start would take CPU time from
// what is being measured in that guest.

const (
	claimGuard = 200 * time.Millisecond // a client must be claimed this long before its load begins
	loadGap    = 400 * time.Millisecond // from the expected end of one client to the load of the next
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
	if len(c.workload.Programs()) > 0 {
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

// clientCommand returns the place and the command of the client of e. The load generator has
// its path in the guests' images only in guests, and with the guests' programs on this host.
func (s *services) clientCommand(e experiment.Execution) (place.Place, []string) {
	one := s.instances[e.Configuration.Name]
	command := lookup(e.Case).Client(e.Case.Params, one.endpoint(e.Case))
	switch {
	case one.client != nil:
		return one.client, command
	case len(workload.ExtraOf(lookup(e.Case)).Packages) > 0:
		return s.programs.inside, command
	}
	if command[0] == workload.Generator {
		command[0] = filepath.Join(s.options.Binaries, filepath.Base(workload.Generator))
	}
	return s.client, command
}

// kill ends the client and waits for its end.
func (c *client) kill() {
	c.stop()
	<-c.done
}

// Next sets the execution that follows, see experiment.Lookahead.
func (s *services) Next(e experiment.Execution) { s.next = &e }

// turn returns the client of e: the one started in advance, if it belongs to e and can
// still be claimed, or a new one. It calls prepare before the client loads the network.
// It also starts the client of the next execution in advance, if that one idles for long
// enough.
func (s *services) turn(ctx context.Context, e experiment.Execution, prepare func() error) (*client, error) {
	c := s.claim(e)
	switch {
	case c != nil:
		context.AfterFunc(ctx, c.stop)
	case len(lookup(e.Case).Programs()) > 0:
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
	if s.next != nil {
		s.startEarly(ctx, *s.next, c.started.Add(c.workload.Wall(e.Case.Params)))
		s.next = nil
	}
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

// claim returns the client that was started in advance, if it belongs to e and idles,
// and kills any other.
func (s *services) claim(e experiment.Execution) *client {
	if c := s.early; c != nil && c.execution.Key() == e.Key() && c.state.CompareAndSwap(idling, claimed) {
		s.early = nil
		return c
	}
	s.dropEarly()
	return nil
}

// dropEarly kills the client that was started in advance, if there is one.
func (s *services) dropEarly() {
	if s.early != nil {
		s.early.kill()
		s.early = nil
	}
}

// startEarly starts the client of e so that its load begins soon after end, the expected
// end of the present client.
func (s *services) startEarly(ctx context.Context, e experiment.Execution, end time.Time) {
	lead := lookup(e.Case).Lead()
	if lead <= loadGap+claimGuard || s.instances[e.Configuration.Name].client != nil {
		return
	}
	// The client outlives the present execution. Down kills it if it is never claimed.
	s.early = s.newClient(context.WithoutCancel(ctx), e, max(0, time.Until(end.Add(loadGap-lead))), pending)
}

func lookup(c experiment.Case) workload.Workload {
	w, err := workload.Lookup(c.Tool)
	if err != nil {
		panic(err) // the experiment was validated
	}
	return w
}
