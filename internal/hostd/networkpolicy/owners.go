package networkpolicy

import (
	"net/netip"

	"unnest/internal/netdev/isolation"
)

// nobodys are the rules of a port of which more than one pod is said to be the owner.
var nobodys = podRules{Ingress: &isolation.Direction{}, Egress: &isolation.Direction{}}

// owners say which pod has a port. An identity that several pods claim is nobody's: it has the
// name "".
type owners struct {
	uids      map[string]string     // pods by UID
	addresses map[netip.Addr]string // pods without UID
	earlier   map[netip.Addr]string // pods with UID, for ports whose UID an earlier daemon has not kept
}

func ownersOf(pods map[string]podRules) owners {
	o := owners{map[string]string{}, map[netip.Addr]string{}, map[netip.Addr]string{}}
	for name, pod := range pods {
		byAddress := o.addresses
		if pod.UID != "" {
			claim(o.uids, pod.UID, name)
			byAddress = o.earlier
		}
		for _, a := range pod.Addresses {
			claim(byAddress, a, name)
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

// of returns the pod that has a port: the one of the port's UID; or one without UID that has an
// address of the port. Only a port whose UID is not known can be that of a pod with UID by its
// address: the API lists a pod for a while after its address has another holder.
func (o owners) of(port podPort) (name string, ok bool) {
	if name, ok := o.uids[port.podUID]; ok {
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
		if name, ok := o.earlier[a]; ok {
			return name, true
		}
	}
	return "", false
}
