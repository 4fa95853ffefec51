package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/segments"
	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/qemu"
)

// recover keeps what the guests' attachments have, and takes over the segments and the shared
// memory of an earlier daemon.
func (d *daemon) recover(ctx context.Context) error {
	records := d.logRecords()
	if err := d.holdAttachments(records); err != nil {
		return err
	}
	if err := d.recoverSegments(ctx, records); err != nil {
		return err
	}
	for _, r := range records {
		if r.QMP != "" {
			d.host.Shares.Recover(ctx, r.Tenant, r.Name, func(ctx context.Context) (int, error) { return guestrun.Process(ctx, r) })
		}
	}
	return nil
}

func (d *daemon) recoverSegments(ctx context.Context, records []record.Guest) error {
	var guests []segments.Guest
	for _, r := range records {
		guests = append(guests, segments.Guest{
			Name: r.Name, Tenant: r.Tenant, Process: func(ctx context.Context) (int, error) { return d.process(ctx, r) },
			OwnsPort: func(port string) bool { return ports.IsPort(port, r.TAPPrefix()) },
		})
	}
	return d.host.Segments.Recover(ctx, d.quotas().Tenant, guests)
}

// process returns the ID of a VMM's process. A VMM that is connected takes no further
// connection to ask it.
func (d *daemon) process(ctx context.Context, r record.Guest) (int, error) {
	if g := d.known(r.Name); g != nil && g.Record.Same(r) {
		if pid := g.ProcessID(); pid > 0 {
			return pid, nil
		}
	}
	return guestrun.Process(ctx, r)
}

// announceInterval is how often members are announced, which tests change.
var announceInterval = segments.AnnounceInterval

// followSegments announces the members of the segments until ctx ends, and tries again to
// take over those that are left alone. A tenant whose segments are slow does not keep the
// others waiting.
func (d *daemon) followSegments(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for wait(ctx, announceInterval) {
		for _, tenant := range d.host.Segments.Tenants() {
			running.Go(func() { d.announceSegments(ctx, tenant) })
		}
		running.Go(func() { d.host.Panics.Try("take over segments", func() { d.recoverLeft(ctx) }) })
		d.beat(&d.announced)
	}
}

func (d *daemon) announceSegments(ctx context.Context, tenant string) {
	var names []string
	d.host.Panics.Try("announce segments", func() { names = d.host.Segments.Tick(tenant) })
	for _, g := range d.all() {
		if slices.Contains(names, g.Record.Name) {
			go g.LookAgain(ctx)
		}
	}
}

// recoverLeft tries to take over segments that are left alone, unless it does so already.
func (d *daemon) recoverLeft(ctx context.Context) {
	if d.host.Segments.Left() == 0 || !d.recovering.TryLock() {
		return
	}
	defer d.recovering.Unlock()
	records, _ := d.records() // the first try has logged what cannot be read
	if err := d.recoverSegments(ctx, records); err != nil {
		d.config.Logger.Warn("take over segments", "error", err)
	}
}

// exitTime is how long the VMM's process may take to exit after its connection has
// ended.
const exitTime = 200 * time.Millisecond

// leaveSegments removes the endpoints of a guest whose run has ended, if its VMM has
// ended: the other guests do not have to wait for the next scan. ctx is the run's.
func (d *daemon) leaveSegments(ctx context.Context, g *guestrun.Guest) {
	if ctx.Err() != nil || g.Record.QMP == "" || !d.host.Segments.Has(g.Record.Name) {
		return
	}
	pid, err := qemu.PID(ctx, g.Record.QMP)
	if err == nil && !exits(pid, exitTime) || err != nil && !errors.Is(guestrun.NotRunning(g.Record.QMP, err), vmm.ErrNotRunning) {
		return
	}
	if err := d.host.Segments.RemoveGuest(g.Record.Name); err != nil {
		d.logs.Of(g.Record.Name).Warn("leave segments", "guest", g.Record.Name, "error", err)
	}
}

// exits reports whether a process has exited, or does so in time.
func exits(pid int, within time.Duration) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds()))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
}
