package networkpolicy

import (
	"net/netip"

	"unnest.io/unnest/internal/netdev/isolation"
)

// nobodys are the rules of a port of which more than one pod is said to be the owner.
var nobodys = podRules{Ingress: &isolation.Direction{}, Egress: &isolation.Direction{}}

// owners say which pod has a port. An identity that several pods claim is nobody's: it has the
// name "".
type owners struct {
	uids      map[onNode[string]]string     // pods by UID
	addresses map[netip.Addr]string         // pods without UID
	earlier   map[onNode[netip.Addr]]string // pods with UID, for ports whose UID an earlier daemon has not kept
	nodes     map[string]string             // of UIDs
}

// onNode is an identity that a guest gives to a port: it counts on the node of the pod only. The
// node "" is every one, if the client does not say.
type onNode[K comparable] struct {
	key  K
	node string
}

func ownersOf(pods map[string]podRules) owners {
	o := owners{map[onNode[string]]string{}, map[netip.Addr]string{}, map[onNode[netip.Addr]]string{}, map[string]string{}}
	for name, pod := range pods {
		if pod.UID != "" {
			claim(o.uids, onNode[string]{pod.UID, pod.Node}, name)
			o.nodes[pod.UID] = pod.Node
		}
		for _, a := range pod.Addresses {
			if pod.UID != "" {
				claim(o.earlier, onNode[netip.Addr]{a, pod.Node}, name)
			} else {
				claim(o.addresses, a, name)
			}
		}
	}
	return o
}

func claim[K comparable](owners map[K]string, key K, name string) {
	if other, taken := owners[key]; taken && other != name {
		name = ""
	}
	owners[key] = name
}

// lookUp returns the owner of an identity that a guest of a node names.
func lookUp[K comparable](owners map[onNode[K]]string, key K, node string) (name string, ok bool) {
	if name, ok = owners[onNode[K]{key, node}]; !ok {
		name, ok = owners[onNode[K]{key, ""}]
	}
	return name, ok
}

// of returns the pod that has a port: the one of the port's UID; or one without UID that has an
// address of the port. Only a port whose UID is not known can be that of a pod with UID by its
// address: the API lists a pod for a while after its address has another holder.
func (o owners) of(port podPort) (name string, ok bool) {
	if name, ok := lookUp(o.uids, port.podUID, port.node); ok {
		return name, true
	}
	for _, a := range port.addresses {
		if name, ok := o.addresses[a]; ok {
			return name, true
		}
	}
	if port.podUID != "" {
		return "", false
	}
	for _, a := range port.addresses {
		if name, ok := lookUp(o.earlier, a, port.node); ok {
			return name, true
		}
	}
	return "", false
}

// stray reports whether a port was attached for a pod of another node: its guest lies, or the
// configuration does not name the guest's node.
func (o owners) stray(port podPort) bool {
	node, ok := o.nodes[port.podUID]
	_, own := lookUp(o.uids, port.podUID, port.node)
	return ok && node != "" && !own
}
