package splitpod

import (
	"encoding/json"
	"errors"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"unnest.io/unnest/internal/hostapi/segment"
)

// network is what NetworkAnnotation has, for the plugin hostlo.
type network struct {
	VNI      uint32   `json:"vni"`      // unique in the cluster
	Fraction int      `json:"fraction"` // from 1 on
	Nodes    []string `json:"nodes"`    // address of each fraction's node
	Names    []string `json:"names"`    // of these nodes: the plugin finds their addresses inside WireGuard by them
}

// networkOf returns what is noted in a fraction; VNI 0: nothing.
func networkOf(p *corev1.Pod) (n network) {
	_ = json.Unmarshal([]byte(p.Annotations[NetworkAnnotation]), &n)
	return n
}

// unconnected reports whether the pod waits for the nodes of all fractions.
func unconnected(p *corev1.Pod) bool { return byNetwork(p) && p.Annotations[NetworkAnnotation] == "" }

// connect returns the fractions that lack their segment with it noted, and none as long as one has no node. Companions of a
// pod with init containers get it when these have ended: until then they cannot start. pods are all of the cluster.
func connect(p *corev1.Pod, companions []*corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod) (connected []*corev1.Pod, err error) {
	all, n := append([]*corev1.Pod{p}, companions...), networkOf(p)
	if unconnected(p) {
		var on []*corev1.Node
		for _, f := range all {
			i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return n.Name == f.Spec.NodeName })
			if i < 0 {
				return nil, nil
			}
			on, n.Names = append(on, nodes[i]), append(n.Names, f.Spec.NodeName)
		}
		n.VNI = number(p, pods)
		if n.Nodes, err = addresses(on); err != nil {
			return nil, err
		}
	}
	if len(p.Spec.InitContainers) > 0 && !isTrue(p, corev1.PodInitialized) {
		all = all[:1]
	}
	for i, f := range all {
		if f.Annotations[NetworkAnnotation] != "" {
			continue
		}
		n.Fraction = i + 1
		text, err := json.Marshal(n)
		if err != nil {
			return nil, err
		}
		f = f.DeepCopy()
		f.Annotations[NetworkAnnotation] = string(text)
		connected = append(connected, f)
	}
	return connected, nil
}

// Encrypted returns a fraction whose segment names its nodes without their addresses: a plugin that does not encrypt refuses it.
func Encrypted(f *corev1.Pod) (*corev1.Pod, error) {
	n := networkOf(f)
	n.Nodes = nil
	text, err := json.Marshal(n)
	f = f.DeepCopy()
	f.Annotations[NetworkAnnotation] = string(text)
	return f, err
}

// number returns one that no other pod has. Fractions of p do not count: the cache can show theirs before that of p.
func number(p *corev1.Pod, pods []*corev1.Pod) uint32 {
	taken := map[uint32]bool{0: true}
	for _, other := range pods {
		if other.Labels[PodLabel] != string(p.UID) {
			taken[networkOf(other).VNI] = true
		}
	}
	h := fnv.New32a()
	h.Write([]byte(p.UID))
	vni := h.Sum32() & segment.MaxVNI
	for taken[vni] {
		vni = (vni + 1) & segment.MaxVNI
	}
	return vni
}

// addresses returns an internal address of each node, all of one family: IPv4 if all have one.
func addresses(nodes []*corev1.Node) ([]string, error) {
	for _, is4 := range []bool{true, false} {
		var all []string
		for _, n := range nodes {
			i := slices.IndexFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool {
				parsed, err := netip.ParseAddr(a.Address)
				return a.Type == corev1.NodeInternalIP && err == nil && parsed.Is4() == is4
			})
			if i >= 0 {
				all = append(all, n.Status.Addresses[i].Address)
			}
		}
		if len(all) == len(nodes) {
			return all, nil
		}
	}
	return nil, errors.New("the nodes of the fractions have no internal addresses of a common family, which their tunnels need")
}
