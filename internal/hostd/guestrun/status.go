package guestrun

import (
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/status"
)

// attachedAt returns when a NIC in one of the slots was attached, the zero time if that is not known.
func (n *nics) attachedAt(slots []hotplug.Slot, nic *hostdpb.NIC) time.Time {
	key := attachment.Key{Owner: nic.GetContainerId(), Name: nic.GetInterface()}
	since := n.trunk.ports[key].record.Since
	for _, s := range slots {
		if s.Key == key && s.Slot == int(nic.GetSlot()) {
			since = s.Record.Since
		}
	}
	if since == 0 || nic.GetMode() == hostdpb.Mode_MODE_SEGMENT {
		return time.Time{}
	}
	return time.Unix(since, 0)
}

// status returns what the guest has. It lists the NICs only if describe is set.
func (g *Guest) status(describe bool) status.Guest {
	n := g.nics
	s := status.Guest{
		Name: g.Record.Name, Tenant: g.Tenant.Name, Awake: g.awake.Load(), Slots: g.vmm.Slots(),
		Attachments: n.count(), Shared: g.shares.devices.Status(g.shares.state),
	}
	slots := n.state.Slots()
	for _, slot := range slots {
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
	if !describe {
		return s
	}
	for _, nic := range n.list() {
		state := strings.ToLower(strings.TrimPrefix(nic.GetState().String(), "NIC_STATE_"))
		s.NICs = append(s.NICs, status.NIC{
			Slot: int(nic.GetSlot()), VLAN: int(nic.GetVlan()), State: state, Container: nic.GetContainerId(), Interface: nic.GetInterface(),
			Network: nic.GetNetwork(), Bridge: nic.GetBridge(), MAC: nic.GetMac(), PodMAC: nic.GetPodMac(), Addresses: nic.GetAddresses(),
			Pod: nic.GetPod(), Fraction: int(nic.GetFraction()), Since: n.attachedAt(slots, nic),
		})
	}
	slices.SortFunc(s.NICs, func(a, b status.NIC) int { return (a.VLAN<<8 | a.Slot) - (b.VLAN<<8 | b.Slot) })
	return s
}
