//go:build kubernetes

package e2e

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/cluster"
)

// With IPv4 and IPv6, and kube-proxy in its mode nftables, a pod with a NIC of its own has what
// Kubernetes promises in both families. The host connects the fractions of split pods.
func TestKubernetesDualStack(t *testing.T) {
	testFamilies(t, "each pod has addresses of both families", (*kubernetes).bothFamilies, "--ip-families", cluster.DualStack, "--proxy-mode", "nftables", "--split-pods")
}

// With IPv6 only, and kube-proxy in its mode iptables, a pod with a NIC of its own has it, too. The nodes connect the fractions
// of split pods by tunnels over IPv6.
func TestKubernetesIPv6(t *testing.T) {
	testFamilies(t, "each pod has an IPv6 address only", (*kubernetes).onlyIPv6, "--ip-families", cluster.IPv6, "--split-pods=network")
}

// testFamilies tests a cluster with the options, and its families of addresses by a step of the
// caller.
func testFamilies(t *testing.T, what string, families func(*kubernetes), options ...string) {
	t.Helper()
	k := newKubernetes(t, options...)
	k.pods = []string{"own-node1", "twin-node1", "own-node2", "bridge-node2"}
	if !k.step("up", k.up) {
		return
	}
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"pods become ready", k.podsReady},
		{what, func() { families(k) }},
		{"every pod reaches every pod", k.podToPod},
		{"Services", k.services},
		{"DNS", k.dns},
		{"session affinity", k.sessionAffinity},
		{"externalTrafficPolicy", k.localTraffic},
		{"hostPort", k.hostPort},
		{"egress", k.egress},
		{"exec, logs, port-forward", k.access},
		{"NetworkPolicy", k.addressPolicies},
		{"a Deployment is split", k.splitFamilies},
	} {
		k.step(s.name, s.run)
	}
	k.step("down", k.down)
}

// onlyIPv6 checks that pods, nodes and Services have one address, of IPv6.
func (k *kubernetes) onlyIPv6() {
	have := map[string][]netip.Addr{"the API server's Service": k.clusterIPs("kubernetes")}
	for _, pod := range k.pods {
		have[pod] = k.addresses(pod)
	}
	for _, node := range []string{"node1", "node2"} {
		have[node] = k.nodeAddresses(node)
	}
	for who, a := range have {
		if len(a) != 1 || !a[0].Is6() {
			k.t.Errorf("%s has the addresses %v, want one of IPv6", who, a)
		}
	}
	if got := k.in("own-node1", "ip -4 address show dev eth0"); strings.Contains(got, "inet ") {
		k.t.Errorf("a pod with a NIC of its own has an IPv4 address: %s", got)
	}
}

// bothFamilies checks that pods, nodes and Services have addresses of both families, that kube-proxy
// has the mode nftables, and that a pod's NIC does not detect duplicates of its IPv6 address.
func (k *kubernetes) bothFamilies() {
	for _, pod := range k.pods {
		if a := k.addresses(pod); len(a) != 2 || !a[0].Is4() || !a[1].Is6() {
			k.t.Fatalf("%s has the addresses %v, want one of each family", pod, a)
		}
		// RFC 4862 calls an address tentative until its uniqueness is known.
		if got := k.in(pod, "ip -6 address show dev eth0"); strings.Contains(got, "tentative") {
			k.t.Errorf("%s: an address is not usable yet: %s", pod, got)
		}
	}
	for _, pod := range []string{"own-node1", "twin-node1", "own-node2"} { // index, prefix length, scope global, IFA_F_PERMANENT | IFA_F_NODAD
		if got := k.in(pod, "cat /proc/net/if_inet6"); !regexp.MustCompile(`(?m)^fd\w{30} \w+ 40 00 82 +eth0$`).MatchString(got) {
			k.t.Errorf("%s: its NIC detects duplicates:\n%s", pod, got)
		}
	}
	for _, node := range []string{"node1", "node2"} {
		if a := k.nodeAddresses(node); len(a) != 2 || !a[0].Is4() || !a[1].Is6() {
			k.t.Errorf("%s has the addresses %v, want one of each family", node, a)
		}
		c, err := cluster.View()
		k.check(err)
		for _, table := range []string{"ip", "ip6"} {
			_, err := c.OnNode(k.t.Context(), node, "nft", "list", "table", table, "kube-proxy")
			k.check(err)
		}
	}
	required := service("both", map[string]string{"app": "web"}, map[string]any{})
	required["spec"].(map[string]any)["ipFamilyPolicy"] = "RequireDualStack"
	k.apply(required)
	if a := k.clusterIPs("both"); len(a) != 2 || !a[0].Is4() || !a[1].Is6() {
		k.t.Errorf("a Service has the addresses %v, want one of each family", a)
	}
}

// addressPolicies lets own-node2 have connections from one pod's addresses, in both families.
func (k *kubernetes) addressPolicies() {
	var from []any
	for _, a := range k.addresses("own-node1") {
		from = append(from, map[string]any{"ipBlock": map[string]any{"cidr": a.String() + map[bool]string{true: "/32", false: "/128"}[a.Is4()]}})
	}
	k.apply(ingressPolicy("allow", map[string]any{"from": from, "ports": []any{map[string]any{"port": 8080}}}))
	for _, to := range k.addresses("own-node2") {
		k.wantNoReach(to, "twin-node1")
		k.wantReach(to, "own-node1")
	}
	if ready := k.ctl("get", "pod", "own-node2", "--output=jsonpath={.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}"); ready != "true 0" {
		k.t.Errorf("the kubelet's probes of a pod with policies: ready and restarts are %q", ready)
	}
	k.ctl("delete", "networkpolicy", "--all")
	for _, to := range k.addresses("own-node2") {
		k.wantReach(to, "twin-node1")
	}
}

// splitFamilies checks that a Service has the address of a split pod in each family, and answers there. Nothing is left of the pod.
func (k *kubernetes) splitFamilies() {
	k.apply(splitWorkload("Deployment", "split"), splitService())
	k.ctl("rollout", "status", "deployment/split", podLimit)
	pod := k.splitPod()
	k.wantSplit(pod)
	if got, want := len(k.addresses(pod)), len(k.addresses("own-node1")); got != want {
		k.t.Errorf("the split pod has %d addresses, and a whole one has %d", got, want)
	}
	for _, a := range k.clusterIPs("split") {
		k.eventually("the Service answers at "+a.String(), func() bool {
			return slices.Equal(k.answers("own-node1", 1, netip.AddrPortFrom(a, 80)), []string{"back"})
		})
	}
	k.splitRemoved()
	k.eventually("no segment is left", func() bool { return k.segments() == "" })
}
