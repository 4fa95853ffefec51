package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/configfile"
	"unnest.io/unnest/internal/hostd/credentials"
)

const policyConfig = `listen: 127.0.0.1:7443
tenants:
  - {name: default, bridge: br0, mtu: 1400, ranges: [{subnet: 10.9.0.0/24}], claimRanges: [10.9.0.0/24], cooldown: 0s, networkPolicy: required}
  - {name: other, bridge: br1, mtu: 1400, ranges: [{subnet: 10.8.0.0/24}], networkPolicy: optional}
`

// policyLab is a lab whose tenant default requires policies.
func policyLab(t *testing.T) *lab {
	t.Helper()
	l := newLab(t)
	l.configure(policyConfig)
	return l
}

// enrollPolicy returns a directory with the credentials of a tenant's policy client.
func (l *lab) enrollPolicy(tenant string) string {
	l.t.Helper()
	p, err := configfile.Read(filepath.Join(l.dir, "hostd.yaml"))
	l.check(err)
	out := filepath.Join(l.t.TempDir(), tenant)
	l.check(credentials.EnrollPolicy(l.dir, p, tenant, out))
	return out
}

// policyClient returns a stream of a policy client.
func (l *lab) policyClient(credentials string) hostdpb.HostPolicy_ApplyClient {
	l.t.Helper()
	config, err := identity.ClientConfig(credentials)
	l.check(err)
	config.ServerName = "127.0.0.1"
	stream, err := hostdpb.NewHostPolicyClient(connection(l.t, l.addr, config, l.inside())).Apply(l.t.Context())
	l.check(err)
	return stream
}

// apply sends requests and a commit, and returns the answer to the commit.
func apply(s hostdpb.HostPolicy_ApplyClient, requests ...*hostdpb.ApplyRequest) (*hostdpb.ApplyResponse, error) {
	for _, r := range append(requests, &hostdpb.ApplyRequest{Commit: true}) {
		if err := s.Send(r); err != nil {
			break // Recv has the reason
		}
	}
	for {
		r, err := s.Recv()
		if err != nil || len(r.GetEnded()) == 0 && r.GetOwnership() == nil {
			return r, err
		}
	}
}

func (l *lab) mustApply(s hostdpb.HostPolicy_ApplyClient, pods, nics uint32, requests ...*hostdpb.ApplyRequest) {
	l.t.Helper()
	r, err := apply(s, requests...)
	l.check(err)
	if r.GetPods() != pods || r.GetNics() != nics {
		l.t.Errorf("%d pods, %d NICs, want %d and %d", r.GetPods(), r.GetNics(), pods, nics)
	}
}

// policyOf lets peers begin connections with a pod, and the pod begin none.
func policyOf(pod string, nic *hostdpb.NIC, peers ...string) *hostdpb.PodPolicy {
	p := &hostdpb.PodPolicy{Pod: pod, Egress: &hostdpb.PolicyDirection{}, Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{
		Peers: peers, Services: []*hostdpb.PolicyService{{Protocol: hostdpb.Protocol_PROTOCOL_TCP, First: 80, Last: 90}},
	}}}}
	for _, a := range nic.GetAddresses() {
		p.Addresses = append(p.Addresses, netip.MustParsePrefix(a).Addr().String())
	}
	return p
}

func (m *machine) attachAllocated(container string) *hostdpb.NIC {
	m.lab.t.Helper()
	r, err := m.client().AttachNIC(m.lab.t.Context(), &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: true})
	m.lab.check(err)
	return r.GetNic()
}

// ingressOf returns the rules for what a TAP receives; "" if it is not filtered.
func (l *lab) ingressOf(tap string) string {
	l.t.Helper()
	_, rest, _ := strings.Cut(l.nft("list", "ruleset"), fmt.Sprintf("chain ingress-%x {", tap))
	rules, _, _ := strings.Cut(rest, "}")
	return rules
}

func (l *lab) wantIngress(what, tap string, drops bool, peers int) {
	l.t.Helper()
	rules := l.ingressOf(tap)
	got := 0
	for rule := range strings.Lines(rules) {
		if strings.Contains(rule, "saddr") {
			got++
		}
	}
	if strings.Contains(rules, "drop") != drops || got != peers {
		l.t.Errorf("%s: %s has these rules, want drop %t and %d of peers:\n%s", what, tap, drops, peers, rules)
	}
}

