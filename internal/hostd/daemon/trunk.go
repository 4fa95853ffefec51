package daemon

import (
	"context"
	"errors"
	"fmt"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/netdev/vlan"
)

// trunkKey is whose the trunk NIC is. No guest can ask for it: a container's ID
// begins with a letter or a digit.
var trunkKey = hotplug.Key{ContainerID: "@trunk", Interface: "trunk"}

// trunkNote is the trunk NIC's note, for people who read aliases.
const trunkNote = "trunk"

// vlan is an attachment of mode trunk.
type vlanPort struct {
	id   int
	port string // on the host
	note note
}

// attachVLAN gives the attachment a VLAN on the guest's trunk NIC, which is
// plugged for the first.
func (g *guest) attachVLAN(ctx context.Context, key hotplug.Key, n note) (attached, error) {
	if err := checkOwner(key, n); err != nil {
		return attached{}, err
	}
	nic, err := g.request(ctx, func(id hotplug.RequestID) hotplug.Event {
		return hotplug.Attach{Request: id, Key: trunkKey, Note: trunkNote}
	})
	if err != nil {
		return attached{steps: nic.steps}, err
	}
	type answer struct {
		nic *hostdpb.NIC
		err error
	}
	a, err := ask(ctx, g, func() answer {
		nic, err := g.addVLAN(key, n)
		return answer{nic, err}
	})
	return attached{nic: a.nic, warm: nic.warm, steps: nic.steps}, errors.Join(err, a.err)
}

// openTrunk makes a NIC that has just been plugged the guest's trunk.
func (g *guest) openTrunk(a hotplug.Connect) (err error) {
	g.closeTrunk()
	if g.trunk, err = vlan.Open(a.TAP, g.vlanPrefix()); err != nil {
		return err
	}
	return g.host.mark(a.TAP, a.Owner)
}

// vlanPrefix begins the names of the guest's VLANs' ports.
func (g *guest) vlanPrefix() string { return g.record.vlanPrefix() }

func (g *guest) closeTrunk() {
	if g.trunk != nil {
		if err := g.trunk.Close(); err != nil {
			g.log.Warn("close trunk", "error", err)
		}
		g.trunk = nil
	}
}

func (g *guest) addVLAN(key hotplug.Key, n note) (*hostdpb.NIC, error) {
	if g.trunk == nil {
		return nil, hotplug.ErrDetached // between the two parts of the request
	}
	n = g.merge(key, n)
	v, known := g.vlans[key]
	if !known {
		id, err := vlan.NextVLAN(g.lastVLAN, g.takenVLAN)
		if err != nil {
			return nil, err
		}
		v = vlanPort{id: id, port: vlan.PortName(g.vlanPrefix(), id)}
	}
	v.note = n
	alias := hotplug.Owner(key, n.String())
	if err := g.host.guard(v.port, g.vlanMAC(v.id), n); err != nil {
		return nil, err
	}
	if !known {
		if err := g.trunk.Add(vlan.Port{VLAN: v.id, MTU: g.tenant.MTU}); err != nil {
			return nil, errors.Join(err, g.host.unguard(v.port))
		}
		g.lastVLAN = v.id
	}
	if err := g.host.connect(v.port, g.vlanMAC(v.id), n, alias); err != nil {
		return nil, errors.Join(err, g.deleteVLAN(v))
	}
	g.vlans[key] = v
	return g.describeVLAN(key, v), nil
}

func (g *guest) takenVLAN(id int) bool {
	for _, v := range g.vlans {
		if v.id == id {
			return true
		}
	}
	return false
}

func (g *guest) vlanMAC(id int) string { return vlan.MAC(g.record.macPrefix(), id) }

// dropVLAN takes an attachment's VLAN away, and reports whether it had one.
func (g *guest) dropVLAN(key hotplug.Key) bool {
	v, ok := g.vlans[key]
	if !ok {
		return false
	}
	delete(g.vlans, key)
	err := errors.Join(g.deleteVLAN(v), g.tenant.release(owner(g.record.Name, key)))
	if err != nil {
		g.log.Warn("leave behind", "vlan", v.id, "error", err)
	}
	return true
}

// dropVLANs takes all away: the guest has begun anew, or ended.
func (g *guest) dropVLANs() {
	for key := range g.vlans {
		g.dropVLAN(key)
	}
}

func (g *guest) deleteVLAN(v vlanPort) error {
	if g.trunk != nil {
		if err := g.trunk.Delete(v.id); err != nil {
			return err
		}
	}
	return g.host.deletePort(v.port)
}

// adoptVLANs takes over the VLANs of an earlier daemon; one without an owner was
// not finished.
func (g *guest) adoptVLANs() error {
	ports, err := g.trunk.Ports()
	if err != nil {
		return err
	}
	for _, p := range ports {
		v := vlanPort{id: p.VLAN, port: p.Name}
		key, text, ok := hotplug.ParseOwner(p.Alias)
		if ok && key != (hotplug.Key{}) {
			v.note, err = parseNote(text)
		}
		if !ok || err != nil || key == (hotplug.Key{}) {
			if err := g.deleteVLAN(v); err != nil {
				return err
			}
			continue
		}
		g.vlans[key] = v
		if err := g.adoptPort(key, v.note, v.port, g.vlanMAC(v.id)); err != nil {
			return fmt.Errorf("take over VLAN %d: %w", v.id, err)
		}
	}
	return nil
}

// describeVLAN puts a VLAN in the words of the protocol.
func (g *guest) describeVLAN(key hotplug.Key, v vlanPort) *hostdpb.NIC {
	nic := &hostdpb.NIC{
		ContainerId: key.ContainerID, Interface: key.Interface, Mac: g.vlanMAC(v.id),
		Mode: hostdpb.Mode_MODE_TRUNK, Vlan: uint32(v.id), State: hostdpb.NICState_NIC_STATE_ATTACHED,
	}
	if t, ok := g.state.Lookup(trunkKey); ok {
		nic.TrunkMac = t.MAC
	}
	v.note.describe(nic)
	return nic
}
