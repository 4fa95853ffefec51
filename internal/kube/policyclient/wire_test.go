package policyclient

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/proto"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/kube/networkpolicy"
)

// Rules of a policy with many ports and full-length addresses fit into messages, and into the size by which the client refuses them. Else one
// user's policy would hold up those of all others.
func TestAttackLargeRule(t *testing.T) {
	var peers []iprange.Range
	for i := range 3000 { // no two are adjacent
		full := func(last byte) netip.Addr {
			return netip.AddrFrom16([16]byte{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x10 | byte(i>>8), byte(i), 0xff, last})
		}
		peers = append(peers, iprange.Range{First: full(0xf0), Last: full(0xfa)})
	}
	var services []networkpolicy.Service
	for port := range uint16(6000) {
		services = append(services, networkpolicy.Service{Protocol: corev1.ProtocolTCP, First: 20000 + 2*port, Last: 20000 + 2*port})
	}
	all := requests("web/a", podState{rules: networkpolicy.Rules{Ingress: &networkpolicy.Direction{Allow: []networkpolicy.Rule{{Peers: peers, Services: services}, {Peers: peers}}}}})
	pairs, sent := 0, policylimit.Size{}
	for i, r := range all {
		if size := proto.Size(r); size > 64<<10 {
			t.Errorf("message %d has %d bytes", i, size)
		}
		for _, rule := range append(r.GetPod().GetIngress().GetAllow(), r.GetMore().GetIngress().GetAllow()...) {
			p, s := len(rule.GetPeers()), len(rule.GetServices())
			pairs += p * max(1, s)
			sent.Memory += policylimit.RuleMemory + policylimit.ServiceMemory*s
			sent.Peers += p + s
		}
	}
	if want := len(peers) * (len(services) + 1); pairs != want {
		t.Errorf("%d pairs of a peer and a service, want %d", pairs, want)
	}
	var counted policylimit.Size
	counted.Add(1, len(peers), len(services))
	counted.Add(1, len(peers), 0)
	counted.Memory -= 2 * policylimit.RangeMemory * len(peers)
	if sent != counted {
		t.Errorf("the rules take %+v, counted as %+v", sent, counted)
	}
}

// A policy of any size fits into messages, and is the same after them.
func TestRequests(t *testing.T) {
	var peers []iprange.Range
	for i := range 20000 {
		peers = append(peers, iprange.Of(netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}), 128)))
	}
	tcp := []networkpolicy.Service{{Protocol: corev1.ProtocolTCP, First: 80, Last: 90}}
	all := requests("web/a", podState{"uid-a", "node1", []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, networkpolicy.Rules{
		Ingress: &networkpolicy.Direction{Allow: []networkpolicy.Rule{{Peers: peers, Services: tcp}, {Peers: peers[:1]}}},
		Egress:  &networkpolicy.Direction{Allow: []networkpolicy.Rule{{Peers: peers[:2], Services: []networkpolicy.Service{{Protocol: corev1.ProtocolSCTP}}}}},
	}})
	if p := all[0].GetPod(); p.GetUid() != "uid-a" || p.GetNode() != "node1" {
		t.Errorf("UID %q, node %q", p.GetUid(), p.GetNode())
	}
	if a := all[0].GetPod().GetAddresses(); !cmp.Equal(a, []string{"10.0.0.1", "fd00::1"}) {
		t.Errorf("addresses are %q", a)
	}
	var ingress, egress []*hostdpb.PolicyRule
	for i, r := range all {
		p := r.GetPod()
		if i > 0 {
			p = r.GetMore()
		}
		if size := proto.Size(r); size > 64<<10 || p.GetPod() != "web/a" || p.GetIngress() == nil || p.GetEgress() == nil {
			t.Errorf("message %d: %d bytes, pod %q, ingress isolated %t, egress isolated %t", i, size, p.GetPod(), p.GetIngress() != nil, p.GetEgress() != nil)
		}
		ingress, egress = append(ingress, p.GetIngress().GetAllow()...), append(egress, p.GetEgress().GetAllow()...)
	}
	var got []string
	for _, r := range ingress[:len(ingress)-1] {
		got = append(got, r.GetPeers()...)
		if s := r.GetServices(); len(s) != 1 || s[0].GetProtocol() != hostdpb.Protocol_PROTOCOL_TCP || s[0].GetFirst() != 80 || s[0].GetLast() != 90 {
			t.Fatalf("services are %v", s)
		}
	}
	if len(got) != len(peers) || got[0] != peers[0].String() || got[len(got)-1] != peers[len(peers)-1].String() {
		t.Errorf("%d peers, want %d", len(got), len(peers))
	}
	if last := ingress[len(ingress)-1]; len(last.GetPeers()) != 1 || len(last.GetServices()) != 0 {
		t.Errorf("the last rule is %v", last)
	}
	if len(egress) != 1 || egress[0].GetServices()[0].GetProtocol() != hostdpb.Protocol_PROTOCOL_SCTP {
		t.Errorf("egress is %v", egress)
	}
	if none := requests("web/b", podState{}); len(none) != 1 || none[0].GetPod().GetIngress() != nil || none[0].GetPod().GetEgress() != nil {
		t.Errorf("a pod without policy is sent as %v", none)
	}
}
