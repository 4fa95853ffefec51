package networkpolicy

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"unnest.io/unnest/internal/hostapi/iprange"
)

// Addresses say which addresses count for a pod. Its status does not say so by itself: the
// pod's node writes it, and could name the addresses of others.
type Addresses struct {
	// Attached are the addresses of the pods that have a NIC of their own, by what their NICs may
	// send from. These count for no other pod.
	Attached map[types.UID]Attached
	// Pods are where the status of other pods may name addresses, Nodes where that of nodes may.
	Pods, Nodes []netip.Prefix
}

// Attached is what a host daemon says of the NICs of a pod.
type Attached struct {
	Node      string // of the guest that has the NICs; "": the daemon does not say
	Addresses []netip.Addr
}

// belief is what of a pod's status counts.
type belief struct {
	Addresses
	held map[netip.Addr]bool // attached
}

func newBelief(a Addresses) belief {
	b := belief{a, map[netip.Addr]bool{}}
	for _, all := range a.Attached {
		for _, addr := range all.Addresses {
			b.held[addr] = true
		}
	}
	return b
}

// pod returns the addresses of a pod, as iprange.Union returns them. NICs of another node than the
// pod's are not the pod's: that node lies.
func (b belief) pod(p *corev1.Pod) []iprange.Range {
	if a, ok := b.Attached[p.UID]; ok && p.UID != "" && (a.Node == "" || a.Node == p.Spec.NodeName) {
		return hosts(a.Addresses)
	}
	texts := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	return b.within(b.Pods, texts)
}

// node returns the addresses of a pod's node, whose probes of the pod the API promises.
func (b belief) node(p *corev1.Pod) []iprange.Range {
	texts := []string{p.Status.HostIP}
	for _, ip := range p.Status.HostIPs {
		texts = append(texts, ip.IP)
	}
	return b.within(b.Nodes, texts)
}

// within returns those of some addresses that are in a range and that no NIC of a pod has.
func (b belief) within(ranges []netip.Prefix, texts []string) []iprange.Range {
	var all []netip.Addr
	for _, text := range texts {
		a, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		a = a.Unmap().WithZone("")
		if !b.held[a] && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
			all = append(all, a)
		}
	}
	return hosts(all)
}

func hosts(addresses []netip.Addr) (all []iprange.Range) {
	for _, a := range addresses {
		all = append(all, iprange.Range{First: a, Last: a})
	}
	return iprange.Union(all)
}
