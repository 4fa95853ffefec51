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
	if why := exhausted(stats, t.addresses()); why != "" || t.FreeNICs(s, true) > 0 {
		return why
	}
	return "no address within limits.addresses"
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
	for _, r := range stats.Ranges {
		free = int(min(uint64(free), r.Free/uint64(each)))
	}
	if held, families := t.held(s.Name); families > 0 {
		free = min(free, t.Now().FreeAddresses(held)/(families*each))
	}
	return free
}

// exhausted names a range without the free addresses of an attachment, "" when all have them.
func exhausted(s ipam.Stats, each int) string {
	for _, r := range s.Ranges {
		if r.Free < uint64(each) {
			return fmt.Sprintf("no free address in %s (%d in use, %d cooling down)", r.Range.Subnet, r.InUse, r.Cooling)
		}
	}
	return ""
}
