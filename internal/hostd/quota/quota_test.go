package quota_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"unnest.io/unnest/internal/hostd/quota"
)

func TestTenant(t *testing.T) {
	p := mustParse(t, small)
	if got, err := p.Tenant("shop"); err != nil || got.Bridge != "br1" {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := p.Tenant("shops"); !errors.Is(err, quota.ErrTenant) {
		t.Errorf("got %v, want ErrTenant", err)
	}
}

func TestBridgeFor(t *testing.T) {
	tenant := quota.Tenant{Bridge: "br0", Bridges: []string{"br-db"}}
	for asked, want := range map[string]string{"": "br0", "br0": "br0", "br-db": "br-db"} {
		if got, err := tenant.BridgeFor(asked); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", asked, got, err, want)
		}
	}
	for _, asked := range []string{"br1", "br", "BR0", " "} {
		if got, err := tenant.BridgeFor(asked); !errors.Is(err, quota.ErrBridge) {
			t.Errorf("%q: got %q, %v, want ErrBridge", asked, got, err)
		}
	}
}

func TestMACFor(t *testing.T) {
	tenant := quota.Tenant{ClaimMACs: []string{"02:42", "92:d0:c6:0a:29:33"}}
	for asked, want := range map[string]string{
		"": "", "02:42:00:00:00:09": "02:42:00:00:00:09", "02-42-AA-00-00-09": "02:42:aa:00:00:09", "92:D0:C6:0A:29:33": "92:d0:c6:0a:29:33",
	} {
		if got, err := tenant.MACFor(asked); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", asked, got, err, want)
		}
	}
	for _, asked := range []string{"02:43:00:00:00:09", "92:d0:c6:0a:29:34", "0a:00:01:01:00:01", "02:42", "02:42:00:00:00:00:00:09", "x"} {
		if got, err := tenant.MACFor(asked); !errors.Is(err, quota.ErrMAC) {
			t.Errorf("%q: got %q, %v, want ErrMAC", asked, got, err)
		}
	}
	if _, err := (quota.Tenant{}).MACFor("02:42:00:00:00:09"); !errors.Is(err, quota.ErrMAC) {
		t.Errorf("without claimMACs: got %v, want ErrMAC", err)
	}
	for claim, valid := range map[string]bool{
		"02": true, "02:42": true, "92:d0:c6:0a:29:33": true, "0a": false, "0a:00:01": false, "03": false, "02:4": false, "02:42:": false,
		"02:42:00:00:00:00:00": false, "0A:42": false, "": false,
	} {
		if _, err := quota.Parse("x.yaml", fmt.Appendf(nil, "tenants: [{name: a, bridge: br0, claimMACs: [%q]}]", claim)); (err == nil) != valid {
			t.Errorf("claimMACs %q: got %v, want valid %t", claim, err, valid)
		}
	}
}

func TestAdmitNIC(t *testing.T) {
	for _, tt := range []struct {
		limits        quota.Limits
		guest, tenant int
		admit         bool
	}{
		{quota.Limits{}, 1000, 1000, true},
		{quota.Limits{NICs: 2}, 1, 1000, true},
		{quota.Limits{NICs: 2}, 2, 2, false},
		{quota.Limits{NICs: 2}, 3, 3, false},
		{quota.Limits{NICs: 2, TenantNICs: 3}, 0, 2, true},
		{quota.Limits{NICs: 2, TenantNICs: 3}, 0, 3, false},
	} {
		err := quota.Tenant{Limits: tt.limits}.AdmitNIC(tt.guest, tt.tenant)
		if (err == nil) != tt.admit || err != nil && !errors.Is(err, quota.ErrLimit) {
			t.Errorf("%+v with %d and %d: got %v, want admitted: %t", tt.limits, tt.guest, tt.tenant, err, tt.admit)
		}
	}
}

// What AdmitNIC and AdmitAddresses still allow.
func TestFree(t *testing.T) {
	for _, tt := range []struct {
		limits              quota.Limits
		guest, tenant, held int
		nics, addresses     int
	}{
		{quota.Limits{}, 1000, 1000, 1000, math.MaxInt, math.MaxInt},
		{quota.Limits{NICs: 5, Addresses: 8}, 2, 1000, 3, 3, 5},
		{quota.Limits{NICs: 5, TenantNICs: 9}, 2, 8, 3, 1, math.MaxInt},
		{quota.Limits{NICs: 5, TenantNICs: 9, Addresses: 2}, 6, 7, 3, 0, 0},
	} {
		p := quota.Tenant{Limits: tt.limits}
		if nics, addresses := p.FreeNICs(tt.guest, tt.tenant), p.FreeAddresses(tt.held); nics != tt.nics || addresses != tt.addresses {
			t.Errorf("%+v: got %d NICs and %d addresses, want %d and %d", tt, nics, addresses, tt.nics, tt.addresses)
		}
	}
}

func TestMTUFor(t *testing.T) {
	p := mustParse(t, small)
	dual, v4 := p.Tenants[0], p.Tenants[1]
	for _, tt := range []struct {
		tenant      quota.Tenant
		asked, want int // want 0: refused
	}{
		{dual, 0, 1500}, {dual, 1500, 1500}, {dual, 1280, 1280}, {dual, 1501, 0}, {dual, 1279, 0}, {dual, -1, 0},
		{v4, 0, 1500}, {v4, 68, 68}, {v4, 67, 0},
	} {
		got, err := tt.tenant.MTUFor(tt.asked)
		if got != tt.want || (err == nil) != (tt.want > 0) || err != nil && !errors.Is(err, quota.ErrMTU) {
			t.Errorf("%s, %d: got %d, %v, want %d", tt.tenant.Name, tt.asked, got, err, tt.want)
		}
	}
}

func TestBandwidthFor(t *testing.T) {
	for _, tt := range []struct {
		most        quota.Rate
		rate, burst uint64 // asked
		want, allow uint64
	}{
		{0, 0, 0, 0, 0},
		{0, 0, 9, 0, 0},
		{0, 5e6, 1 << 60, 5e6, 1 << 60},
		{1e9, 0, 0, 1e9, 0},
		{1e9, 0, 1 << 60, 1e9, 0},
		{1e9, 5e6, 7e6, 5e6, 7e6},
		{1e9, 5e9, 7e6, 1e9, 7e6},
		{1e9, 5e6, 1 << 60, 5e6, 1e9},
	} {
		ingress := quota.Tenant{Limits: quota.Limits{Bandwidth: quota.Rates{Ingress: tt.most}}}
		egress := quota.Tenant{Limits: quota.Limits{Bandwidth: quota.Rates{Egress: tt.most}}}
		if got, want := ingress.BandwidthFor(quota.Bandwidth{IngressRate: tt.rate, IngressBurst: tt.burst}),
			(quota.Bandwidth{IngressRate: tt.want, IngressBurst: tt.allow}); got != want {
			t.Errorf("at most %d: got %+v, want %+v", tt.most, got, want)
		}
		if got, want := egress.BandwidthFor(quota.Bandwidth{EgressRate: tt.rate, EgressBurst: tt.burst}),
			(quota.Bandwidth{EgressRate: tt.want, EgressBurst: tt.allow}); got != want {
			t.Errorf("at most %d: got %+v, want %+v", tt.most, got, want)
		}
	}
}
