package tenant

import (
	"fmt"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/status"
)

// Limited says why the daemon would refuse an attachment now, "" when it would not.
func (t *Tenant) Limited(s status.Guest, allocate bool) string {
	stats, owned := t.Stats()
	if err := t.Now().AdmitNIC(s.Attachments, owned); err != nil {
		return err.Error()
	}
	if s.SlotsFree+s.Pool == 0 { // a warm NIC makes room
		return fmt.Sprintf("no free NIC slot of %d (%d with other devices, %d quarantined)", s.Slots, s.SlotsForeign, s.SlotsQuarantined)
	}
	if !allocate {
		return ""
	}
	if free, r, ok := scarcest(stats); ok && free == 0 {
		return fmt.Sprintf("no free address in %s (%d in use, %d cooling down)", r.Range.Subnet, r.InUse, r.Cooling)
	}
	if held, families := t.held(s.Name); t.Now().FreeAddresses(held) < families {
		return "no address within limits.addresses"
	}
	return ""
}

// addresses returns how many addresses of a family an attachment takes at most: with policies also a service address, if its
// plugin asks for one.
func (t *Tenant) addresses() int {
	if t.Now().NetworkPolicy != "" {
		return 2
	}
	return 1
}

// FreeNICs returns how many more NICs the guest's pods can get, with allocate also the addresses of each.
func (t *Tenant) FreeNICs(s status.Guest, allocate bool) int {
	stats, owned := t.Stats()
	free := min(s.SlotsFree+s.Pool, t.Now().FreeNICs(s.Attachments, owned))
	if !allocate {
		return free
	}
	each := t.addresses()
	if most, _, ok := scarcest(stats); ok {
		free = int(min(uint64(free), most/uint64(each)))
	}
	if held, families := t.held(s.Name); families > 0 {
		free = min(free, t.Now().FreeAddresses(held)/(families*each))
	}
	return free
}

// scarcest returns how many addresses are free in the family that has the fewest, and the last range of it; not ok without ranges.
func scarcest(s ipam.Stats) (free uint64, of ipam.RangeStats, ok bool) {
	sums := map[bool]uint64{} // by whether it is IPv4
	for _, r := range s.Ranges {
		v4 := r.Range.Subnet.Addr().Is4()
		sums[v4] = max(sums[v4]+r.Free, r.Free) // a sum that overflows is large enough
	}
	for _, r := range s.Ranges {
		if sum := sums[r.Range.Subnet.Addr().Is4()]; !ok || sum <= free {
			free, of, ok = sum, r, true
		}
	}
	return free, of, ok
}
