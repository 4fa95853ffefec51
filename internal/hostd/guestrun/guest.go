package guestrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"unnest/internal/hostd/contain"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/ports"
	"unnest/internal/hostd/record"
	"unnest/internal/hostd/tenant"
	"unnest/internal/vmm"
)

const (
	// vmmTime bounds each command to the VMM, which answers within milliseconds
	// unless it is stopped.
	vmmTime = 5 * time.Second
	// DefaultUnplugTime is how long a guest has to answer one request to unplug.
	// Linux' pciehp waits 5 s before it acts.
	DefaultUnplugTime = 10 * time.Second
	unplugTries       = 3
	// slotCooldown is many times what a busy guest takes to work through the ejections
	// that it has queued for a slot, see package hotplug.
	slotCooldown = 3 * time.Second
	// repairTime is how long after a failed deletion the daemon looks for leftovers.
	repairTime = 10 * time.Second
)

// Why a guest's run was ended.
var (
	ErrStopping = errors.New("the host daemon is stopping")
	ErrChanged  = errors.New("the guest was restarted")
	ErrRemoved  = errors.New("the guest's record was removed")
)

// ErrUnavailable is wrapped when the guest's VMM does not answer.
var ErrUnavailable = errors.New("the guest's VMM does not answer")

// Guest drives the devices of one guest as long as one connection to its VMM lasts.
// Its state is read from the VMM and from the host's links, so that another guest
// value, in this process or the next, can continue at any time.
//
// All fields below vmm belong to the goroutine of run. Others reach them by call.
type Guest struct {
	Record     record.Guest
	Tenant     *tenant.Tenant
	host       *Host
	unplugTime time.Duration
	log        *slog.Logger

	Stop  context.CancelCauseFunc // ends run
	dial  func(context.Context, record.Guest) (vmm.VMM, error)
	inbox chan func(context.Context) // functions for run to call, with its own context
	Ready chan struct{}              // closed when run takes requests
	Done  chan struct{}              // closed when run has ended, err set before
	Err   error                      // why run has ended; wraps errUnavailable
	// awake is set by the first request of the guest's system. A system that still
	// boots takes a plug for an unplug, so no NIC is plugged in advance for it.
	awake atomic.Bool
	pid   atomic.Int64 // of the VMM's process while it is connected; 0: unknown

	vmm         vmm.VMM
	own         []vmm.NIC // on TAPs that only the VMM knows
	nics        *nics
	shares      *shareSlots
	waiting     map[hotplug.RequestID]func(hotplug.Reply) // the requests under way
	lastID      hotplug.RequestID
	repairing   bool   // an observe is scheduled
	offerFailed string // why the last offer of credentials failed; "": it did not
}

func New(r record.Guest, t *tenant.Tenant, h *Host, unplugTime time.Duration, log *slog.Logger) *Guest {
	return &Guest{
		Record: r, Tenant: t, host: h, unplugTime: unplugTime, log: log.With("guest", r.Name), dial: h.Dial,
		inbox: make(chan func(context.Context)), Ready: make(chan struct{}), Done: make(chan struct{}),
		waiting: map[hotplug.RequestID]func(hotplug.Reply){},
	}
}

// Run serves the guest until ctx or the connection ends. Requests under way fail then.
func (g *Guest) Run(ctx context.Context) {
	defer close(g.Done)
	what := "run of guest " + g.Record.Name
	err := g.host.Panics.Contain(what, func() error { return g.serve(ctx) })
	switch {
	case errors.Is(err, contain.ErrPanic):
		g.Err = fmt.Errorf("guest %s: %w", g.Record.Name, err)
	case ctx.Err() != nil:
		err = context.Cause(ctx)
		fallthrough
	default:
		g.Err = fmt.Errorf("guest %s: %w: %w", g.Record.Name, ErrUnavailable, err)
	}
	for _, reply := range g.waiting {
		_ = g.host.Panics.Contain(what, func() error { reply(hotplug.Reply{Err: g.Err}); return nil })
	}
}