// From the moment that a pod has its NIC it may do what the latest commit says, also after
// other programs have changed the rules and after the daemon was killed.
func TestNetworkPolicy(t *testing.T) {
	l := policyLab(t)
	m, later := l.boot(1, 4), l.boot(2, 2)
	l.serve(patience)
	nic := m.attachAllocated("c1")
	l.wantIngress("no policy is known", "u1n1-1", true, 0)
	if rules := l.ingressOf("u1n1-1"); strings.Contains(rules, "learn") {
		t.Errorf("something is allowed:\n%s", rules)
	}
	credentials := l.enrollPolicy("default")
	s := l.policyClient(credentials)
	l.mustApply(s, 0, 0)
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.100/32", "10.9.0.0/24", "fd00::/64")},
		&hostdpb.ApplyRequest{More: policyOf("web/a", nic, "10.1.0.0/16")})
	l.wantIngress("applied", "u1n1-1", true, 3)
	want := l.ingressOf("u1n1-1")

	l.nft("flush", "ruleset")
	l.eventually("the rules are back", func() bool { return l.ingressOf("u1n1-1") == want })
	l.end(l.daemon, syscall.SIGKILL)
	if got := l.ingressOf("u1n1-1"); got != want {
		t.Errorf("without a daemon the rules are\n%s\nwant\n%s", got, want)
	}
	l.serve(patience)
	if got := l.ingressOf("u1n1-1"); got != want {
		t.Errorf("after a start the rules are\n%s\nwant\n%s", got, want)
	}
	later.attachAllocated("c2")
	l.wantIngress("after a start, no policy is known", "u2n1-1", true, 0)

	s = l.policyClient(credentials)
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: "web/a", Addresses: []string{netip.MustParsePrefix(nic.GetAddresses()[0]).Addr().String()}}})
	l.wantIngress("no isolation", "u1n1-1", false, 0)
	l.mustApply(s, 0, 0, &hostdpb.ApplyRequest{Remove: "web/a"})
	l.wantIngress("removed", "u1n1-1", true, 0)
}

// The policy of a pod that has ended is forgotten, and the client is told, so that the next
// pod with its address has none.
func TestPolicyOfEndedPod(t *testing.T) {
	l := policyLab(t)
	m := l.boot(1, 4)
	l.serve(patience)
	nic := m.attachAllocated("c1")
	s := l.policyClient(l.enrollPolicy("default"))
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/24")})
	m.detachWilling("c1")
	r, err := s.Recv()
	l.check(err)
	if !slices.Equal(r.GetEnded(), []string{"web/a"}) {
		t.Errorf("told of %q, want web/a", r.GetEnded())
	}
	if rules := l.nft("list", "ruleset"); strings.Contains(rules, fmt.Sprintf("%x", "u1n1-1")) || strings.Contains(rules, "set peers") {
		t.Errorf("left of the port:\n%s", rules)
	}
	l.mustApply(s, 0, 0)
	next := m.attachAllocated("c2")
	l.wantIngress("the next pod", fmt.Sprintf("u1n%d-1", next.GetSlot()), true, 0)
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", next, "10.9.0.0/24")})
}

