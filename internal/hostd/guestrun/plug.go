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
	tap    *os.File    // between its creation and its way to QEMU
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

// closeTAP closes our descriptor. If QEMU has none, the TAP is gone.
func (p *plug) closeTAP() {
	if p.tap != nil {
		_ = p.tap.Close()
		p.tap = nil
	}
}

// addTAP creates the TAP, on no bridge and with no address that it may send from; of an
// endpoint, a queue of its segment.
func (n *nics) addTAP(a hotplug.AddTAP) (err error) {
	if a.Key.Kind == attachment.Endpoint {
		n.plug.tap, err = n.host.Segments.Open(n.Record.Name, a.Key, a.TAP)
		return err
	}
	turn := n.turn()
	defer turn.Done()
	if err := n.host.Ports.Guard(a.TAP, a.MAC(n.Record.MACPrefix()), nil, false, 0); err != nil {
		return err
	}
	turn.Yield()
	d := tap.Device{Name: a.TAP, MTU: n.Tenant.Now().MTU, Alias: attachment.WarmAlias, Persistent: n.vmm.PersistentTAPs()}
	if n.plug.tap, err = tap.Open(d); err != nil {
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
	vhost := tap.OpenVHost()
	if vhost != nil {
		defer vhost.Close()
	}
	return n.vmm.AddNetdev(ctx, a.ID, vmm.TAP{Name: a.TAP, File: n.plug.tap, VHost: vhost, Poll: poll})
}

func (n *nics) addDevice(ctx context.Context, a hotplug.DeviceAdd) error {
	d := vmm.Device{
		ID: a.ID, Netdev: a.Netdev, TAP: a.TAP(n.Record.TAPPrefix()), Slot: a.Slot, MAC: a.MAC, MTU: n.Tenant.Now().MTU,
	}
	if a.Record.Fraction.Valid() {
		d.MAC, d.MTU = n.endpointMAC(a.Record, a.Occupant), segment.MTU
	}
	if err := n.vmm.AddDevice(ctx, d); err != nil {
		return err
	}
	return n.host.Segments.RestoreOffloads(d.TAP)
}
