package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/tap"
	"unnest/internal/netdev/vlan"
	"unnest/internal/vmm"
)

const (
	// vmmTime bounds each command to the VMM, which answers within milliseconds
	// unless it is stopped.
	vmmTime = 5 * time.Second
	// defaultUnplugTime is how long a guest has to answer one request to unplug.
	// Linux' pciehp waits 5 s before it acts.
	defaultUnplugTime = 10 * time.Second
	unplugTries       = 3
	// slotRest is many times what a busy guest takes for the notes that it has made
	// of a NIC, see package hotplug.
	slotRest = 3 * time.Second
	// mendTime is when to look for what failed deletions have left behind.
	mendTime = 10 * time.Second
	// refillQuiet is how long a guest has to have asked for nothing before a NIC is
	// plugged for its pool: what the guest's kernel does for a new NIC takes time
	// from the pod that starts. refillRetry is when a plug for the pool has failed.
	refillQuiet = 500 * time.Millisecond
	refillRetry = 5 * time.Second
)

// errUnavailable is wrapped when the guest's VMM cannot be asked.
var errUnavailable = errors.New("the guest's VMM does not answer")

// guest drives the NICs of one guest as long as one connection to its VMM lasts.
// What it knows it has learnt from the VMM and from the host's links, so that
// another can go on at any time, in this process or the next.
type guest struct {
	record     GuestRecord
	tenant     *tenant
	host       *host
	unplugTime time.Duration
	log        *slog.Logger

	stop  context.CancelCauseFunc    // ends run
	inbox chan func(context.Context) // what run is to do, with its own context
	ready chan struct{}              // closed when requests are taken
	done  chan struct{}              // closed when run has ended, err set before
	err   error                      // why it has; wraps errUnavailable
	// awake is set by the first request of the guest's system: one that is not
	// up takes a plug for an unplug, so no NIC is plugged ahead for it.
	awake atomic.Bool

	// The rest belongs to run.
	vmm       vmm.VMM
	state     hotplug.State
	waiting   map[hotplug.RequestID]chan<- outcome
	lastID    hotplug.RequestID
	plug      plug      // the one under way
	mending   bool      // a look at what is there is due
	refilling bool      // a plug for the pool is due
	asked     time.Time // the latest request
	trunk     *vlan.Trunk
	vlans     map[hotplug.Key]vlanPort // attachments of mode trunk
	lastVLAN  int
	sharing   sharing
}

// outcome is the answer to a request.
type outcome struct {
	hotplug.Reply
	warm  bool
	steps []slog.Attr // how long each step of the plug took
}

