package networkpolicy

import (
	"fmt"
	"net/netip"
	"testing"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/netdev/isolation"
)

// A pod that has ended, and that the API still lists with its address, has no part in what the
// next holder of the address may do: not before that one's policy is known, and not after. The
// order of a map decides nothing.
func TestAttackDetachedPodKeepsPolicy(t *testing.T) {
	const address = "10.9.0.2"
	open := podRules{UID: "uid-old", Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	deny := podRules{UID: "uid-new", Addresses: open.Addresses, Ingress: &isolation.Direction{}, Egress: &isolation.Direction{}}
	unnamed := func(p podRules) podRules { p.UID = ""; return p }
	for _, tt := range []struct {
		name     string
		uid      string // of the port
		required bool
		pods     map[string]podRules
		want     bool // isolated
	}{
		{"its own policy is not there yet", "uid-new", false, map[string]podRules{"x/old": open}, true},
		{"its own policy is there", "uid-new", false, map[string]podRules{"x/old": open, "x/new": deny}, true},
		{"the other one denies", "uid-old", false, map[string]podRules{"x/old": open, "x/new": deny}, false},
		{"the guest names no pod", attachment.NoPod, true, map[string]podRules{"x/old": open}, true},
		{"an earlier daemon has not kept the UID", "", true, map[string]podRules{"x/old": open}, false},
		{"nor is it clear by the address", "", false, map[string]podRules{"x/old": open, "x/new": open}, true},
		{"a client without UIDs names the address twice", attachment.NoPod, false, map[string]podRules{"x/old": unnamed(open), "x/new": unnamed(open)}, true},
		{"two pods have the UID", "uid-new", false, map[string]podRules{"x/old": open, "x/new": deny, "x/copy": {UID: "uid-new"}}, true},
		{"UID before address", "uid-new", false, map[string]podRules{"x/old": unnamed(open), "x/new": deny}, true},
	} {
		for range 50 { // orders of the maps
			p := New(t.TempDir(), nil)
			made := &tenant{name: "default", settings: settings{required: tt.required}, spoken: true}
			made.said = newSaid(tt.pods)
			p.tenants["default"] = made
			p.ports["u1n1-1"] = podPort{tenant: "default", podUID: tt.uid, addresses: open.Addresses}
			got := p.wanted(made)
			if len(got) != 1 || (got[0].Ingress != nil) != tt.want || (got[0].Egress != nil) != tt.want {
				t.Errorf("%s: the port is %+v, want isolated %t", tt.name, got, tt.want)
				break
			}
		}
	}
}

// A client is told which pods have which addresses here: all at first, changes later, and each
// once.
func TestOwnership(t *testing.T) {
	p := New(t.TempDir(), nil)
	p.Nodes = func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr("10.9.0.1")} }
	p.tenants["default"] = &tenant{settings: settings{podRanges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, nodeRanges: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}}}
	port := func(tenant, uid, address string) podPort {
		return podPort{tenant: tenant, podUID: uid, addresses: []netip.Addr{netip.MustParseAddr(address)}}
	}
	p.ports["a"], p.ports["b"] = port("default", "u1", "10.9.0.2"), port("default", "u1", "fd00::2")
	p.ports["c"], p.ports["d"] = port("other", "u2", "10.9.0.3"), port("default", attachment.NoPod, "10.9.0.4")
	s, err := p.Begin("default")
	if err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		got := "nothing"
		if o := p.TakeOwnership(s); o != nil {
			got = fmt.Sprint(o.GetRanges().GetPods(), o.GetRanges().GetNodes())
			for _, pod := range o.GetPods() {
				got += fmt.Sprint(" ", pod.GetUid(), pod.GetAddresses())
			}
		}
		if got != text {
			t.Errorf("told %s, want %s", got, text)
		}
	}
	want("[10.1.0.0/16] [fd00::/64 10.9.0.1/32] u1[10.9.0.2 fd00::2]")
	want("nothing")
	delete(p.ports, "a")
	p.tellOwner(port("default", "u1", "fd00::2"))
	want("[] [] u1[fd00::2]")
	delete(p.ports, "b")
	p.tellOwner(port("default", "u1", "fd00::2"))
	p.NodesChanged("default")
	want("[10.1.0.0/16] [fd00::/64 10.9.0.1/32] u1[]")
}

