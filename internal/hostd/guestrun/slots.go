package guestrun

import (
	"context"

	"unnest.io/unnest/internal/hostd/hotplug"
)

// slots is a state of package hotplug and the code that performs its actions.
type slots struct {
	state   hotplug.State
	perform func(context.Context, hotplug.Action) hotplug.Event
	fed     func(context.Context) // called after each feed; may be nil
	replies []func()              // to call at the end of the feed
}

// feed gives an event to the state machine, performs the actions that follow, and
// feeds the events that follow from those. It replies to requests at the end, so that all
// actions have been performed when a client gets its answer.
func (s *slots) feed(ctx context.Context, e hotplug.Event) {
	for queue := []hotplug.Event{e}; len(queue) > 0; {
		var actions []hotplug.Action
		s.state, actions = hotplug.Step(s.state, queue[0])
		queue = queue[1:]
		for _, a := range actions {
			if e := s.perform(ctx, a); e != nil {
				queue = append(queue, e)
			}
		}
	}
	for _, reply := range s.replies {
		reply()
	}
	s.replies = nil
	if s.fed != nil {
		s.fed(ctx)
	}
}

// request feeds an event that asks for a reply. The run goroutine calls reply exactly
// once, with the reply or with the end of run.
func (g *Guest) request(ctx context.Context, s *slots, event func(hotplug.RequestID) hotplug.Event, reply func(hotplug.Reply)) {
	g.lastID++
	g.waiting[g.lastID] = reply
	s.feed(ctx, event(g.lastID))
}

// performCommon performs the actions that need no device. It reports false for others.
func (g *Guest) performCommon(ctx context.Context, s *slots, action hotplug.Action) bool {
	g.log.Debug("perform", "action", action)
	switch a := action.(type) {
	case hotplug.StartTimer:
		g.after(ctx, a.After, func(ctx context.Context) { s.feed(ctx, hotplug.UnplugTimedOut{Timer: a.Timer}) })
	case hotplug.Reply:
		reply := g.waiting[a.Request]
		delete(g.waiting, a.Request)
		s.replies = append(s.replies, func() { reply(a) })
	default:
		return false
	}
	return true
}