// A client has the rights of its tenant only, and the present one only; a guest has none.
func TestPolicyRights(t *testing.T) {
	l := policyLab(t)
	m := l.boot(1, 4)
	l.serve(patience)
	nic := m.attachAllocated("c1")
	given := l.enrollPolicy("default")
	s := l.policyClient(given)
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/24")})
	want := l.ingressOf("u1n1-1")

	of := l.policyClient(l.enrollPolicy("other"))
	l.mustApply(of, 1, 0, &hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: "web/a", Addresses: policyOf("", nic).GetAddresses()}})
	guest, err := hostdpb.NewHostPolicyClient(connection(t, l.addr, m.config, l.inside())).Apply(t.Context())
	l.check(err)
	if _, err := apply(guest, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic)}); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("a guest sets a policy: got %v, want unauthenticated", err)
	}
	config, err := identity.ClientConfig(given)
	l.check(err)
	config.ServerName = "127.0.0.1"
	if _, err := dial(t, l.addr, config, l.inside()).ListNICs(t.Context(), &hostdpb.ListNICsRequest{}); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("a policy client calls as a guest: got %v, want unauthenticated", err)
	}
	if got := l.ingressOf("u1n1-1"); got != want {
		t.Errorf("the rules became\n%s\nwant\n%s", got, want)
	}

	newer := l.policyClient(given)
	l.mustApply(newer, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/25")})
	if _, err := apply(s); grpcstatus.Code(err) != codes.Aborted {
		t.Errorf("a superseded stream commits: got %v, want aborted", err)
	}
	again := l.enrollPolicy("default")
	if _, err := newer.Recv(); err == nil {
		t.Error("the stream of superseded credentials goes on")
	}
	if _, err := apply(l.policyClient(given)); grpcstatus.Code(err) != codes.Unauthenticated {
		t.Errorf("superseded credentials: got %v, want unauthenticated", err)
	}
	last := l.policyClient(again)
	l.mustApply(last, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/25")})
	l.check(credentials.RevokePolicy(t.Context(), l.dir, "default"))
	if _, err := last.Recv(); err == nil {
		t.Error("the stream of revoked credentials goes on")
	}
	l.wantIngress("revoked", "u1n1-1", true, 1)
}

// A damaged file lets no pod do anything, and is replaced by the next commit.
func TestDamagedPolicies(t *testing.T) {
	l := policyLab(t)
	l.configure(strings.Replace(policyConfig, "required", "optional", 1))
	l.check(os.MkdirAll(filepath.Join(l.dir, "policies"), 0o700))
	l.check(os.WriteFile(filepath.Join(l.dir, "policies", "default.json"), []byte(`{"web/a":{"addr`), 0o600))
	m := l.boot(1, 4)
	l.serve(patience)
	l.wantSaid("read policies")
	nic := m.attachAllocated("c1")
	l.wantIngress("damaged", "u1n1-1", true, 0)
	s := l.policyClient(l.enrollPolicy("default"))
	l.mustApply(s, 0, 0)
	l.wantIngress("no policy", "u1n1-1", false, 0)
	l.mustApply(s, 1, 1, &hostdpb.ApplyRequest{Pod: policyOf("web/a", nic, "10.9.0.0/24")})
	l.wantIngress("policy", "u1n1-1", true, 1)
	l.end(l.daemon, syscall.SIGTERM)
	l.configure(strings.ReplaceAll(strings.Replace(policyConfig, "required", "optional", 1), ", networkPolicy: optional", ""))
	l.serve(patience)
	if rules := l.nft("list", "ruleset"); strings.Contains(rules, "unnest-isolation") {
		t.Errorf("left without networkPolicy:\n%s", rules)
	}
	if _, err := apply(l.policyClient(l.enrollPolicy("default"))); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("without networkPolicy: got %v, want failed precondition", err)
	}
}

// attachPod attaches a NIC for a pod of Kubernetes, with an address or, if that is "", a chosen one.
func (m *machine) attachPod(container, uid, address string) (*hostdpb.NIC, error) {
	r := &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Allocate: address == "", Pod: &hostdpb.KubernetesPod{Namespace: "web", Name: container, Uid: uid}}
	if address != "" {
		r.Addresses = []string{address}
	}
	got, err := m.client().AttachNIC(m.lab.t.Context(), r)
	return got.GetNic(), err
}

