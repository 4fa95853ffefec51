package daemon

import (
	"context"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"unnest/internal/hostd/attachment"
	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/status"
)

func (g *guest) status() status.Guest {
	n := g.nics
	s := status.Guest{
		Name: g.record.Name, Tenant: g.tenant.Name, Awake: g.awake.Load(), Slots: g.vmm.Slots(),
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
			s.NICs = append(s.NICs, status.NIC{Slot: slot.Slot, State: "trunk", MAC: slot.MAC(g.record.macPrefix())})
		}
	}
	s.PoolTarget = min(g.record.Pool, s.Slots-s.SlotsForeign)
	for _, nic := range n.list() {
		state := strings.ToLower(strings.TrimPrefix(nic.GetState().String(), "NIC_STATE_"))
		s.NICs = append(s.NICs, status.NIC{
			Slot: int(nic.GetSlot()), VLAN: int(nic.GetVlan()), State: state, Container: nic.GetContainerId(), Interface: nic.GetInterface(),
			Network: nic.GetNetwork(), Bridge: nic.GetBridge(), MAC: nic.GetMac(), Addresses: nic.GetAddresses(),
			Pod: nic.GetPod(), Fraction: int(nic.GetFraction()),
		})
	}
	slices.SortFunc(s.NICs, func(a, b status.NIC) int { return (a.VLAN<<8 | a.Slot) - (b.VLAN<<8 | b.Slot) })
	return s
}

// statusTime bounds the wait for one guest's part.
const statusTime = 2 * time.Second

// reporter is the daemon as its operator sees it.
type reporter struct{ *daemon }

// Status describes the daemon and what it serves. It is empty after a panic, because
// Prometheus' collectors run in goroutines of their own.
func (r reporter) Status(ctx context.Context) (s status.Status) {
	_ = r.host.contain("status", func() error { s = r.status(ctx); return nil })
	return s
}

func (d *daemon) status(ctx context.Context) status.Status {
	s := status.Status{Version: Version(), Protocol: protocol, Since: d.since, Listen: d.address(), Configuration: d.configuration()}
	for _, g := range d.all() {
		described := guestStatus(ctx, g)
		described.Certificates, described.CertificateExpires = d.describeCertificates(g.record)
		s.Guests = append(s.Guests, described)
	}
	s.Segments = d.host.segments.Status()
	for _, t := range d.allTenants() {
		stats, owned := t.stats()
		ts := status.Tenant{Name: t.Name, Bridge: t.Bridge, Attachments: owned, AddressesInUse: stats.InUse, AddressesCooling: stats.Cooling}
		for _, p := range s.Segments {
			if p.Tenant == t.Name {
				ts.Segments++
			}
		}
		s.Tenants = append(s.Tenants, ts)
	}
	var err error
	if s.Unguarded, err = d.unguarded(); err != nil {
		d.config.Logger.Warn("look for unguarded ports", "error", err)
	}
	slices.SortFunc(s.Tenants, func(a, b status.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// Drops returns how many frames the packet filters have dropped, by reason.
func (r reporter) Drops() map[string]uint64 {
	all := r.host.ports.drops()
	if f := r.host.networks.Load(); f != nil {
		drops, err := f.Drops()
		if err != nil {
			r.config.Logger.Warn("count dropped packets", "error", err)
			return all
		}
		maps.Copy(drops, all)
		return drops
	}
	return all
}

func guestStatus(ctx context.Context, g *guest) status.Guest {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	s, err := read(ctx, g, g.status)
	if err != nil {
		return status.Guest{Name: g.record.Name, Tenant: g.tenant.Name, Error: err.Error()}
	}
	return s
}

// Version returns the version of the binary.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
