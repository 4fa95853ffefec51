package segments

import (
	"crypto/sha256"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/quota"
)

func longLabel() label {
	long := strings.Repeat("x", 63)
	return label{tenant: long, pod: long, network: long, mode: quota.SegmentPlain, digest: sha256.Sum256(nil), generation: math.MaxUint32}
}

func TestLabel(t *testing.T) {
	for _, want := range []label{
		longLabel(),
		{tenant: "t", pod: "p", mode: quota.SegmentUnicast},
		{tenant: "t", pod: "a.b_c-d", network: "n", mode: quota.SegmentUnicast, digest: Digest("t", "p", "k"), generation: 7},
	} {
		alias := want.alias()
		got, ok := parseLabel(alias)
		if !ok || got != want || len(alias) > attachment.MaxAlias {
			t.Errorf("%d bytes %q read as %+v, %t, want %+v", len(alias), alias, got, ok, want)
		}
	}
	good := label{tenant: "t", pod: "p", mode: quota.SegmentUnicast}.alias()
	for _, alias := range []string{"", attachment.WarmAlias, "hostlo:unicast;t;p;1;a", good + ";", good[1:], good[:len(good)-2], strings.Replace(good, ":u;", ":x;", 1), strings.Replace(good, ";t;", ";", 1)} {
		if got, ok := parseLabel(alias); ok {
			t.Errorf("%q read as %+v", alias, got)
		}
	}
}

func TestEndpointLabel(t *testing.T) {
	key := attachment.Key{Kind: attachment.Endpoint, Owner: "c.1-2_3", Name: "eth0.5@x"}
	for want, tk := range map[string]endpointLabel{
		"u1n3-1.2":                  {port: "u1n3-1", fraction: 2},
		"u1n3-1.16o":                {port: "u1n3-1", fraction: 16, ownMAC: true},
		"uzzn255-1z.1o.c1@eth0":     {port: "uzzn255-1z", fraction: 1, ownMAC: true, key: attachment.Key{Kind: attachment.Endpoint, Owner: "c1", Name: "eth0"}},
		"u1n3-1.2.c.1-2_3@eth0.5@x": {port: "u1n3-1", fraction: 2, key: key},
	} {
		got, ok := parseEndpointLabel(tk.String())
		if tk.String() != want || !ok || got != tk {
			t.Errorf("%+v is %q, want %q, and is read as %+v, %t", tk, tk, want, got, ok)
		}
	}
	for _, name := range []string{"", "u1n3-1", "u1n3-1.", "u1n3-1.0", "u1n3-1.17", "u1n3-1.02", "u1n3-1.2x", "u1n3-1.2.", "u1n3-1.2.c1", "u1n3-1.2.c1@", "u1n3-1.2.@eth0", ".2", "enp1s0", "u1n3-1.-1", "u1n3-1.258"} {
		if got, ok := parseEndpointLabel(name); ok {
			t.Errorf("%q read as %+v", name, got)
		}
	}
}

// An endpoint with a name without a key has no key, whatever the order of its names.
func TestEndpointLabels(t *testing.T) {
	owned, given := "u1n1-1.1.c1@eth0", "u1n1-1.1"
	for _, names := range [][]string{{owned, given, "other", "u2n1-1.2.c2@eth0"}, {"u2n1-1.2.c2@eth0", given, owned}} {
		got := endpointLabels(names)
		if len(got) != 2 || got["u1n1-1"].key != (attachment.Key{}) || got["u2n1-1"].key.Owner != "c2" {
			t.Errorf("%q are %+v", names, got)
		}
	}
}

func TestCheckKey(t *testing.T) {
	if err := CheckKey(attachment.Key{Kind: attachment.Endpoint, Owner: strings.Repeat("a", 64), Name: strings.Repeat("b", 15)}); err != nil {
		t.Errorf("as long as runtimes have them: %v", err)
	}
	for n, ok := range map[int]bool{102: true, 103: false} {
		if err := CheckKey(attachment.Key{Kind: attachment.Endpoint, Owner: strings.Repeat("a", n), Name: "eth0"}); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "at most 106") {
			t.Errorf("container ID of %d bytes: got %v, want ok %t", n, err, ok)
		}
	}
}

// No two segments share a device or a digest.
func TestSegmentNames(t *testing.T) {
	if a, b := TAP("t", "p"), TAP("t", "q"); a == b || len(a) != 15 || !strings.HasPrefix(a, "hlo") {
		t.Errorf("TAPs are %s and %s", a, b)
	}
	if Digest("t", "p", "key") == Digest("u", "p", "key") {
		t.Error("two tenants' keys have one digest")
	}
}

// What a TAP records about its endpoints is what the guests' states get. An endpoint
// that was joining or leaving has no owner.
func TestObserve(t *testing.T) {
	l := label{tenant: "t", pod: "web", network: "pods", mode: quota.SegmentUnicast}
	got := Observe(l.alias(), []string{"u1n1-1.2o.c1@eth0", "u2n1-1.3", "other"})
	slices.SortFunc(got, func(a, b hotplug.ObservedTAP) int { return strings.Compare(a.Name, b.Name) })
	want := []hotplug.ObservedTAP{
		{
			Name: "u1n1-1", Key: attachment.Key{Kind: attachment.Endpoint, Owner: "c1", Name: "eth0"},
			Record: attachment.Record{Network: "pods", Pod: "web", Fraction: 2, OwnMAC: true},
		},
		{Name: "u2n1-1", Key: attachment.Key{Kind: attachment.Endpoint}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints differ (-want +got):\n%s", diff)
	}
	if got := Observe("unnest:c1/eth0", []string{"u1n1-1.2"}); len(got) > 0 {
		t.Errorf("another TAP has %+v", got)
	}
}

// Whatever alias and names a TAP has: what is read is what the alias or the name says, and
// no two endpoints have the same port.
func FuzzLabels(f *testing.F) {
	key := attachment.Key{Kind: attachment.Endpoint, Owner: "c1", Name: "eth0"}
	f.Add(longLabel().alias(), "u1n3-1.2", "u1n3-1.2o."+key.Owner+"@"+key.Name)
	f.Add(label{tenant: "t", pod: "p", mode: quota.SegmentUnicast}.alias(), "u1n3-1.16", "u1n4-1.16.a@b@c")
	f.Add(attachment.WarmAlias, "enp1s0", "")
	f.Fuzz(func(t *testing.T, alias, one, other string) {
		if l, ok := parseLabel(alias); ok && l.alias() != alias {
			t.Errorf("%q is read as %+v", alias, l)
		}
		seen := map[string]bool{}
		for _, tap := range Observe(alias, []string{one, other}) {
			if seen[tap.Name] || tap.Name == "" || tap.Key.Kind != attachment.Endpoint {
				t.Errorf("%q, %q, %q: observed %+v", alias, one, other, tap)
			}
			seen[tap.Name] = true
		}
	})
}