func newGuest(r GuestRecord, t *tenant, h *host, unplugTime time.Duration, log *slog.Logger) *guest {
	return &guest{
		record: r, tenant: t, host: h, unplugTime: unplugTime, log: log.With("guest", r.Name),
		inbox: make(chan func(context.Context)), ready: make(chan struct{}), done: make(chan struct{}),
		waiting: map[hotplug.RequestID]chan<- outcome{}, vlans: map[hotplug.Key]vlanPort{},
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
	defer g.vmm.Close()
	if err := g.guardBootNICs(); err != nil {
		return err
	}
	begin := time.Now()
	if err := errors.Join(g.observe(ctx), g.observeShares(ctx)); err != nil {
		return err
	}
	g.log.Info("take over", "attachments", g.attachments(), "total", time.Since(begin))
	wg.Go(func() { g.forward(ctx) })
	close(g.ready)
	for {
		select {
		case f := <-g.inbox:
			f(ctx)
		case <-g.vmm.Done():
			return g.vmm.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *guest) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	if g.vmm, err = dialVMM(ctx, g.record); err != nil {
		return err
	}
	slots := g.vmm.Slots()
	if slots == 0 {
		return nil // the zero State fits
	}
	g.state, err = hotplug.New(hotplug.Config{
		Prefix: g.record.tapPrefix(), Slots: slots, MAC: g.record.macPrefix(), Pool: min(g.record.Pool, slots),
		UnplugTimeout: g.unplugTime, UnplugTries: unplugTries, Rest: slotRest,
	})
	if err != nil {
		return errors.Join(err, g.vmm.Close())
	}
	return nil
}

// submit has run call f; ctx bounds the wait for that to begin.
func (g *guest) submit(ctx context.Context, f func(context.Context)) error {
	select {
	case g.inbox <- f:
		return nil
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// request feeds an event that asks for a reply, and waits for that.
func (g *guest) request(ctx context.Context, event func(hotplug.RequestID) hotplug.Event) (outcome, error) {
	answer := make(chan outcome, 1) // run does not wait for a handler that has given up
	err := g.submit(ctx, func(ctx context.Context) {
		g.asked = time.Now()
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
		return outcome{}, context.Cause(ctx)
	}
}

// ask has run compute something.
func ask[T any](ctx context.Context, g *guest, f func() T) (T, error) {
	answer := make(chan T, 1)
	if err := g.submit(ctx, func(context.Context) { answer <- f() }); err != nil {
		var none T
		return none, err
	}
	return <-answer, nil
}

// forward feeds the VMM's events until the connection or ctx ends.
func (g *guest) forward(ctx context.Context) {
	for {
		e, err := g.vmm.Next(ctx)
		if err != nil {
			return
		}
		if g.submit(ctx, func(ctx context.Context) { g.happened(ctx, e) }) != nil {
			return
		}
	}
}

func (g *guest) happened(ctx context.Context, e vmm.Event) {
	switch e := e.(type) {
	case vmm.Deleted:
		g.shareDeleted(ctx, e.ID)
		g.feed(ctx, hotplug.DeviceDeleted{Device: e.ID})
	case vmm.Refused:
		g.feed(ctx, hotplug.UnplugRefused{Device: e.ID, Err: errors.New("the guest's kernel refused")})
	case vmm.Reset:
		g.awake.Store(false)
		g.dropVLANs()
		if err := g.host.segments.adaptAll(g.record.Name); err != nil {
			g.log.Warn("adapt segments", "error", err)
		}
		g.feed(ctx, hotplug.GuestReset{})
	case vmm.Lost:
		g.mend(ctx)
		g.mendShares(ctx)
	}
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
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	devices, err := g.vmm.Devices(ctx)
	if err != nil {
		return hotplug.Observed{}, err
	}
	taps, err := observeTAPs()
	if err != nil {
		return hotplug.Observed{}, err
	}
	seen := hotplug.Observed{TAPs: taps}
	for _, d := range devices {
		seen.Devices = append(seen.Devices, hotplug.ObservedDevice{ID: d.ID, Slot: d.Slot})
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

// wake notes that the guest's system is up, and fills its pool.
func (g *guest) wake(ctx context.Context) {
	if !g.awake.Swap(true) {
		_ = g.submit(ctx, func(ctx context.Context) { g.refillAfter(ctx, 0) }) // else it has ended
	}
}

// refillAfter plugs the next NIC for the pool, if one is wanted, after a while.
func (g *guest) refillAfter(ctx context.Context, d time.Duration) {
	if g.refilling || !g.awake.Load() || g.state.Deficit() == 0 {
		return
	}
	g.refilling = true
	g.after(ctx, d, func(ctx context.Context) {
		g.refilling = false
		if quiet := time.Since(g.asked); quiet < refillQuiet {
			g.refillAfter(ctx, refillQuiet-quiet)
			return
		}
		g.refill(ctx)
	})
}

// refill plugs one NIC for the pool.
func (g *guest) refill(ctx context.Context) {
	before := g.state.Deficit()
	g.refilling = true // feed is not to plan another
	g.feed(ctx, hotplug.Refill{})
	g.refilling = false
	pause := time.Duration(0)
	if g.state.Deficit() >= before {
		pause = refillRetry // what it met is in the log
	}
	g.refillAfter(ctx, pause)
}

// drain gives the pool up and waits for that, as long as ctx lasts.
func (g *guest) drain(ctx context.Context) {
	err := g.submit(ctx, func(ctx context.Context) {
		if g.awake.Load() { // else nobody would answer
			g.feed(ctx, hotplug.Drain{})
		}
	})
	for left := err == nil; left; {
		time.Sleep(10 * time.Millisecond)
		if left, err = ask(ctx, g, func() bool { return g.state.Draining() }); err != nil {
			return
		}
	}
}

// after has run call f after a while, unless it has ended by then.
func (g *guest) after(ctx context.Context, d time.Duration, f func(context.Context)) {
	time.AfterFunc(d, func() { _ = g.submit(ctx, f) })
}

// vhost is asked once: all NICs of a guest have the same backend.
var vhost = sync.OnceValue(tap.VHost)