func (g *Guest) serve(ctx context.Context) error {
	if err := g.connect(ctx); err != nil {
		if !errors.Is(err, vmm.ErrNotRunning) {
			err = errors.Join(err, g.guardBootNICs())
		}
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer g.vmm.Close()
	defer g.pid.Store(0)
	defer g.endOffer(ctx)
	if err := g.guardBootNICs(); err != nil {
		return err
	}
	g.findOwnNICs(ctx)
	begin := time.Now()
	if err := g.observe(ctx); err != nil {
		return err
	}
	g.releaseEnded()
	g.log.Info("take over", "attachments", g.nics.count(), "total", time.Since(begin))
	failed := make(chan error, 1)
	wg.Go(func() {
		failed <- g.host.Panics.Contain("events of guest "+g.Record.Name, func() error { g.forward(ctx); return nil })
	})
	close(g.Ready)
	g.handOver(ctx)
	for {
		select {
		case f := <-g.inbox:
			f(ctx)
		case err := <-failed:
			if err != nil {
				return err
			}
			failed = nil // the connection has ended
		case <-g.vmm.Done():
			return g.vmm.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *Guest) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	if g.vmm, err = g.dial(ctx, g.Record); err != nil {
		return err
	}
	if g.nics, err = newNICs(g); err == nil {
		g.shares, err = newShareSlots(g)
	}
	if err != nil {
		return errors.Join(err, g.vmm.Close())
	}
	if s, ok := g.vmm.(vmm.Sharer); ok {
		pid, _ := s.PID() // without it the segments ask the VMM
		g.pid.Store(int64(pid))
	}
	return nil
}

// guardBootNICs limits the NICs that the guest has from its start to their own
// addresses, and reserves these addresses.
func (g *Guest) guardBootNICs() error {
	for _, n := range g.Record.NICs {
		for _, a := range n.Addresses {
			g.Tenant.Reserve(a, g.Record.Name)
		}
		if n.TAP == "" {
			continue
		}
		if err := g.guardOwn(n.TAP, n.MAC, n.Addresses, n.DHCP); err != nil {
			return err
		}
	}
	return nil
}

// guardOwn limits a NIC that the guest has from its start to addresses, and to the service
// addresses of its pods.
func (g *Guest) guardOwn(tap, mac string, addresses []netip.Addr, dhcp bool) error {
	return g.host.Ports.GuardOwn(tap, ports.OwnGuard{
		MAC: mac, Addresses: addresses, DHCP: dhcp, Multicasts: g.Tenant.Multicasts(),
		Pods: []string{g.Record.TapPrefix(), g.Record.VlanPrefix()},
	})
}

// forward passes the VMM's events to run until the connection or ctx ends.
func (g *Guest) forward(ctx context.Context) {
	for {
		e, err := g.vmm.Next(ctx)
		if err != nil {
			return
		}
		if g.submit(ctx, func(ctx context.Context) { g.handle(ctx, e) }) != nil {
			return
		}
	}
}

// handle handles an event of the VMM. A device is in the slots of one of the states;
// the other ignores the event.
func (g *Guest) handle(ctx context.Context, e vmm.Event) {
	both := func(e hotplug.Event) {
		g.shares.feed(ctx, e)
		g.nics.feed(ctx, e)
	}
	switch e := e.(type) {
	case vmm.Deleted:
		both(hotplug.DeviceDeleted{Device: e.ID})
		bound, cancel := context.WithTimeout(ctx, vmmTime)
		defer cancel()
		g.checkRemoved(ctx, hotplug.DeviceDel{ID: e.ID}, g.shares.devices.RetryDelete(bound, e.ID))
	case vmm.Refused:
		both(hotplug.UnplugRefused{Device: e.ID, Err: errors.New("the guest's kernel refused")})
	case vmm.Reset:
		g.awake.Store(false)
		g.nics.trunk.removeAll()
		if err := g.host.Segments.RestoreOffloadsOf(g.Record.Name); err != nil {
			g.log.Warn("restore offloads of segments", "error", err)
		}
		both(hotplug.GuestReset{})
	case vmm.Lost:
		g.repair(ctx)
	}
}

// observe brings the states in line with what is there.
func (g *Guest) observe(ctx context.Context) error {
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	nics, err := g.nics.look(bound)
	if err != nil {
		return err
	}
	g.nics.feed(ctx, nics)
	shared, err := g.shares.look(bound)
	if err != nil {
		return err
	}
	g.shares.feed(ctx, shared)
	return nil
}

// LookAgain has the run bring its states in line with what is there. If it has ended,
// nothing is to do.
func (g *Guest) LookAgain(ctx context.Context) { _ = g.submit(ctx, g.repair) }

// ProcessID returns the ID of the VMM's process while it is connected. 0: unknown.
func (g *Guest) ProcessID() int { return int(g.pid.Load()) }

// repair observes, and again later if that fails.
func (g *Guest) repair(ctx context.Context) {
	g.repairing = false
	for key := range g.nics.unadopted {
		g.nics.tryAdopt(ctx, key)
	}
	if err := g.observe(ctx); err != nil {
		g.log.Warn("observe", "error", err)
		g.repairLater(ctx)
	}
}

func (g *Guest) repairLater(ctx context.Context) {
	if !g.repairing {
		g.repairing = true
		g.after(ctx, repairTime, g.repair)
	}
}

// checkRemoved schedules a repair if an action has left something behind.
func (g *Guest) checkRemoved(ctx context.Context, a hotplug.Action, err error) {
	if err != nil {
		g.log.Warn("leave behind", "action", a, "error", err)
		g.repairLater(ctx)
	}
}
