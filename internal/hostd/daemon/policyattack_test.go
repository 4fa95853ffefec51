package daemon

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/kube/networkpolicy"
)

// manyExcepts returns what policies of 2 KB become, each with 100 exceptions of ::/0, of which
// no two have the same.
func manyExcepts(t *testing.T, policies int) []networkpolicy.Rule {
	t.Helper()
	c := networkpolicy.Cluster{Pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "a"}}}}
	for i := range policies {
		b := &networkingv1.IPBlock{CIDR: "::/0"}
		for j := range 100 {
			b.Except = append(b.Except, fmt.Sprintf("%x:%x::1/128", 0x2000+j, i))
		}
		c.Policies = append(c.Policies, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: fmt.Sprint("p", i)},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: b}}}}},
		})
	}
	translated := new(networkpolicy.Translator).Translate(c)
	for _, r := range translated.Rules {
		return r.Ingress.Allow
	}
	t.Fatal("no rules")
	return nil
}

// Small policies with many exceptions, which became 12,000 prefixes each, are in force: in one
// transaction that is not taken for a change of others, next to other pods, and after a restart.
func TestAttackManyExcepts(t *testing.T) {
	l := policyLab(t)
	m, later := l.boot(1, 4), l.boot(2, 8)
	l.serve(patience)
	evil, web := m.attachAllocated("c1"), m.attachAllocated("c2")
	credentials := l.enrollPolicy("default")
	for _, policies := range []int{10, 80, 190} {
		rules := manyExcepts(t, policies)
		large := policyOf("evil/a", evil)
		large.Ingress.Allow = nil
		requests := []*hostdpb.ApplyRequest{{Pod: large}}
		for _, r := range rules {
			more := &hostdpb.PodPolicy{Pod: "evil/a", Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{}}}, Egress: &hostdpb.PolicyDirection{}}
			for _, p := range r.Peers {
				more.Ingress.Allow[0].Peers = append(more.Ingress.Allow[0].Peers, p.String())
			}
			requests = append(requests, &hostdpb.ApplyRequest{More: more})
		}
		s := l.policyClient(credentials)
		l.mustApply(s, 2, 2, append(requests, &hostdpb.ApplyRequest{Pod: policyOf("web/a", web, "10.9.0.0/24")})...)
		check := func(what string) {
			t.Helper()
			l.wantIngress(what, fmt.Sprintf("u1n%d-1", evil.GetSlot()), true, policies)
			l.wantIngress(what, fmt.Sprintf("u1n%d-1", web.GetSlot()), true, 1)
			another := later.attachAllocated(strings.ReplaceAll(what, " ", "-")) // the first try succeeds
			l.wantIngress(what, fmt.Sprintf("u2n%d-1", another.GetSlot()), true, 0)
		}
		check(fmt.Sprint("with ", policies))
		l.end(l.daemon, syscall.SIGKILL)
		l.serve(patience)
		check(fmt.Sprint("restarted with ", policies))
	}
	if strings.Contains(l.log(), "restored the packet filter") {
		t.Error("the daemon takes its own changes for those of others")
	}
}
