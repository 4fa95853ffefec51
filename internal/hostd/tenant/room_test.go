package tenant

import (
	"math"
	"net/netip"
	"testing"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
)

// The NICs that a guest's pods can still get are as many as slots, limits and addresses allow.
func TestFreeNICs(t *testing.T) {
	const policies = "policies"             // a guest of a tenant with policies
	tenant, _ := testTenant(t, t.TempDir()) // one range with 254 addresses
	for _, tt := range []struct {
		limits   quota.Limits
		guest    status.Guest
		allocate bool
		want     int
	}{
		{quota.Limits{}, status.Guest{SlotsFree: 3, Pool: 2}, false, 5},
		{quota.Limits{NICs: 4}, status.Guest{SlotsFree: 3, Pool: 2, Attachments: 1}, true, 3},
		{quota.Limits{}, status.Guest{SlotsFree: 1000}, false, 1000},
		{quota.Limits{}, status.Guest{SlotsFree: 1000}, true, free(tenant)},
		{quota.Limits{Addresses: 4}, status.Guest{Name: "node1", SlotsFree: 3}, true, 3},
		{quota.Limits{Addresses: 4}, status.Guest{Name: "held", SlotsFree: 3}, true, 2},
		{quota.Limits{}, status.Guest{Name: policies, SlotsFree: 1000}, true, 126}, // 254 less 2, for two each
		{quota.Limits{}, status.Guest{Name: policies, SlotsFree: 1000}, false, 1000},
		{quota.Limits{Addresses: 5}, status.Guest{Name: policies, SlotsFree: 3}, true, 2},
	} {
		p := tenant.Now()
		p.Limits, p.NetworkPolicy = tt.limits, ""
		if tt.guest.Name == policies {
			p.NetworkPolicy = quota.PolicyRequired
		}
		tenant.Change(p)
		if tt.guest.Name == "held" {
			for _, owner := range []string{"held/a", "held/b"} {
				if _, err := tenant.Take(owner, nil, true); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := tenant.FreeNICs(tt.guest, tt.allocate); got != tt.want {
			t.Errorf("%+v with %+v: got %d, want %d", tt.guest, tt.limits, got, tt.want)
		}
	}
	p := tenant.Now()
	p.Limits, p.NetworkPolicy = quota.Limits{Addresses: 2}, ""
	tenant.Change(p)
	for allocate, want := range map[bool]string{true: "no address within limits.addresses", false: ""} {
		if got := tenant.Limited(status.Guest{Name: "held", SlotsFree: 1}, allocate); got != want {
			t.Errorf("allocate %t: limited by %q, want %q", allocate, got, want)
		}
	}
}

// A range without free addresses does not matter while another one of its family has some.
func TestScarcest(t *testing.T) {
	ranges := func(free ...uint64) (s ipam.Stats) {
		for i, n := range free {
			s.Ranges = append(s.Ranges, ipam.RangeStats{Range: ipam.Range{Subnet: netip.MustParsePrefix([]string{"10.0.0.0/24", "10.0.1.0/24", "fd00::/64"}[i])}, Free: n})
		}
		return s
	}
	for _, tt := range []struct {
		stats ipam.Stats
		free  uint64
		ok    bool
	}{
		{ranges(), 0, false}, {ranges(1, 2), 3, true}, {ranges(0, 2), 2, true}, {ranges(1, 2, 1), 1, true}, {ranges(5, math.MaxUint64, 9), 9, true},
	} {
		if free, _, ok := scarcest(tt.stats); free != tt.free || ok != tt.ok {
			t.Errorf("%+v: got %d, %t", tt.stats, free, ok)
		}
	}
}

// free returns how many addresses of the range of a guest's tenant are free.
func free(tenant *Tenant) int {
	stats, _ := tenant.Stats()
	return int(stats.Ranges[0].Free)
}