// A daemon that starts still knows that a client has said which pods there are, even if none of
// them was here: a pod that it has not named may do nothing.
func TestAttackUnknownPodAfterRestart(t *testing.T) {
	b := newBench(t)
	connect := func(uid string) (closed bool) {
		if err := b.policies.Connect(nil, "p9", attachment.Record{Bridge: "br1", PodUID: uid}); err != nil {
			t.Fatal(err)
		}
		return b.kernel.ports["p9"].Egress != nil
	}
	if connect("uid-new") {
		t.Error("before any client has said something, a pod is closed")
	}
	if _, err := b.commit("shop", &hostdpb.PodPolicy{Pod: "x/elsewhere", Uid: "uid-elsewhere"}); err != nil {
		t.Fatal(err)
	}
	b.start()
	if !connect("uid-new") {
		t.Error("after a restart, a pod that the client has not named is open")
	}
	if connect(attachment.NoPod) {
		t.Error("a NIC of no pod is closed with optional")
	}
}

// A pod is on the node that it is bound to. A guest that is another node is not the pod by its UID,
// nor by its address after an update; what it attaches in that name has no connections, and the
// client learns which node has it. Static pods may have equal UIDs on two nodes.
func TestAttackPodOfAnotherNode(t *testing.T) {
	allow := podRules{UID: "uid-a", Node: "node1", Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.2")}}
	other := allow
	other.Node = "node2"
	for _, tt := range []struct {
		name, uid, node string
		pods            map[string]podRules
		open, stray     bool
	}{
		{"its own node", "uid-a", "node1", map[string]podRules{"x/a": allow}, true, false},
		{"another node", "uid-a", "node2", map[string]podRules{"x/a": allow}, false, true},
		{"a guest that is not known", "uid-a", "", map[string]podRules{"x/a": allow}, false, true},
		{"a client that names no nodes", "uid-a", "node2", map[string]podRules{"x/a": {UID: "uid-a"}}, true, false},
		{"another node, by address", "", "node2", map[string]podRules{"x/a": allow}, false, false},
		{"its own node, by address", "", "node1", map[string]podRules{"x/a": allow}, true, false},
		{"a static pod", "uid-a", "node2", map[string]podRules{"x/a": allow, "x/b": other}, true, false},
	} {
		p := New(t.TempDir(), nil)
		made := &tenant{name: "default", settings: settings{required: true}, spoken: true}
		made.said = newSaid(tt.pods)
		p.tenants["default"] = made
		p.ports["u1n1-1"] = podPort{tenant: "default", podUID: tt.uid, node: tt.node, addresses: allow.Addresses}
		got := p.wanted(made)
		if len(got) != 1 || (got[0].Ingress == nil) != tt.open || (len(made.strays) > 0) != tt.stray {
			t.Errorf("%s: the port is %+v, strays %q, want open %t, stray %t", tt.name, got, made.strays, tt.open, tt.stray)
		}
		session, err := p.Begin("default")
		if err != nil {
			t.Fatal(err)
		}
		if stray := p.BoundElsewhere("default", tt.uid, tt.node) != ""; stray != tt.stray {
			t.Errorf("%s: bound elsewhere %t, want %t", tt.name, stray, tt.stray)
		}
		if pods := p.TakeOwnership(session).GetPods(); tt.uid != "" && (len(pods) != 1 || pods[0].GetNode() != tt.node) {
			t.Errorf("%s: the client is told %v", tt.name, pods)
		}
	}
}

// A commit during which NICs have ended, but no pod that the client has said, copies no pods: other tenants wait meanwhile.
func TestWithoutNobody(t *testing.T) {
	pods := map[string]podRules{}
	for i := range 1000 {
		pods[fmt.Sprint("web/", i)] = podRules{UID: fmt.Sprint("uid-", i)}
	}
	s, session := newSaid(pods), &Session{ended: []endedPort{{podPort: podPort{podUID: "uid-1"}}}}
	if n := testing.AllocsPerRun(10, func() { s.without(session) }); n > 3 {
		t.Errorf("%v allocations, want at most 3", n)
	}
}
