package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"unnest/internal/hostapi/segment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/tap"
	"unnest/internal/vmm"
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
	g.refillAfter(ctx, refillQuiet)
}

// perform does one action. It returns what has come of it, if that is news.
func (g *guest) perform(ctx context.Context, action hotplug.Action) hotplug.Event {
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	switch a := action.(type) {
	case hotplug.AddTAP:
		g.plug = plug{}
		return g.plug.do(a.Occupant, hotplug.StepTAP, func() error { return g.addTAP(a) })
	case hotplug.NetdevAdd:
		return g.plug.do(a.Occupant, hotplug.StepNetdev, func() error { return g.addNetdev(bound, a) })
	case hotplug.DeviceAdd:
		return g.plug.do(a.Occupant, hotplug.StepDevice, func() error { return g.addDevice(bound, a) })
	case hotplug.Connect:
		return g.connectNIC(a)
	case hotplug.Disconnect:
		g.check(ctx, a, g.disconnectNIC(a))
	case hotplug.Adopted:
		g.check(ctx, a, g.adopt(a.Attachment))
	case hotplug.DeviceDel:
		return g.deleteDevice(bound, a)
	case hotplug.NetdevDel:
		g.check(ctx, a, g.vmm.DeleteNetdev(bound, a.ID))
	case hotplug.DelTAP:
		g.check(ctx, a, g.host.deleteEnd(a.Name))
	case hotplug.StartTimer:
		g.after(ctx, a.After, func(ctx context.Context) { g.feed(ctx, hotplug.UnplugTimedOut{Timer: a.Timer}) })
	case hotplug.Released:
		g.check(ctx, a, g.release(a.Key))
	case hotplug.Reply:
		g.reply(a)
	case hotplug.Lost:
		g.host.metrics.lost.WithLabelValues(g.record.Name).Inc()
		key, endpoint := plainKey(a.Attachment.Key)
		g.log.Warn("lost NIC: the guest has given it up unasked", "container", key.ContainerID,
			"interface", key.Interface, "endpoint", endpoint, "slot", a.Attachment.Slot)
	}
	return nil
}

// plug is a plug under way.
type plug struct {
	failed   bool
	tap      *os.File // between its creation and its way to QEMU
	endpoint *note    // of an endpoint of a segment
	steps    []slog.Attr
}

// do does one step, unless an earlier one has failed.
func (p *plug) do(o hotplug.Occupant, step hotplug.PlugStep, f func() error) hotplug.Event {
	if p.failed {
		return nil
	}
	begin := time.Now()
	err := f()
	p.took([]string{"tap", "netdev", "device"}[step], begin)
	if err != nil {
		p.failed = true
		p.closeTAP()
		uncertain := step != hotplug.StepTAP && !errors.As(err, new(*vmm.RefusedError))
		return hotplug.PlugFailed{Occupant: o, Step: step, Err: err, Uncertain: uncertain}
	}
	if step == hotplug.StepDevice {
		return hotplug.PlugSucceeded{Occupant: o}
	}
	return nil
}

func (p *plug) took(step string, begin time.Time) {
	p.steps = append(p.steps, slog.Duration(step, time.Since(begin)))
}

// closeTAP closes our descriptor: if QEMU has none, the TAP is gone.
func (p *plug) closeTAP() {
	if p.tap != nil {
		_ = p.tap.Close()
		p.tap = nil
	}
}

// addTAP makes the TAP, on no bridge and with nothing that it may send.
func (g *guest) addTAP(a hotplug.AddTAP) (err error) {
	if a.Bound {
		return g.openQueue(a)
	}
	if err := g.host.guard(a.Name, a.MAC(g.record.macPrefix()), note{}); err != nil {
		return err
	}
	d := tap.Device{Name: a.Name, MTU: g.tenant.MTU, Alias: a.Owner, Persistent: g.vmm.PersistentTAPs()}
	if g.plug.tap, err = tap.Open(d); err != nil {
		return errors.Join(err, g.host.unguard(a.Name))
	}
	if d.Persistent {
		g.plug.closeTAP()
	}
	return nil
}

func (g *guest) addNetdev(ctx context.Context, a hotplug.NetdevAdd) error {
	defer g.plug.closeTAP()
	return g.vmm.AddNetdev(ctx, a.ID, vmm.TAP{Name: a.TAP, File: g.plug.tap, VHost: vhost()})
}

func (g *guest) addDevice(ctx context.Context, a hotplug.DeviceAdd) error {
	d := vmm.Device{
		ID: a.ID, Netdev: a.Netdev, TAP: a.TAP(g.record.tapPrefix()), Slot: a.Slot, MAC: a.MAC, MTU: g.tenant.MTU,
	}
	if n := g.plug.endpoint; n != nil {
		d.MAC, d.MTU = g.endpointMAC(*n, a.Occupant), segment.MTU
	}
	if err := g.vmm.AddDevice(ctx, d); err != nil {
		return err
	}
	return g.host.segments.adapt(d.TAP) // if it is an endpoint's
}

func (g *guest) deleteDevice(ctx context.Context, a hotplug.DeviceDel) hotplug.Event {
	err := g.vmm.DeleteDevice(ctx, a.ID)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vmm.ErrNotFound):
		return hotplug.DeviceDeleted{Device: a.ID}
	}
	return hotplug.UnplugRefused{Device: a.ID, Err: err}
}

// connectNIC gives a NIC to its pod.
func (g *guest) connectNIC(a hotplug.Connect) hotplug.Event {
	begin := time.Now()
	err := g.giveNIC(a)
	g.plug.took("connect", begin)
	if err != nil {
		return hotplug.ConnectFailed{Occupant: a.Occupant, Err: err}
	}
	return hotplug.Connected{Occupant: a.Occupant}
}

func (g *guest) giveNIC(a hotplug.Connect) error {
	if a.Key == trunkKey {
		return g.openTrunk(a)
	}
	if _, endpoint := plainKey(a.Key); endpoint {
		return g.host.segments.connect(a.TAP, a.Key)
	}
	err := g.give(a.Attachment, a.Note, a.Owner)
	if err != nil && a.Change {
		err = errors.Join(err, g.give(a.Attachment, a.Was, hotplug.Owner(a.Key, a.Was)))
	}
	return err
}

// give makes a NIC what the note says.
func (g *guest) give(a hotplug.Attachment, text, alias string) error {
	n, err := parseNote(text)
	if err != nil {
		return err
	}
	// The request has taken the addresses, but may have been given up since.
	if _, err := g.tenant.take(owner(g.record.Name, a.Key), n.addresses, false); err != nil {
		return err
	}
	return g.host.connect(a.TAP, a.MAC, n, alias)
}

// disconnectNIC takes a NIC away from its pod, but not from the guest.
func (g *guest) disconnectNIC(a hotplug.Disconnect) error {
	if a.Key == trunkKey {
		g.dropVLANs()
		g.closeTrunk()
	}
	if endpoint, err := g.host.segments.disconnect(a.TAP); endpoint {
		return err
	}
	return g.host.disconnect(a.TAP, a.MAC, a.Owner)
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
	warm := true
	for _, s := range g.plug.steps {
		warm = warm && s.Key != "device"
	}
	answer <- outcome{Reply: r, steps: g.plug.steps, warm: warm}
}
