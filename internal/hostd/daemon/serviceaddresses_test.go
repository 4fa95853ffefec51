package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

func (m *machine) attachWithServices(container string) *hostdpb.NIC {
	m.lab.t.Helper()
	r, err := m.client().AttachNIC(m.lab.t.Context(), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true, Services: true})
	m.lab.check(err)
	return r.GetNic()
}

// A guest may send from the service addresses of its own pods, and of no others. In the
// policies of all pods they are what their pods' addresses are.
func TestServiceAddresses(t *testing.T) {
	l := newLab(t)
	m, other := l.bootWithOwnNIC(1), l.bootWithOwnNIC(2)
	l.configure(policyConfig + "guests:\n" + m.configure("addresses: [10.9.0.171]") + other.configure("tap: own2, mac: 52:54:00:00:00:02, addresses: [10.9.0.172]"))
	l.join("own1", "br0")
	l.join("own2", "br0")
	l.serve(patience)
	nic, server := m.attachWithServices("c1"), other.attachWithServices("c2")
	if len(nic.GetAddresses()) != 1 || len(nic.GetServiceAddresses()) != 1 || len(server.GetServiceAddresses()) != 1 {
		t.Fatalf("the pods have %v and %v, want one address and one service address", nic, server)
	}
	pod, service := netip.MustParsePrefix(nic.GetAddresses()[0]).Addr().String(), nic.GetServiceAddresses()[0]
	if again := m.attachWithServices("c1"); !slices.Equal(again.GetServiceAddresses(), []string{service}) {
		t.Errorf("attached again it has %v, want %s", again.GetServiceAddresses(), service)
	}
	speaks := func(when string) {
		t.Helper()
		if !l.mayUse("own1", "v4", "10.9.0.171") || !l.mayUse("own1", "v4", service) || l.mayUse("own2", "v4", service) || l.mayUse("u1n1-1", "v4", service) {
			t.Errorf("%s: want %s to be own1's, and no other's", when, service)
		}
	}
	speaks("attached")
	credentials := l.enrollPolicy("default")
	s := l.policyClient(credentials)
	chain := fmt.Sprintf("egress-%x-%x", "own1", netip.MustParseAddr(service).AsSlice())
	rules := func(name string) string {
		_, rest, _ := strings.Cut(l.nft("list", "ruleset"), "chain "+name+" {")
		rules, _, _ := strings.Cut(rest, "}")
		return rules
	}
	if got := rules(chain); !strings.Contains(got, "drop") || strings.Contains(got, "learn") {
		t.Errorf("without policy the pod's connections to services have these rules:\n%s", got)
	}
	l.mustApply(s, 2, 2, &hostdpb.ApplyRequest{Pod: policyOf("web/server", server, pod+"/32")},
		&hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: "web/a", Addresses: []string{pod}}})
	if got := rules(chain); strings.Contains(got, "drop") {
		t.Errorf("a pod without isolation has these rules for services:\n%s", got)
	}
	set := func(rules string) string { // the rules, or the elements of the first set of peers in them: few need none
		_, rest, found := strings.Cut(rules, "@")
		if !found {
			return rules
		}
		name, _, _ := strings.Cut(rest, " ")
		return l.nft("list", "set", "bridge", "unnest-isolation", name)
	}
	allowed := func() string { return set(l.ingressOf("u2n1-1")) }
	within := func(elements string, address string) bool {
		a := netip.MustParseAddr(address)
		for _, field := range strings.FieldsFunc(elements, func(r rune) bool { return strings.ContainsRune(" ,{}\n\t=", r) }) {
			first, last, found := strings.Cut(field, "-")
			if !found {
				last = first
			}
			from, err := netip.ParseAddr(first)
			to, errTo := netip.ParseAddr(last)
			if p, errPrefix := netip.ParsePrefix(field); errPrefix == nil && p.Contains(a) || err == nil && errTo == nil && from.Compare(a) <= 0 && a.Compare(to) <= 0 {
				return true
			}
		}
		return false
	}
	if got := allowed(); !within(got, pod) || !within(got, service) {
		t.Errorf("%s may connect, so %s may: %s", pod, service, got)
	}
	l.mustApply(s, 2, 2, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/24")})
	if got := rules(chain); !strings.Contains(got, "drop") {
		t.Errorf("an isolated pod has these rules for services:\n%s", got)
	}

	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	if got := rules(chain); !strings.Contains(got, "drop") {
		t.Errorf("as soon as a daemon is there, the pod has these rules for services:\n%s", got)
	}
	l.eventually("the NIC is guarded", func() bool { return l.mayUse("own1", "v4", service) })
	speaks("after a start")
	if got := rules(chain); !strings.Contains(got, "drop") {
		t.Errorf("after a start the pod has these rules for services:\n%s", got)
	}
	m.detachWilling("c1")
	if l.mayUse("own1", "v4", service) || !l.mayUse("own1", "v4", "10.9.0.171") || rules(chain) != "" {
		t.Errorf("the guest may send from %s of a pod that has ended", service)
	}
	if got := allowed(); within(got, service) {
		t.Errorf("the service address of a pod that has ended is a peer: %s", got)
	}
}

// A tenant without policies gives no service addresses, and none are needed.
func TestNoServiceAddresses(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	if nic := m.attachWithServices("c1"); len(nic.GetServiceAddresses()) != 0 {
		t.Errorf("it has %v", nic.GetServiceAddresses())
	}
}
