// Package guestrun drives the devices of one guest: NICs, VLANs, endpoints of segments,
// volumes, shared memory, and the medium with its credentials. One goroutine owns all of it
// as long as one connection to the VMM lasts; requests.go has what others may ask of it.
//
// It performs what package hotplug decides. Who the guest is, and how its requests come, does
// not belong here.
package guestrun

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"unnest/internal/hostd/contain"
	"unnest/internal/hostd/hotplug"
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

// New returns a guest that has no run yet: Run begins it. The guest has unplugTime to answer
// each request to give a device up.
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
