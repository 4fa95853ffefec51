package guestrun

import (
	"context"
	"errors"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/vmm"
)

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
		g.endBoot()
		g.reset(ctx)
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
	shared, err := g.shares.devices.Observe(bound, g.shares.claimed)
	if err != nil {
		return err
	}
	g.shares.feed(ctx, shared)
	if volumes, err := g.shares.devices.Ephemeral(); err == nil && g.nics.count()+len(volumes)+len(g.nics.unadopted) == 0 { // as in a VMM that has just started
		g.forgetBoot()
	}
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
	if len(g.nics.unadopted) > 0 {
		for key := range g.nics.unadopted {
			g.nics.tryAdopt(ctx, key)
		}
		g.releaseEnded()
	}
	if err := g.observe(ctx); err != nil {
		g.log.Warn("observe", "error", err)
		g.repairLater(ctx)
	}
	text := ""
	if err := g.deleteLeft(); err != nil {
		if text = err.Error(); text != g.leftFailed {
			g.log.Warn("delete what VLANs and ports have left; trying again", "error", err)
		}
		g.repairLater(ctx)
	}
	g.leftFailed = text
}

// deleteLeft deletes what is left of VLANs and ports that have ended.
func (g *Guest) deleteLeft() error {
	err := g.nics.trunk.deleteLeft()
	turn := g.turn()
	defer turn.Done()
	return errors.Join(err, g.host.Ports.DeleteGone(turn, g.Record.TAPPrefix(), g.Record.VLANPrefix()))
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
