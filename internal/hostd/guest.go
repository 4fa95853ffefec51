package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"unnest/internal/hotplug"
	"unnest/internal/qmp"
)

const (
	// qmpTime bounds each command to QEMU, which answers within milliseconds
	// unless it is stopped.
	qmpTime = 5 * time.Second
	// defaultUnplugTime is how long a guest has to answer one request to unplug.
	// Linux' pciehp waits 5 s before it acts.
	defaultUnplugTime = 10 * time.Second
	unplugTries       = 3
	// mendTime is when to look for what failed deletions have left behind.
	mendTime = 10 * time.Second
)

// errUnavailable is wrapped when the guest's VMM cannot be asked.
var errUnavailable = errors.New("the guest's VMM does not answer")

// guest drives the NICs of one guest as long as one QMP connection lasts. What
// it knows it has learnt from QEMU and from the TAPs, so that another can go on
// at any time, in this process or the next.
type guest struct {
	record     GuestRecord
	unplugTime time.Duration
	log        *slog.Logger

	stop  context.CancelCauseFunc    // ends run
	inbox chan func(context.Context) // what run is to do, with its own context
	ready chan struct{}              // closed when requests are taken
	done  chan struct{}              // closed when run has ended, err set before
	err   error                      // why it has; wraps errUnavailable

	// The rest belongs to run.
	qmp     *qmp.Client
	state   hotplug.State
	waiting map[hotplug.RequestID]chan<- outcome
	lastID  hotplug.RequestID
	plug    plug // the one under way
	mending bool // a look at what is there is due
}

// outcome is the answer to a request.
type outcome struct {
	hotplug.Reply
	steps []slog.Attr // how long each step of the plug took
}

func newGuest(r GuestRecord, unplugTime time.Duration, log *slog.Logger) *guest {
	return &guest{
		record: r, unplugTime: unplugTime, log: log.With("guest", r.Name),
		inbox: make(chan func(context.Context)), ready: make(chan struct{}), done: make(chan struct{}),
		waiting: map[hotplug.RequestID]chan<- outcome{},
	}
}

// run serves the guest until ctx ends or the connection does.
func (g *guest) run(ctx context.Context) {
	defer close(g.done)
	err := g.serve(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	g.err = fmt.Errorf("guest %s: %w: %w", g.record.Name, errUnavailable, err)
}

func (g *guest) serve(ctx context.Context) (err error) {
	if err := g.connect(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer g.qmp.Close()
	events := g.qmp.Subscribe(qmp.EventDeviceDeleted, qmp.EventUnplugGuestError, qmp.EventReset)
	defer events.Close()
	if err := g.observe(ctx); err != nil {
		return err
	}
	wg.Go(func() { g.forward(ctx, events) })
	close(g.ready)
	for {
		select {
		case f := <-g.inbox:
			f(ctx)
		case <-g.qmp.Done():
			return g.qmp.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *guest) connect(ctx context.Context) (err error) {
	if g.record.Slots > 0 { // else the zero State fits
		g.state, err = hotplug.New(hotplug.Config{
			Prefix: g.record.tapPrefix(), Slots: g.record.Slots, MAC: g.record.macPrefix(),
			UnplugTimeout: g.unplugTime, UnplugTries: unplugTries,
		})
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, qmpTime)
	defer cancel()
	g.qmp, err = qmp.Dial(ctx, g.record.QMP)
	return err
}

// submit has run call f; ctx bounds the wait for that to begin.
func (g *guest) submit(ctx context.Context, f func(context.Context)) error {
	select {
	case g.inbox <- f:
		return nil
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request feeds an event that asks for a reply, and waits for that.
func (g *guest) request(ctx context.Context, event func(hotplug.RequestID) hotplug.Event) (outcome, error) {
	answer := make(chan outcome, 1) // run does not wait for a handler that has given up
	err := g.submit(ctx, func(ctx context.Context) {
		g.lastID++
		g.waiting[g.lastID] = answer
		g.feed(ctx, event(g.lastID))
	})
	if err != nil {
		return outcome{}, err
	}
	select {
	case o := <-answer:
		return o, o.Err
	case <-g.done:
		return outcome{}, g.err
	case <-ctx.Done():
		return outcome{}, ctx.Err()
	}
}

// slots tells what is in the guest's slots.
func (g *guest) slots(ctx context.Context) ([]hotplug.Slot, error) {
	answer := make(chan []hotplug.Slot, 1)
	if err := g.submit(ctx, func(context.Context) { answer <- g.state.Slots() }); err != nil {
		return nil, err
	}
	return <-answer, nil
}

// forward feeds QEMU's events until the connection or ctx ends.
func (g *guest) forward(ctx context.Context, events *qmp.Subscription) {
	for {
		e, err := events.Next(ctx)
		var f func(context.Context)
		switch {
		case errors.As(err, new(*qmp.LostError)):
			f = g.mend
		case err != nil:
			return
		default:
			f = func(ctx context.Context) { g.feed(ctx, translate(e)) }
		}
		if g.submit(ctx, f) != nil {
			return
		}
	}
}

func translate(e qmp.Event) hotplug.Event {
	switch e.Name {
	case qmp.EventReset:
		return hotplug.GuestReset{}
	case qmp.EventUnplugGuestError:
		return hotplug.UnplugRefused{Device: e.Device(), Err: errors.New("the guest's kernel refused")}
	}
	return hotplug.DeviceDeleted{Device: e.Device()}
}

// observe brings the state in line with what is there.
func (g *guest) observe(ctx context.Context) error {
	seen, err := g.look(ctx)
	if err != nil {
		return err
	}
	g.feed(ctx, seen)
	return nil
}

func (g *guest) look(ctx context.Context) (hotplug.Observed, error) {
	ctx, cancel := context.WithTimeout(ctx, qmpTime)
	defer cancel()
	devices, err := g.qmp.Peripherals(ctx)
	if err != nil {
		return hotplug.Observed{}, err
	}
	taps, err := observeTAPs()
	if err != nil {
		return hotplug.Observed{}, err
	}
	seen := hotplug.Observed{TAPs: taps}
	for _, d := range devices {
		seen.Devices = append(seen.Devices, hotplug.ObservedDevice{ID: d.ID, Bus: d.Bus})
	}
	return seen, nil
}

// mend observes, and if that fails once more after a while.
func (g *guest) mend(ctx context.Context) {
	g.mending = false
	if err := g.observe(ctx); err != nil {
		g.log.Warn("observe", "error", err)
		g.mendLater(ctx)
	}
}

func (g *guest) mendLater(ctx context.Context) {
	if !g.mending {
		g.mending = true
		g.after(ctx, mendTime, g.mend)
	}
}

// after has run call f after a while, unless it has ended by then.
func (g *guest) after(ctx context.Context, d time.Duration, f func(context.Context)) {
	time.AfterFunc(d, func() { _ = g.submit(ctx, f) })
}