// A pod has a policy by its UID, which its NIC was attached for: from the first moment, until the
// NIC goes, whoever has its address next, and in the next daemon. No other guest is that pod.
func TestAttackDetachedPodKeepsPolicy(t *testing.T) {
	l := policyLab(t)
	l.configure(strings.Replace(policyConfig, "required", "optional", 1))
	m, thief := l.boot(1, 8), l.boot(2, 2)
	l.serve(patience)
	const old, next, own = "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b11", "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b12", "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b13"
	first, err := m.attachPod("c1", old, "")
	l.check(err)
	s := l.policyClient(l.enrollPolicy("default"))
	of := func(pod, uid string, nic *hostdpb.NIC, peers ...string) *hostdpb.ApplyRequest {
		p := policyOf(pod, nic, peers...)
		p.Uid = uid
		return &hostdpb.ApplyRequest{Pod: p}
	}
	open := of("web/old", old, first)
	open.Pod.Ingress, open.Pod.Egress = nil, nil
	l.mustApply(s, 1, 1, open)
	l.wantIngress("allowed everything", "u1n1-1", false, 0)
	if _, err := thief.attachPod("c1", old, ""); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("another guest is the pod: got %v, want permission denied", err)
	}
	if _, err := m.attachPod("c1", next, first.GetAddresses()[0]); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("the attachment becomes another pod's: got %v, want permission denied", err)
	}
	m.detachWilling("c1")
	// The API still lists the pod, with the address.
	l.mustApply(s, 1, 0, open)
	second, err := m.attachPod("c2", next, first.GetAddresses()[0])
	l.check(err)
	tap := fmt.Sprintf("u1n%d-1", second.GetSlot())
	l.wantIngress("its policy is not there", tap, true, 0)
	l.mustApply(s, 1, 0, open)
	l.wantIngress("the other pod is sent again", tap, true, 0)
	l.mustApply(s, 2, 1, of("web/new", next, second, "10.9.0.0/24"))
	l.wantIngress("its policy is there", tap, true, 1)
	// A policy that is there before the NIC is in force from its first moment.
	l.mustApply(s, 3, 1, of("web/own", own, &hostdpb.NIC{}, "10.9.0.0/24", "10.1.0.0/16"))
	third, err := m.attachPod("c3", own, "")
	l.check(err)
	l.wantIngress("known before", fmt.Sprintf("u1n%d-1", third.GetSlot()), true, 2)
	l.mustApply(s, 3, 2)

	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	l.wantIngress("another daemon", tap, true, 1)
	l.wantIngress("another daemon", fmt.Sprintf("u1n%d-1", third.GetSlot()), true, 2)
}

// A guest cannot attach a NIC in the name of a pod that is bound to another node. One that it has attached
// before the client has named the pod has no connections, also from a daemon that starts again. The pod has
// its policy on its own node, whatever name that has in the cluster.
func TestAttackPodOfAnotherNode(t *testing.T) {
	l := policyLab(t)
	l.configure(strings.Replace(policyConfig, "required", "optional", 1))
	liar, own := l.boot(1, 2), l.boot(2, 2)
	l.serve(patience)
	const uid = "9a3f0a7c-5f0e-4b0b-9d55-0d9c1a3f1b11"
	open := func(node string) *hostdpb.ApplyRequest {
		return &hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: "web/a", Uid: uid, Node: node}}
	}
	s := l.policyClient(l.enrollPolicy("default"))
	l.mustApply(s, 0, 0)
	_, err := liar.attachPod("c1", uid, "")
	l.check(err)
	l.mustApply(s, 1, 0, open("node2"))
	l.wantIngress("attached by another node", "u1n1-1", true, 0)
	l.wantSaid("u1n1-1 of node node1 for a pod of node node2")
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	l.wantIngress("another daemon", "u1n1-1", true, 0)

	liar.detachWilling("c1")
	s = l.policyClient(l.enrollPolicy("default"))
	l.mustApply(s, 1, 0, open("node2"))
	if _, err := liar.attachPod("c1", uid, ""); grpcstatus.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "its node is node2, and this guest is node node1") {
		t.Errorf("attached in the name of another node's pod: got %v, want permission denied", err)
	}
	_, err = own.attachPod("c1", uid, "")
	l.check(err)
	l.wantIngress("attached by its node", "u2n1-1", false, 0)
	l.mustApply(s, 1, 0, open("ip-192-0-2-8.example.com"))
	l.wantIngress("its node has another name", "u2n1-1", true, 0)
	own.record.Node = "ip-192-0-2-8.example.com"
	own.write()
	l.eventually("the daemon knows the name", func() bool {
		_, err := own.client().ListNICs(t.Context(), &hostdpb.ListNICsRequest{})
		return err == nil && !strings.Contains(l.ingressOf("u2n1-1"), "drop")
	})
}
