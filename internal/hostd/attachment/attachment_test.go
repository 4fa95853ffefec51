package attachment

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/share"
)

func TestKeyValidate(t *testing.T) {
	for _, tt := range []struct {
		owner, name string
		ok          bool
	}{
		{"c1", "eth0", true},
		{strings.Repeat("a", 64), "abcdefghijklmno", true},
		{strings.Repeat("a", 243), "eth0", true},
		{strings.Repeat("a", 244), "eth0", false},
		{"", "eth0", false},
		{"c1", "", false},
		{"c/1", "eth0", false},
		{"c1", "eth/0", false},
		{"c 1", "eth0", false},
		{"c1", "eth0\n", false},
		{"c1", "ethä", false},
		{"@trunks", "eth0", true},
	} {
		key := Key{Owner: tt.owner, Name: tt.name}
		if err := key.Validate(); (err == nil) != tt.ok {
			t.Errorf("key %q: got error %v, want valid %t", key, err, tt.ok)
		}
		if got, r, ok := ParseAlias(Alias(key, Record{})); ok != tt.ok || ok && (got != key || !r.IsZero()) {
			t.Errorf("alias %q read back as %q, record %q, valid %t", Alias(key, Record{}), got, r, ok)
		}
	}
}

// The aliases are read by daemons of other versions, so their form cannot change.
func TestAlias(t *testing.T) {
	key := Key{Owner: "c1", Name: "eth0"}
	for want, r := range map[string]Record{
		"unnest:c1/eth0":                 {},
		"unnest:c1/eth0 n=,b=br0,m=1400": {Bridge: "br0", MTU: 1400},
		"unnest:c1/eth0 n=pods,b=br0,m=1500,a=10.201.0.9/16,a=fd00::9/64,h=02:42:00:00:00:99,d=1,l=1:2:3:4": {
			Network: "pods", Bridge: "br0", MTU: 1500, DHCP: true, MAC: "02:42:00:00:00:99",
			Addresses: []netip.Prefix{netip.MustParsePrefix("10.201.0.9/16"), netip.MustParsePrefix("fd00::9/64")},
			Bandwidth: quota.Bandwidth{IngressRate: 1, IngressBurst: 2, EgressRate: 3, EgressBurst: 4},
		},
		"unnest:c1/eth0 n=pods,b=br0,m=1500,t=t6fm00": {Network: "pods", Bridge: "br0", MTU: 1500, Since: 1764325152},
		"unnest:c1/eth0 n=pods,b=br0,m=1500,a=10.201.0.9/16,v=10.201.0.10,v=fd00::a": {
			Network: "pods", Bridge: "br0", MTU: 1500, Addresses: []netip.Prefix{netip.MustParsePrefix("10.201.0.9/16")},
			Services: []netip.Addr{netip.MustParseAddr("10.201.0.10"), netip.MustParseAddr("fd00::a")},
		},
	} {
		if got := Alias(key, r); got != want {
			t.Errorf("alias of %+v is %q, want %q", r, got, want)
		}
		k, got, ok := ParseAlias(want)
		if !ok || k != key || !got.Equal(r) {
			t.Errorf("alias %q read as %v, %+v, %t", want, k, got, ok)
		}
	}
	if alias := Alias(TrunkKey, Record{}); alias != "unnest:@trunk/trunk trunk" {
		t.Errorf("alias of the trunk is %q", alias)
	}
	if k, r, ok := ParseAlias("unnest:@trunk/trunk trunk"); !ok || k != TrunkKey || !r.IsZero() {
		t.Errorf("alias of the trunk read as %v, %+v, %t", k, r, ok)
	}
	// A newer daemon may write fields that this one does not know.
	if k, r, ok := ParseAlias("unnest:c1/eth0 n=pods,z=new"); !ok || k != key || !r.Equal(Record{Network: "pods"}) {
		t.Errorf("alias with an unknown field read as %v, %+v, %t", k, r, ok)
	}
	for _, alias := range []string{
		WarmAlias, "", "c1/eth0", "unnest:c1/eth0 ", "unnest: c1/eth0", "unnest:c1 /eth0", "unnest:c1/eth0  a", "unnest:c1/eth0 a\n",
		"unnest:@trunk/eth0", "unnest:c1/eth0 m=x", "unnest:c1/eth0 a=10.0.0.1", "unnest:c1/eth0 n=" + strings.Repeat("n", 240),
	} {
		if k, r, ok := ParseAlias(alias); ok {
			t.Errorf("alias %q read as %s with record %q", alias, k, r)
		}
	}
}

// Check refuses what an alias cannot hold.
// An alias without room for the time is complete without it.
func TestAliasWithoutRoomForTime(t *testing.T) {
	key := Key{Owner: strings.Repeat("c", MaxAlias-len("unnest:/eth0 n=,b=br0,m=1400")), Name: "eth0"}
	r := Record{Bridge: "br0", MTU: 1400}
	want := Alias(key, r)
	r.Since = 1764325152
	if got := Alias(key, r); got != want || len(want) != MaxAlias || Check(key, r) != nil {
		t.Errorf("got %q, want %q; check: %v", got, want, Check(key, r))
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		network  string
		ok, long bool
	}{
		{"pods", true, false},
		{strings.Repeat("n", 231), true, false},
		{strings.Repeat("n", 232), false, true},
		{"a b", false, false},
		{"a,b", false, false},
		{"a\n", false, false},
		{"ä", false, false},
	} {
		err := Check(Key{Owner: "c1", Name: "eth0"}, Record{Network: tt.network})
		if (err == nil) != tt.ok || errors.Is(err, ErrTooLong) != tt.long {
			t.Errorf("network %q: got %v, want ok %t, too long %t", tt.network, err, tt.ok, tt.long)
		}
	}
}

// A share's key is the ID of its device, which older daemons have given as well.
func TestShareKey(t *testing.T) {
	for kind, want := range map[Kind]share.Kind{Volume: share.Volume, Memory: share.Memory} {
		key := Key{Kind: kind, Owner: "web.1", Name: "data"}
		if id := (share.ID{Kind: want, Pod: "web.1", Name: "data"}); key.String() != id.String() {
			t.Errorf("key is %s, want %s", key, id)
		}
	}
}

func FuzzParseAlias(f *testing.F) {
	for _, seed := range []string{"", "unnest:", "unnest:c1/eth0", "unnest:c1/eth0 a/b", "unnest:c1/eth0 n=a,m=1,a=10.0.0.1/8", "unnest:/eth0", "unnest:c1/", "unnest:c1/a/b", "other:c1/eth0", "unnest:\x00/\xff", "unnest:0/0 s=0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, alias string) {
		k, r, ok := ParseAlias(alias)
		if !ok {
			return
		}
		again, same, ok := ParseAlias(Alias(k, r))
		if k.Validate() != nil || len(Alias(k, r)) <= MaxAlias && (!ok || again != k || !same.Equal(r)) {
			t.Errorf("alias %q read as %q with record %q, which is written %q", alias, k, r, Alias(k, r))
		}
	})
}
