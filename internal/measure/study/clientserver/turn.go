package clientserver

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Some clients idle for seconds before they load the network (workload's Lead). The
// clients of the next two executions are therefore started while the present one runs, so that
// their idle time passes in parallel. Loads never overlap: a client that is not claimed
// shortly before it would begin to load is killed, and started again in its turn.
//
// A client in a guest is never started in advance: its start would take CPU time from
// what is being measured in that guest.

const loadGap = 250 * time.Millisecond // from the expected end of one client to the load of the next

// clientCommand returns the place and the command of the client of e. The load generator has
// its path in the guests' images only in guests, and with the guests' programs on this host. A machine
// that is reached over SSH is loaded from the network of this process, others from that of the lab's clients.
func (s *Study) clientCommand(e experiment.Execution) (place.Place, []string) {
	one := s.Instances[e.Configuration.Name]
	command := e.Case.Workload().Client(e.Case.Params, one.Endpoint(e.Case))
	if workload.IsPeer(e.Case.Workload()) {
		command = append(command, workload.WaitFlag)
	}
	from, programs := s.Client, s.programs
	if e.Configuration.Host != "" {
		from, programs = place.Local{}, s.programsHere
	}
	switch {
	case one.Client != nil:
		return one.Client, command
	case len(workload.ExtraOf(e.Case.Workload()).Packages) > 0:
		return programs.Inside, command
	}
	if command[0] == workload.Generator {
		command[0] = filepath.Join(s.Options.Binaries, filepath.Base(workload.Generator))
	}
	return from, command
}

// Next sets the executions that follow, see experiment.Lookahead.
func (s *Study) Next(following []experiment.Execution) { s.next = following }

// turn returns the client of e: the one started in advance, if it belongs to e and can
// still be claimed, or a new one. It calls prepare before the client loads the network.
// It also starts clients of the next executions in advance.
func (s *Study) turn(ctx context.Context, e experiment.Execution, prepare func() error) (*client.Client, error) {
	c := s.claim(e)
	switch {
	case c != nil:
		context.AfterFunc(ctx, c.Stop)
	case client.IsGenerator(e.Case.Workload()):
		c = s.startPrepared(ctx, e)
	case s.Instances[e.Configuration.Name].Client != nil:
		c = s.startIdle(ctx, e)
	}
	if err := prepare(); err != nil {
		if c != nil {
			c.Kill()
		}
		return nil, err
	}
	if c == nil {
		c = s.newClient(ctx, e, 0, client.Claimed)
	}
	c.Begin()
	s.startEarly(ctx, s.next, c.End())
	s.next = nil
	return c, nil
}

// startIdle starts the client of e in its pod and returns shortly before the client
// begins to load, so that the CPU time of its start is not counted. It returns nil if
// the client does not idle.
func (s *Study) startIdle(ctx context.Context, e experiment.Execution) *client.Client {
	idle := e.Case.Workload().Lead() - client.ClaimGuard
	if idle <= 0 {
		return nil
	}
	c := s.newClient(ctx, e, 0, client.Claimed)
	select {
	case <-time.After(idle):
	case <-c.Done:
	}
	return c
}

// claim returns the client of e that was started in advance, if it idles. It kills those that
// belong neither to e nor to the executions that follow.
func (s *Study) claim(e experiment.Execution) (claimed *client.Client) {
	var others []*client.Client
	for _, c := range s.early {
		switch {
		case c.Belongs(e) && c.Claim():
			claimed = c
		case slices.ContainsFunc(s.next, c.Belongs):
			others = append(others, c)
		default:
			c.Kill()
		}
	}
	s.early = others
	return claimed
}

// dropEarly kills the clients that were started in advance.
func (s *Study) dropEarly() {
	for _, c := range s.early {
		c.Kill()
	}
	s.early = nil
}

// startEarly starts the clients of executions that follow each other, so that the load of each
// begins soon after the one before. The load before the first ends at end. A client that does not idle
// for long enough is not started in advance, and the first in a guest ends the plan.
func (s *Study) startEarly(ctx context.Context, following []experiment.Execution, end time.Time) {
	for _, e := range following {
		w := e.Case.Workload()
		switch {
		case s.Instances[e.Configuration.Name].Client != nil:
			return
		case w.Lead() <= loadGap+client.ClaimGuard:
			end = end.Add(w.Wall(e.Case.Params))
		default:
			end = s.startAfter(ctx, e, end).End()
		}
	}
}

// startAfter returns the client of e that was started in advance, or starts one whose load begins
// soon after end. It replaces a client that would have to be claimed before end.
func (s *Study) startAfter(ctx context.Context, e experiment.Execution, end time.Time) *client.Client {
	lead := e.Case.Workload().Lead()
	i := slices.IndexFunc(s.early, func(c *client.Client) bool { return c.Belongs(e) })
	if i >= 0 {
		c := s.early[i]
		if !c.Started.Add(lead - client.ClaimGuard).Before(end) {
			return c
		}
		c.Kill()
		s.early = slices.Delete(s.early, i, i+1)
	}
	// The client outlives the present execution. Down kills it if it is never claimed.
	c := s.newClient(context.WithoutCancel(ctx), e, max(0, time.Until(end.Add(loadGap-lead))), client.Pending)
	s.early = append(s.early, c)
	return c
}

// startPrepared starts the load generator of e and returns when it waits to be told to begin, or
// has ended.
func (s *Study) startPrepared(ctx context.Context, e experiment.Execution) *client.Client {
	c := s.newClient(ctx, e, 0, client.Claimed)
	c.AwaitPrepared()
	return c
}

// newClient returns a client of e, see client.
func (s *Study) newClient(ctx context.Context, e experiment.Execution, delay time.Duration, state int32) *client.Client {
	from, command := s.clientCommand(e)
	return client.New(ctx, e, from, command, delay, state)
}
