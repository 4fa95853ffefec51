package networkpolicy

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// anywhere are the ranges of an operator who believes every status.
var anywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// A node writes the status of its pods. By it, no address becomes that of a peer or of a node
// outside the ranges for it, and never one that a pod's NIC has.
func TestAttackPodStatusAddress(t *testing.T) {
	range4 := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	c := grid()
	c.Addresses = Addresses{Attached: map[types.UID]Attached{
		"victim": {Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.9")}}, "own": {Addresses: []netip.Addr{netip.MustParseAddr("10.9.0.5")}},
	}, Pods: range4}
	status := func(i int, uid types.UID, addresses ...string) {
		p := c.Pods[i]
		p.UID, p.Status.PodIP, p.Status.PodIPs = uid, addresses[0], nil
		for _, a := range addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a})
		}
	}
	target := c.Pods[0]
	target.Status.HostIP, target.Status.HostIPs = "203.0.113.1", []corev1.HostIP{{IP: "::ffff:203.0.113.2"}}
	status(1, "liar", "10.1.0.9", "::ffff:10.1.0.9")    // x/b: the address of another pod's NIC
	status(2, "outside", "203.0.113.3", "fd00::3%eth0") // x/c: an address outside the ranges
	status(4, "own", "203.0.113.4", "fd00::1")          // y/b: attached here, with another address
	status(5, "bridged", "10.1.7.7", "::ffff:10.1.7.8") // y/c: behind a bridge
	status(7, "victim", "203.0.113.5", "fd00::2")       // z/b: does not match its status
	for _, i := range []int{1, 2, 4, 5} {
		c.Pods[i].Labels["allowed"] = "yes"
	}
	c.Policies = []*networkingv1.NetworkPolicy{ingress(labelled("pod", "a"), in{From: peers{from(labelled("allowed", "yes"), &metav1.LabelSelector{})}})}
	rules := new(Translator).Translate(c).Rules
	for address, want := range map[string]bool{
		"10.1.0.9": false, "203.0.113.1": false, "203.0.113.2": false, "203.0.113.3": false, "fd00::3": false, "203.0.113.4": false,
		"fd00::1": false, "10.9.0.5": true, "10.1.7.7": true, "10.1.7.8": true, "203.0.113.5": false, "fd00::2": false,
	} {
		if got := translated(rules, connection{target, true, netip.MustParseAddr(address), Service{tcp, 80, 80}}); got != want {
			t.Errorf("from %s: allowed %t, want %t", address, got, want)
		}
	}
	c.Addresses.Nodes = []netip.Prefix{netip.MustParsePrefix("203.0.113.1/32")}
	rules = new(Translator).Translate(c).Rules
	for address, want := range map[string]bool{"203.0.113.1": true, "203.0.113.2": false} {
		if got := translated(rules, connection{target, true, netip.MustParseAddr(address), Service{tcp, 80, 80}}); got != want {
			t.Errorf("from node %s: allowed %t, want %t", address, got, want)
		}
	}
}

// A guest that attaches a NIC in the name of another node's pod does not make its address the pod's:
// peers see the pod where its own node has it.
func TestAttackPodOfAnotherNode(t *testing.T) {
	c := grid()
	c.Addresses.Pods = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	target, peer := c.Pods[0], c.Pods[1]
	peer.UID, peer.Spec.NodeName, peer.Status = "uid-b", "node2", corev1.PodStatus{PodIP: "10.1.9.2", PodIPs: []corev1.PodIP{{IP: "10.1.9.2"}}}
	c.Policies = []*networkingv1.NetworkPolicy{ingress(labelled("pod", "a"), in{From: peers{from(labelled("pod", "b"), &metav1.LabelSelector{})}})}
	for node, want := range map[string]string{"node1": "10.1.9.2", "node2": "10.9.0.9", "": "10.9.0.9"} {
		c.Addresses.Attached = map[types.UID]Attached{"uid-b": {node, []netip.Addr{netip.MustParseAddr("10.9.0.9")}}}
		rules := new(Translator).Translate(c).Rules
		for _, address := range []string{"10.1.9.2", "10.9.0.9"} {
			if got := translated(rules, connection{target, true, netip.MustParseAddr(address), Service{tcp, 80, 80}}); got != (address == want) {
				t.Errorf("the NIC is of node %q: from %s allowed %t", node, address, got)
			}
		}
	}
}
