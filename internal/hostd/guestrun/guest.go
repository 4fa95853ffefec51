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
	"log/slog"
	"sync/atomic"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/tenant"
	"unnest.io/unnest/internal/vmm"
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
	Err   error                      // why run has ended; wraps ErrUnavailable
	// awake is set by the first request of the guest's system. A system that still
	// boots takes a plug for an unplug, so no NIC is plugged in advance for it.
	awake   atomic.Bool
	machine atomic.Pointer[machineNICs] // nil: not known yet
	pid     atomic.Int64                // of the VMM's process while it is connected; 0: unknown

	vmm         vmm.VMM
	own         []vmm.NIC // on TAPs that only the VMM knows
	boot        record.Boot
	bootless    bool                 // no boot is kept
	ended       map[string]time.Time // boots that have ended, and when
	nics        *nics
	shares      *shareSlots
	waiting     map[hotplug.RequestID]func(hotplug.Reply) // the requests under way
	lastID      hotplug.RequestID
	repairing   bool   // an observe is scheduled
	offerFailed string // why the last offer of credentials failed; "": it did not
	leftFailed  string // why the last deleteLeft failed; "": it did not
	unkept      bool   // the guest's boot could not be kept, and the log says so
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

// submit queues f for the run goroutine. ctx bounds the wait until run takes it.
func (g *Guest) submit(ctx context.Context, f func(context.Context)) error {
	select {
	case g.inbox <- f:
		return nil
	case <-g.Done:
		return g.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call makes the run goroutine call f and waits for the answer, which f gives at once
// or which a later event gives. This is a request's only round trip to run.
func call[T any](ctx context.Context, g *Guest, f func(ctx context.Context, answer func(T, error))) (T, error) {
	type result struct {
		value T
		err   error
	}
	answered := make(chan result, 1) // run does not wait for a handler whose context has ended
	err := g.submit(ctx, func(ctx context.Context) {
		f(ctx, func(value T, err error) { answered <- result{value, err} })
	})
	var none T
	if err != nil {
		return none, err
	}
	select {
	case r := <-answered:
		return r.value, r.err
	case <-g.Done:
		return none, g.Err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// read makes the run goroutine compute something.
func read[T any](ctx context.Context, g *Guest, f func() T) (T, error) {
	return call(ctx, g, func(_ context.Context, answer func(T, error)) { answer(f(), nil) })
}

// after makes the run goroutine call f after a while, unless run has ended by then.
func (g *Guest) after(ctx context.Context, d time.Duration, f func(context.Context)) {
	time.AfterFunc(d, func() { _ = g.submit(ctx, f) })
}

func (g *Guest) owner(key attachment.Key) string { return g.Record.Owner(key) }
