package networkpolicy

import (
	"net/netip"
	"slices"
	"strings"

	"unnest/internal/netdev/isolation"
)

type tenant struct {
	name     string
	bridges  []string
	required bool     // a pod without policy may do nothing
	unread   string   // why what a client has said is not known: all pods may do nothing
	unkept   string   // why the next daemon will not know it
	refused  []string // namespaces whose policies do not fit
	size     int      // bytes of the others in a transaction
	pods     map[string]podRules
	names    map[netip.Addr]string // of pods, by their addresses
	session  *Session              // of the client; nil: none is connected
}

// podRules is what the file has of a pod.
type podRules struct {
	Addresses []netip.Addr         `json:"addresses"`
	Ingress   *isolation.Direction `json:"ingress,omitempty"`
	Egress    *isolation.Direction `json:"egress,omitempty"`

	namespace string
}

type podPort struct {
	tenant    string
	addresses []netip.Addr
	services  []netip.Addr // the pod's service addresses
	link      []netip.Prefix
}

// forgetEnded forgets the policies of pods that have no port, so that who gets their
// addresses has no policy of another pod.
func (t *tenant) forgetEnded(ports map[string]podPort) {
	used := map[netip.Addr]bool{}
	for _, port := range ports {
		for _, a := range port.addresses {
			used[a] = true
		}
	}
	for name, pod := range t.pods {
		if t.required && !slices.ContainsFunc(pod.Addresses, func(a netip.Addr) bool { return used[a] }) {
			t.forget(name)
		}
	}
}

// set replaces the policies of all pods.
func (t *tenant) set(pods map[string]podRules) {
	t.pods, t.names = pods, map[netip.Addr]string{}
	for name, pod := range pods {
		pod.namespace, _, _ = strings.Cut(name, "/")
		pods[name] = pod
		for _, a := range pod.Addresses {
			t.names[a] = name
		}
	}
}

func (t *tenant) forget(name string) {
	for _, a := range t.pods[name].Addresses {
		delete(t.names, a)
	}
	delete(t.pods, name)
}

// of returns the policy of the pod that has one of the addresses.
func (t *tenant) of(addresses []netip.Addr) (podRules, bool) {
	for _, a := range addresses {
		if pod, ok := t.pods[t.names[a]]; ok {
			return pod, true
		}
	}
	return podRules{}, false
}
