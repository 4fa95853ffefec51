package guestrun

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/vmm"
)

// plug is the plug of one NIC.
type plug struct {
	failed bool
	taps   []*os.File  // the TAP's queues, between its creation and its way to QEMU
	queues int         // of the TAP
	steps  []slog.Attr // how long each step took
}

// do performs one step, unless an earlier one has failed.
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

// warm reports whether the NIC was in the pool, so that no device was plugged.
func (p *plug) warm() bool {
	return !slices.ContainsFunc(p.steps, func(s slog.Attr) bool { return s.Key == "device" })
}

// closeTAP closes our descriptors. If QEMU has none, the TAP is gone.
func (p *plug) closeTAP() {
	for _, f := range p.taps {
		_ = f.Close()
	}
	p.taps = nil
}

// addTAP creates the TAP, on no bridge and with no address that it may send from; of an
// endpoint, a queue of its segment.
func (n *nics) addTAP(a hotplug.AddTAP) (err error) {
	if n.plug.queues = 1; a.Key.Kind == attachment.Endpoint {
		f, err := n.host.Segments.Open(n.Record.Name, a.Key, a.TAP)
		if err == nil {
			n.plug.taps = []*os.File{f}
		}
		return err
	}
	n.plug.queues = cmp.Or(n.Record.Queues, n.Tenant.Now().Queues, 1)
	turn := n.turn()
	defer turn.Done()
	if err := n.host.Ports.Guard(a.TAP, a.MAC(n.Record.MACPrefix()), nil, false, 0); err != nil {
		return err
	}
	turn.Yield()
	d := tap.Device{Name: a.TAP, MTU: n.Tenant.Now().MTU, Alias: attachment.WarmAlias, Persistent: n.vmm.PersistentTAPs()}
	if n.plug.taps, err = tap.OpenMultiQueue(d, n.plug.queues); err != nil {
		return errors.Join(err, n.host.Ports.Unguard(a.TAP))
	}
	if d.Persistent {
		n.plug.closeTAP()
	}
	return nil
}

func (n *nics) addNetdev(ctx context.Context, a hotplug.NetdevAdd) error {
	defer n.plug.closeTAP()
	poll := cmp.Or(n.Record.VHostPoll, n.Tenant.Now().VHostPoll)
	if err := tap.CheckPoll(poll); err != nil {
		return &vmm.RefusedError{Err: err}
	}
	t := vmm.TAP{Name: a.TAP, Queues: make([]vmm.Queue, n.plug.queues), Poll: poll}
	for i := range t.Queues {
		q := &t.Queues[i]
		if len(n.plug.taps) > 0 {
			q.File = n.plug.taps[i]
		}
		if q.VHost = tap.OpenVHost(); q.VHost != nil {
			defer q.VHost.Close()
		}
		if (q.VHost == nil) != (t.Queues[0].VHost == nil) {
			return &vmm.RefusedError{Err: errors.New("vhost-net can be opened for some queues of the NIC only; raise the daemon's limit of open files")}
		}
	}
	return n.vmm.AddNetdev(ctx, a.ID, t)
}

func (n *nics) addDevice(ctx context.Context, a hotplug.DeviceAdd) error {
	d := vmm.Device{
		ID: a.ID, Netdev: a.Netdev, TAP: a.TAP(n.Record.TAPPrefix()), Slot: a.Slot, MAC: a.MAC, MTU: n.Tenant.Now().MTU,
		Queues: n.plug.queues,
	}
	if a.Record.Fraction.Valid() {
		d.MAC, d.MTU = n.endpointMAC(a.Record, a.Occupant), segment.MTU
	}
	if err := n.vmm.AddDevice(ctx, d); err != nil {
		return err
	}
	return n.host.Segments.RestoreOffloads(d.TAP)
}
