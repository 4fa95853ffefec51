package guestrun

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/vlan"
)

// trunk is the NIC of a guest that carries the VLANs of its pods.
type trunk struct {
	*Guest
	link    *vlan.Trunk // nil while the NIC is not connected
	ports   map[attachment.Key]vlanPort
	left    []vlanPort                    // without attachment, and not deleted yet: repair tries again
	last    int                           // the VLAN given last
	waiting map[attachment.Key]*trunkWait // the attachments that wait for the trunk
}

// trunkWait counts the attaches of one key that wait for the trunk: a client may ask again.
type trunkWait struct {
	attaches int
	detached bool // meanwhile: none of them gets a VLAN
}

// wait counts an attach that waits for the trunk, until waited.
func (t *trunk) wait(key attachment.Key) *trunkWait {
	if t.waiting[key] == nil {
		t.waiting[key] = &trunkWait{}
	}
	t.waiting[key].attaches++
	return t.waiting[key]
}

func (t *trunk) waited(key attachment.Key, w *trunkWait) {
	if w.attaches--; w.attaches == 0 && t.waiting[key] == w {
		delete(t.waiting, key)
	}
}

type vlanPort struct {
	id     int
	port   string // on the host
	record attachment.Record
}

// open makes a NIC that has just been plugged the guest's trunk.
func (t *trunk) open(port string) (err error) {
	t.close()
	if t.link, err = vlan.Open(port, t.Record.VLANPrefix()); err != nil {
		return err
	}
	return link.SetAlias(port, attachment.Alias(attachment.TrunkKey, attachment.Record{}))
}

func (t *trunk) close() {
	if t.link != nil {
		if err := t.link.Close(); err != nil {
			t.log.Warn("close trunk", "error", err)
		}
		t.link = nil
	}
}

// add gives an attachment a VLAN, or changes the record of the one that it has. It
// claims the addresses again, as connectNIC does.
func (t *trunk) add(ctx context.Context, key attachment.Key, r attachment.Record) (*hostdpb.NIC, error) {
	if t.link == nil {
		return nil, hotplug.ErrDetached // since it was plugged
	}
	v, known := t.ports[key]
	if !known {
		id, err := vlan.NextVLAN(t.last, t.taken)
		if err != nil {
			return nil, err
		}
		v = vlanPort{id: id, port: vlan.PortName(t.Record.VLANPrefix(), id)}
	}
	v.record = r
	if err := t.Tenant.Hold(t.owner(key), r); err != nil {
		return nil, err
	}
	if err := t.host.Ports.Guard(v.port, t.mac(v.id), r.Addrs(), r.DHCP, t.Tenant.Multicasts()); err != nil {
		return nil, err
	}
	if !known {
		if err := t.link.Add(vlan.Port{VLAN: v.id, MTU: t.Tenant.Now().MTU}); err != nil {
			return nil, errors.Join(err, t.host.Ports.Unguard(v.port))
		}
		if err := link.SetAlias(v.port, attachment.WarmAlias); err != nil { // nobody's yet, also for the next daemon
			return nil, errors.Join(err, t.end(ctx, v))
		}
		t.last = v.id
	}
	err := func() error {
		turn := t.turn()
		defer turn.Done()
		return t.host.Ports.Connect(turn, v.port, t.mac(v.id), r, attachment.Alias(key, r), t.Tenant.Multicasts())
	}()
	if err != nil {
		delete(t.ports, key)
		return nil, errors.Join(err, t.end(ctx, v))
	}
	t.ports[key] = v
	return t.describe(key, v), nil
}

func (t *trunk) taken(id int) bool {
	has := func(v vlanPort) bool { return v.id == id }
	for _, v := range t.ports {
		if has(v) {
			return true
		}
	}
	return slices.ContainsFunc(t.left, has)
}

func (t *trunk) mac(id int) string { return vlan.MAC(t.Record.MACPrefix(), id) }

// remove takes an attachment's VLAN away, and reports whether it had one.
func (t *trunk) remove(ctx context.Context, key attachment.Key) bool {
	v, ok := t.ports[key]
	if !ok {
		return false
	}
	delete(t.ports, key)
	if err := t.end(ctx, v); err != nil {
		t.log.Warn("leave behind", "vlan", v.id, "error", err)
	}
	t.Tenant.Release(t.owner(key))
	return true
}

// end deletes a VLAN that has no attachment any more. If that fails, repair tries again.
func (t *trunk) end(ctx context.Context, v vlanPort) error {
	err := t.delete(v)
	if err != nil {
		t.left = append(t.left, v)
		t.repairLater(ctx)
	}
	return err
}

// removeAll takes all VLANs away: the guest was reset, or has lost the trunk.
func (t *trunk) removeAll(ctx context.Context) {
	for key := range t.ports {
		t.remove(ctx, key)
	}
}

// deleteLeft deletes the VLANs without attachment that are still there.
func (t *trunk) deleteLeft() (err error) {
	t.left = slices.DeleteFunc(t.left, func(v vlanPort) bool {
		failed := t.delete(v)
		err = errors.Join(err, failed)
		return failed == nil
	})
	return err
}

func (t *trunk) delete(v vlanPort) error {
	err := t.host.Ports.EndServices(v.port)
	if err == nil && t.link != nil {
		err = t.link.Delete(v.id)
	}
	if err != nil {
		return err
	}
	turn := t.turn()
	defer turn.Done()
	return t.host.Ports.Delete(turn, v.port)
}

// adopt takes over the trunk NIC of an earlier daemon, with its VLANs. A VLAN without
// an owner was not finished. It may be tried again after an error.
func (t *trunk) adopt(port, mac string) (err error) {
	if t.link == nil {
		if t.link, err = vlan.Open(port, t.Record.VLANPrefix()); err != nil {
			return err
		}
	}
	found, err := t.link.Ports()
	if err != nil {
		return err
	}
	for _, p := range found { // first, so that no other attachment gets one of the VLANs
		v := vlanPort{id: p.VLAN, port: p.Name}
		key, r, ok := attachment.ParseAlias(p.Alias)
		v.record = r
		switch other, twice := t.ports[key]; {
		case slices.ContainsFunc(t.left, func(left vlanPort) bool { return left.id == v.id }):
		case !ok, twice && other.id != v.id && link.Bridge(v.port) == "": // of two of an attachment, one has ended and is on no bridge
			t.left = append(t.left, v)
		case twice && other.id != v.id:
			t.left = append(t.left, other)
			t.ports[key] = v
		default:
			t.ports[key] = v
		}
	}
	err = errors.Join(t.deleteLeft(), t.host.Ports.Guard(port, mac, nil, false, 0))
	for key, v := range t.ports {
		if adoptErr := t.adoptPort(key, v.record, v.port, t.mac(v.id)); adoptErr != nil {
			err = errors.Join(err, fmt.Errorf("take over VLAN %d: %w", v.id, adoptErr))
		}
	}
	return err
}

// describe returns a VLAN in the form of the protocol.
func (t *trunk) describe(key attachment.Key, v vlanPort) *hostdpb.NIC {
	nic := &hostdpb.NIC{
		ContainerId: key.Owner, Interface: key.Name, Mac: t.mac(v.id),
		Mode: hostdpb.Mode_MODE_TRUNK, Vlan: uint32(v.id), State: hostdpb.NICState_NIC_STATE_ATTACHED,
	}
	if trunk, ok := t.nics.state.Lookup(attachment.TrunkKey); ok {
		nic.TrunkMac = trunk.MAC
	}
	describeRecord(nic, v.record)
	return nic
}
