package daemon

import (
	"crypto/sha256"
	"math"
	"strings"
	"testing"

	"unnest/internal/hostd/hotplug"
	"unnest/internal/hostd/policy"
)

func longTitle() title {
	long := strings.Repeat("x", 63)
	return title{tenant: long, pod: long, network: long, mode: policy.SegmentPlain, digest: sha256.Sum256(nil), generation: math.MaxUint32}
}

func TestTitle(t *testing.T) {
	for _, want := range []title{
		longTitle(),
		{tenant: "t", pod: "p", mode: policy.SegmentUnicast},
		{tenant: "t", pod: "a.b_c-d", network: "n", mode: policy.SegmentUnicast, digest: keyDigest("t/p", "k"), generation: 7},
	} {
		alias := want.alias()
		got, ok := parseTitle(alias)
		if !ok || got != want || len(alias) > maxAlias {
			t.Errorf("%d bytes %q read as %+v, %t, want %+v", len(alias), alias, got, ok, want)
		}
	}
	good := title{tenant: "t", pod: "p", mode: policy.SegmentUnicast}.alias()
	for _, alias := range []string{"", hotplug.WarmOwner, "hostlo:unicast;t;p;1;a", good + ";", good[1:], good[:len(good)-2], strings.Replace(good, ":u;", ":x;", 1), strings.Replace(good, ";t;", ";", 1)} {
		if got, ok := parseTitle(alias); ok {
			t.Errorf("%q read as %+v", alias, got)
		}
	}
}

func TestTicket(t *testing.T) {
	key := hotplug.Key{ContainerID: "c.1-2_3", Interface: "eth0.5@x"}
	for want, tk := range map[string]ticket{
		"u1n3-1.2":                  {port: "u1n3-1", fraction: 2},
		"u1n3-1.16o":                {port: "u1n3-1", fraction: 16, ownMAC: true},
		"uzzn255-1z.1o.c1@eth0":     {port: "uzzn255-1z", fraction: 1, ownMAC: true, key: hotplug.Key{ContainerID: "c1", Interface: "eth0"}},
		"u1n3-1.2.c.1-2_3@eth0.5@x": {port: "u1n3-1", fraction: 2, key: key},
	} {
		got, ok := parseTicket(tk.String())
		if tk.String() != want || !ok || got != tk {
			t.Errorf("%+v is %q, want %q, and is read as %+v, %t", tk, tk, want, got, ok)
		}
	}
	for _, name := range []string{"", "u1n3-1", "u1n3-1.", "u1n3-1.0", "u1n3-1.17", "u1n3-1.02", "u1n3-1.2x", "u1n3-1.2.", "u1n3-1.2.c1", "u1n3-1.2.c1@", "u1n3-1.2.@eth0", ".2", "enp1s0", "u1n3-1.-1", "u1n3-1.258"} {
		if got, ok := parseTicket(name); ok {
			t.Errorf("%q read as %+v", name, got)
		}
	}
}

// One that was being given up counts as given up, in whichever order its names come.
func TestTickets(t *testing.T) {
	owned, given := "u1n1-1.1.c1@eth0", "u1n1-1.1"
	for _, names := range [][]string{{owned, given, "other", "u2n1-1.2.c2@eth0"}, {"u2n1-1.2.c2@eth0", given, owned}} {
		got := tickets(names)
		if len(got) != 2 || got["u1n1-1"].key != (hotplug.Key{}) || got["u2n1-1"].key.ContainerID != "c2" {
			t.Errorf("%q are %+v", names, got)
		}
	}
}

func TestCheckTicket(t *testing.T) {
	long := strings.Repeat("x", 63)
	if err := checkTicket(hotplug.Key{ContainerID: strings.Repeat("a", 64), Interface: strings.Repeat("b", 15)}, wanted{pod: long, network: long}); err != nil {
		t.Errorf("as long as runtimes have them: %v", err)
	}
	for n, ok := range map[int]bool{102: true, 103: false} {
		if err := checkTicket(hotplug.Key{ContainerID: strings.Repeat("a", n), Interface: "eth0"}, wanted{pod: "p"}); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "at most 106") {
			t.Errorf("container ID of %d bytes: got %v, want ok %t", n, err, ok)
		}
	}
}

// No two segments share a device or a digest, and no guest's name for a NIC is an
// endpoint's.
func TestSegmentNames(t *testing.T) {
	if a, b := segmentTAP("t/p"), segmentTAP("t/q"); a == b || len(a) != 15 || !strings.HasPrefix(a, "hlo") {
		t.Errorf("TAPs are %s and %s", a, b)
	}
	if keyDigest("t/p", "key") == keyDigest("u/p", "key") {
		t.Error("two tenants' keys have one digest")
	}
	key := hotplug.Key{ContainerID: "c1", Interface: "eth0"}
	if got, endpoint := plainKey(endpointKey(key)); got != key || !endpoint {
		t.Errorf("got %v, %t", got, endpoint)
	}
	if got, endpoint := plainKey(key); got != key || endpoint {
		t.Errorf("got %v, %t", got, endpoint)
	}
	if _, err := attachmentKey(endpointKey(key).ContainerID, "eth0"); err == nil {
		t.Error("a guest can ask for an endpoint's key")
	}
}

func TestEndpointNote(t *testing.T) {
	for _, n := range []note{{pod: "web", fraction: 2, network: "pods"}, {pod: "web", fraction: 16, ownMAC: true}} {
		got, err := parseNote(n.String())
		if err != nil || got.pod != n.pod || got.fraction != n.fraction || got.network != n.network || got.ownMAC != n.ownMAC {
			t.Errorf("%q read as %+v, %v", n, got, err)
		}
	}
	long := strings.Repeat("x", 63)
	key := hotplug.Key{ContainerID: strings.Repeat("c", 91), Interface: strings.Repeat("i", 15)}
	if err := checkTicket(key, wanted{pod: long, network: long}); err == nil || !strings.Contains(err.Error(), "too long together") {
		t.Errorf("an alias that is too long: got %v", err)
	}
}
