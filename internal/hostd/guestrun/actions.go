package guestrun

import (
	"context"
	"errors"
	"time"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/vmm"
)

// performAction performs one action. It returns the event that follows, if one does.
func (n *nics) performAction(ctx context.Context, action hotplug.Action) hotplug.Event {
	if n.performCommon(ctx, &n.slots, action) {
		return nil
	}
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	switch a := action.(type) {
	case hotplug.AddTAP:
		n.plug = plug{}
		return n.plug.do(a.Occupant, hotplug.StepTAP, func() error { return n.addTAP(a) })
	case hotplug.NetdevAdd:
		return n.plug.do(a.Occupant, hotplug.StepNetdev, func() error { return n.addNetdev(bound, a) })
	case hotplug.DeviceAdd:
		e := n.plug.do(a.Occupant, hotplug.StepDevice, func() error { return n.addDevice(bound, a) })
		if failed, ok := e.(hotplug.PlugFailed); ok && !failed.Uncertain {
			n.after(ctx, 0, n.repair) // others may have plugged a device into the slot
		}
		return e
	case hotplug.Connect:
		begin := time.Now()
		err := n.connect(a)
		n.plug.took("connect", begin)
		if err != nil {
			return hotplug.ConnectFailed{Occupant: a.Occupant, Err: err}
		}
		return hotplug.Connected{Occupant: a.Occupant}
	case hotplug.Disconnect:
		n.checkRemoved(ctx, a, n.disconnect(a))
	case hotplug.Adopted:
		n.tryAdopt(ctx, a.Attachment.Key)
	case hotplug.DeviceDel:
		return n.deleteDevice(bound, a)
	case hotplug.NetdevDel:
		n.checkRemoved(ctx, a, n.vmm.DeleteNetdev(bound, a.ID))
	case hotplug.CutTAP:
		n.checkRemoved(ctx, a, n.cutTAP(a.TAP))
	case hotplug.DelTAP:
		n.checkRemoved(ctx, a, n.deleteTAP(a.TAP))
	case hotplug.Released:
		n.checkRemoved(ctx, a, n.release(a.Key))
	case hotplug.Lost:
		key := a.Attachment.Key
		if a.Reset {
			n.log.Info("NIC is free: the guest was reset", "container", key.Owner, "interface", key.Name, "slot", a.Attachment.Slot)
			break
		}
		n.host.Metrics.Lost(n.Record.Name)
		n.log.Warn("NIC is lost: the guest has given it up unasked", "container", key.Owner, "interface", key.Name,
			"endpoint", key.Kind == attachment.Endpoint, "slot", a.Attachment.Slot)
	}
	return nil
}

// deleteDevice asks the guest for a device of either state.
func (g *Guest) deleteDevice(ctx context.Context, a hotplug.DeviceDel) hotplug.Event {
	err := g.vmm.DeleteDevice(ctx, a.ID)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vmm.ErrNotFound):
		return hotplug.DeviceDeleted{Device: a.ID}
	}
	return hotplug.UnplugRefused{Device: a.ID, Err: err}
}

// connect gives a NIC to its pod.
func (n *nics) connect(a hotplug.Connect) error {
	switch a.Key.Kind {
	case attachment.Trunk:
		return n.trunk.open(a.TAP)
	case attachment.Endpoint:
		return n.host.Segments.Connect(a.TAP, a.Key)
	}
	err := n.connectNIC(a.Attachment, a.Record)
	if err != nil && a.Change {
		err = errors.Join(err, n.connectNIC(a.Attachment, a.Was))
	}
	return err
}

// connectNIC connects a NIC as a record says. It claims the addresses again: if the
// request has failed since it claimed them, they were released.
func (n *nics) connectNIC(a hotplug.Attachment, r attachment.Record) error {
	if err := n.Tenant.Hold(n.owner(a.Key), r); err != nil {
		return err
	}
	return n.host.Ports.Connect(a.TAP, a.MAC, r, attachment.Alias(a.Key, r), n.Tenant.Multicasts())
}

// disconnect takes a NIC away from its pod, but not from the guest.
func (n *nics) disconnect(a hotplug.Disconnect) error {
	if a.Key.Kind == attachment.Trunk {
		n.trunk.removeAll()
		n.trunk.close()
	}
	if endpoint, err := n.host.Segments.Disconnect(a.TAP); endpoint {
		return err
	}
	return n.host.Ports.Disconnect(a.TAP, a.MAC)
}

// cutTAP takes the host's end of a NIC that is still there off the network: its TAP, or an
// endpoint's queue.
func (n *nics) cutTAP(name string) error {
	if endpoint, err := n.host.Segments.ClosePort(name); endpoint {
		return err
	}
	_, err := n.host.Ports.Cut(name)
	return err
}

// deleteTAP deletes the host's end of a NIC: its TAP, or an endpoint's queue.
func (n *nics) deleteTAP(name string) error {
	if endpoint, err := n.host.Segments.ClosePort(name); endpoint {
		return err
	}
	return n.host.Ports.Delete(name)
}

// release takes back what was reserved for an attachment.
func (n *nics) release(key attachment.Key) error {
	n.Tenant.Release(n.owner(key))
	return n.host.Segments.Release(n.Record.Name, key)
}
