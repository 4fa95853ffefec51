package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"unnest/internal/hotplug"
	"unnest/internal/qmp"
	"unnest/internal/tap"
)

// feed gives the event to the state machine, performs what that wants, and goes
// on with the events that come of it.
func (g *guest) feed(ctx context.Context, e hotplug.Event) {
	for queue := []hotplug.Event{e}; len(queue) > 0; {
		var actions []hotplug.Action
		g.state, actions = hotplug.Step(g.state, queue[0])
		queue = queue[1:]
		for _, a := range actions {
			g.log.Debug("perform", "action", a)
			if e := g.perform(ctx, a); e != nil {
				queue = append(queue, e)
			}
		}
	}
	g.plug = plug{}
}

// perform does one action. It returns what has come of it, if that is news.
func (g *guest) perform(ctx context.Context, action hotplug.Action) hotplug.Event {
	bound, cancel := context.WithTimeout(ctx, qmpTime)
	defer cancel()
	switch a := action.(type) {
	case hotplug.AddTAP:
		g.plug = plug{}
		return g.plug.do(a.Occupant, hotplug.StepTAP, func() error { return g.addTAP(a) })
	case hotplug.NetdevAdd:
		return g.plug.do(a.Occupant, hotplug.StepNetdev, func() error { return g.addNetdev(bound, a) })
	case hotplug.DeviceAdd:
		return g.plug.do(a.Occupant, hotplug.StepDevice, func() error { return g.addDevice(bound, a) })
	case hotplug.DeviceDel:
		return g.deleteDevice(bound, a)
	case hotplug.NetdevDel:
		g.check(ctx, a, g.deleteNetdev(bound, a))
	case hotplug.DelTAP:
		g.check(ctx, a, deleteTAP(a.Name))
	case hotplug.StartTimer:
		g.after(ctx, a.After, func(ctx context.Context) { g.feed(ctx, hotplug.UnplugTimedOut{Timer: a.Timer}) })
	case hotplug.Reply:
		g.reply(a)
	case hotplug.Lost:
		g.log.Warn("lost NIC: the guest has given it up unasked", "container", a.Attachment.ContainerID,
			"interface", a.Attachment.Interface, "mac", a.Attachment.MAC, "slot", a.Attachment.Slot)
	}
	return nil
}

// plug is a plug under way.
type plug struct {
	failed bool
	tap    *os.File // between its creation and its way to QEMU
	steps  []slog.Attr
}

// do does one step, unless an earlier one has failed.
func (p *plug) do(o hotplug.Occupant, step hotplug.PlugStep, f func() error) hotplug.Event {
	if p.failed {
		return nil
	}
	begin := time.Now()
	err := f()
	p.steps = append(p.steps, slog.Duration([]string{"tap", "netdev", "device"}[step], time.Since(begin)))
	if err != nil {
		p.failed = true
		p.closeTAP()
		uncertain := step != hotplug.StepTAP && !errors.As(err, new(*qmp.Error))
		return hotplug.PlugFailed{Occupant: o, Step: step, Err: err, Uncertain: uncertain}
	}
	if step == hotplug.StepDevice {
		return hotplug.PlugSucceeded{Occupant: o}
	}
	return nil
}

// closeTAP closes our descriptor: if QEMU has none, the TAP is gone.
func (p *plug) closeTAP() {
	if p.tap != nil {
		_ = p.tap.Close()
		p.tap = nil
	}
}

func (g *guest) addTAP(a hotplug.AddTAP) (err error) {
	g.plug.tap, err = tap.Open(tap.Device{Name: a.Name, Bridge: g.record.Bridge, MTU: g.record.MTU, Alias: a.Owner})
	return err
}

// descriptor is the name under which QEMU keeps a TAP's descriptor until the
// netdev takes it.
func descriptor(netdev string) string { return "tap-" + netdev }

func (g *guest) addNetdev(ctx context.Context, a hotplug.NetdevAdd) error {
	defer g.plug.closeTAP()
	name := descriptor(a.ID)
	if err := g.qmp.SendFD(ctx, name, g.plug.tap); err != nil {
		return err
	}
	err := g.qmp.NetdevAdd(ctx, map[string]any{"type": "tap", "id": a.ID, "fd": name, "vhost": tap.VHost()})
	if errors.As(err, new(*qmp.Error)) {
		return errors.Join(err, g.closeDescriptor(ctx, name))
	}
	return err
}

func (g *guest) addDevice(ctx context.Context, a hotplug.DeviceAdd) error {
	args := a.Arguments()
	args["host_mtu"] = g.record.MTU // the guest's kernel takes it over
	return g.qmp.DeviceAdd(ctx, args)
}

func (g *guest) deleteDevice(ctx context.Context, a hotplug.DeviceDel) hotplug.Event {
	err := g.qmp.DeviceDel(ctx, a.ID)
	switch {
	case err == nil || qmp.IsUnplugPending(err):
		return nil
	case qmp.IsNotFound(err):
		return hotplug.DeviceDeleted{Device: a.ID}
	}
	return hotplug.UnplugRefused{Device: a.ID, Err: err}
}

// deleteNetdev deletes the netdev, or the descriptor that waits for one.
func (g *guest) deleteNetdev(ctx context.Context, a hotplug.NetdevDel) error {
	err := g.qmp.NetdevDel(ctx, a.ID)
	if !qmp.IsNotFound(err) {
		return err
	}
	return g.closeDescriptor(ctx, descriptor(a.ID))
}

// closeDescriptor makes QEMU close a descriptor, if it has it.
func (g *guest) closeDescriptor(ctx context.Context, name string) error {
	err := g.qmp.Execute(ctx, "closefd", map[string]any{"fdname": name}, nil)
	if errors.As(err, new(*qmp.Error)) {
		return nil
	}
	return err
}

// check notes that a deletion has failed. What it has left is looked for later.
func (g *guest) check(ctx context.Context, a hotplug.Action, err error) {
	if err != nil {
		g.log.Warn("leave behind", "action", a, "error", err)
		g.mendLater(ctx)
	}
}

// reply answers who waits for it.
func (g *guest) reply(r hotplug.Reply) {
	answer := g.waiting[r.Request]
	delete(g.waiting, r.Request)
	if answer == nil {
		panic(fmt.Sprintf("guest %s: %v: nobody waits for it", g.record.Name, r))
	}
	answer <- outcome{Reply: r, steps: g.plug.steps}
}
