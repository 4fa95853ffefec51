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
	if allocate {
		return exhausted(stats)
	}
	return ""
}

// FreeNICs returns how many more NICs the guest's pods can get, with allocate also an address of
// each family for each, and with policies a service address of each family.
func (t *Tenant) FreeNICs(s status.Guest, allocate bool) int {
	stats, owned := t.Stats()
	free := min(s.SlotsFree+s.Pool, t.Now().FreeNICs(s.Attachments, owned))
	if !allocate {
		return free
	}
	each := 1
	if t.Now().NetworkPolicy != "" {
		each = 2 // also a service address
	}
	for _, r := range stats.Ranges {
		free = int(min(uint64(free), r.Free/uint64(each)))
	}
	if held, families := t.held(s.Name); families > 0 {
		free = min(free, t.Now().FreeAddresses(held)/(families*each))
	}
	return free
}

// exhausted names a range without a free address, "" when all have one.
func exhausted(s ipam.Stats) string {
	for _, r := range s.Ranges {
		if r.Free == 0 {
			return fmt.Sprintf("no free address in %s (%d in use, %d cooling down)", r.Range.Subnet, r.InUse, r.Cooling)
		}
	}
	return ""
}
