package guestrun

import (
	"slices"
	"strings"
	"time"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/status"
)

// attachedAt returns when a NIC was attached, the zero time if that is not known.
func (n *nics) attachedAt(nic *hostdpb.NIC) time.Time {
	key := attachment.Key{Owner: nic.GetContainerId(), Name: nic.GetInterface()}
	since := n.trunk.ports[key].record.Since
	for _, s := range n.state.Slots() {
		if s.Key == key && s.Slot == int(nic.GetSlot()) {
			since = s.Record.Since
		}
	}
	if since == 0 || nic.GetMode() == hostdpb.Mode_MODE_SEGMENT {
		return time.Time{}
	}
	return time.Unix(since, 0)
}

func (g *Guest) status() status.Guest {
	n := g.nics
	s := status.Guest{
		Name: g.Record.Name, Tenant: g.Tenant.Name, Awake: g.awake.Load(), Slots: g.vmm.Slots(),
		Attachments: n.count(), Shared: g.shares.devices.Status(g.shares.state),
	}
	for _, slot := range n.state.Slots() {
		switch slot.Status {
		case hotplug.Free:
			s.SlotsFree++
		case hotplug.Quarantined:
			s.SlotsQuarantined++
		case hotplug.Foreign:
			s.SlotsForeign++
			s.NICs = append(s.NICs, status.NIC{Slot: slot.Slot, State: slot.Status.String(), Device: slot.Device})
		case hotplug.Warm:
			s.Pool++
		}
		if slot.Key.Kind == attachment.Trunk {
			s.NICs = append(s.NICs, status.NIC{Slot: slot.Slot, State: "trunk", MAC: slot.MAC(g.Record.MACPrefix())})
		}
	}
	s.PoolTarget = min(g.Record.Pool, s.Slots-s.SlotsForeign)
	for _, nic := range n.list() {
		state := strings.ToLower(strings.TrimPrefix(nic.GetState().String(), "NIC_STATE_"))
		s.NICs = append(s.NICs, status.NIC{
			Slot: int(nic.GetSlot()), VLAN: int(nic.GetVlan()), State: state, Container: nic.GetContainerId(), Interface: nic.GetInterface(),
			Network: nic.GetNetwork(), Bridge: nic.GetBridge(), MAC: nic.GetMac(), Addresses: nic.GetAddresses(),
			Pod: nic.GetPod(), Fraction: int(nic.GetFraction()), Since: n.attachedAt(nic),
		})
	}
	slices.SortFunc(s.NICs, func(a, b status.NIC) int { return (a.VLAN<<8 | a.Slot) - (b.VLAN<<8 | b.Slot) })
	return s
}
