package daemon

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"unnest/internal/hostd/hotplug"
)

// Status is what the daemon tells the host's operator of itself.
type Status struct {
	Version  string         `json:"version"`
	Protocol int            `json:"protocol"`
	Since    time.Time      `json:"since"`
	Listen   string         `json:"listen"`
	Guests   []GuestStatus  `json:"guests"`
	Tenants  []TenantStatus `json:"tenants"`
	// Segments are ordered by tenant and pod.
	Segments []SegmentStatus `json:"segments"`
}

// GuestStatus is one guest's part. A guest whose VMM does not answer has an
// Error and no more.
type GuestStatus struct {
	Name             string      `json:"name"`
	Tenant           string      `json:"tenant"`
	Error            string      `json:"error,omitempty"`
	Awake            bool        `json:"awake"` // its system has called since it began
	Slots            int         `json:"slots"`
	SlotsFree        int         `json:"slots_free"`
	SlotsQuarantined int         `json:"slots_quarantined"`
	Pool             int         `json:"pool"`
	PoolTarget       int         `json:"pool_target"`
	Attachments      int         `json:"attachments"`
	NICs             []NICStatus `json:"nics"`
	// Shared are the guest's volumes and shared memory, in no order.
	Shared []ShareStatus `json:"shared,omitempty"`
}

// NICStatus is one NIC.
type NICStatus struct {
	Slot      int      `json:"slot,omitempty"`
	VLAN      int      `json:"vlan,omitempty"`
	State     string   `json:"state"`
	Container string   `json:"container,omitempty"`
	Interface string   `json:"interface,omitempty"`
	Network   string   `json:"network,omitempty"`
	Bridge    string   `json:"bridge,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Pod       string   `json:"pod,omitempty"`      // of an endpoint: whose segment it is
	Fraction  int      `json:"fraction,omitempty"` // of an endpoint
}

// TenantStatus is one tenant's part.
type TenantStatus struct {
	Name             string `json:"name"`
	Bridge           string `json:"bridge"`
	Attachments      int    `json:"attachments"`
	AddressesInUse   int    `json:"addresses_in_use"`
	AddressesCooling int    `json:"addresses_cooling"`
	Segments         int    `json:"segments"`
}

// status describes the guest.
func (g *guest) status() GuestStatus {
	s := GuestStatus{
		Name: g.record.Name, Tenant: g.tenant.Name, Awake: g.awake.Load(), Slots: g.vmm.Slots(),
		PoolTarget: min(g.record.Pool, g.vmm.Slots()), Attachments: g.attachments(),
	}
	for _, slot := range g.state.Slots() {
		switch slot.Status {
		case hotplug.Free:
			s.SlotsFree++
		case hotplug.Quarantined:
			s.SlotsQuarantined++
		case hotplug.Warm:
			s.Pool++
		}
		if slot.Key == trunkKey {
			s.NICs = append(s.NICs, NICStatus{Slot: slot.Slot, State: "trunk", MAC: slot.MAC(g.record.macPrefix())})
		}
	}
	for _, n := range g.nics() {
		state := strings.ToLower(strings.TrimPrefix(n.GetState().String(), "NIC_STATE_"))
		s.NICs = append(s.NICs, NICStatus{
			Slot: int(n.GetSlot()), VLAN: int(n.GetVlan()), State: state, Container: n.GetContainerId(), Interface: n.GetInterface(),
			Network: n.GetNetwork(), Bridge: n.GetBridge(), MAC: n.GetMac(), Addresses: n.GetAddresses(),
			Pod: n.GetPod(), Fraction: int(n.GetFraction()),
		})
	}
	s.Shared = g.shareStatus()
	slices.SortFunc(s.NICs, func(a, b NICStatus) int { return (a.VLAN<<8 | a.Slot) - (b.VLAN<<8 | b.Slot) })
	return s
}

// statusTime bounds the wait for one guest's part.
const statusTime = 2 * time.Second

// status describes the daemon and what it serves.
func (d *daemon) status(ctx context.Context) Status {
	s := Status{Version: Version(), Protocol: protocol, Since: d.since, Listen: d.listen}
	for _, g := range d.all() {
		s.Guests = append(s.Guests, describeGuest(ctx, g))
	}
	s.Segments = d.host.segments.status()
	for _, t := range d.tenants {
		stats, owned := t.stats()
		ts := TenantStatus{Name: t.Name, Bridge: t.Bridge, Attachments: owned, AddressesInUse: stats.InUse, AddressesCooling: stats.Cooling}
		for _, p := range s.Segments {
			if p.Tenant == t.Name {
				ts.Segments++
			}
		}
		s.Tenants = append(s.Tenants, ts)
	}
	slices.SortFunc(s.Tenants, func(a, b TenantStatus) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func describeGuest(ctx context.Context, g *guest) GuestStatus {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	s, err := ask(ctx, g, g.status)
	if err != nil {
		return GuestStatus{Name: g.record.Name, Tenant: g.tenant.Name, Error: err.Error()}
	}
	return s
}

// all lists the guests that the daemon has met, by name.
func (d *daemon) all() (guests []*guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.guests {
		guests = append(guests, g)
	}
	slices.SortFunc(guests, func(a, b *guest) int { return strings.Compare(a.record.Name, b.record.Name) })
	return guests
}

// Version is that of the binary.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}
