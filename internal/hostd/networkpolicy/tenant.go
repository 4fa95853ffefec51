package networkpolicy

import (
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/netdev/isolation"
)

type tenant struct {
	name     string
	keeping  *sync.Mutex // held, before a turn, by who writes the tenant's record
	changing *sync.Mutex // held, before that of the policies, by who changes the packet filter for the tenant
	settings
	spoken  bool     // a client has said which pods there are: others may do nothing
	unread  string   // why what a client has said is not known: all pods may do nothing
	unkept  string   // why the next daemon will not know it
	refused []string // namespaces whose policies do not fit
	size    int      // bytes of the others in a transaction
	strays  []string // NICs attached for a pod that is bound to another node
	said
	session *Session  // of the client; nil: none is connected
	settled time.Time // when the client's commits will have had their share of the time, and no more
}

// said is what a client has said of pods. Nobody changes it: a change makes a new one.
type said struct {
	pods   map[string]podRules
	owners owners
}

func newSaid(pods map[string]podRules) said {
	for name, pod := range pods {
		pod.namespace, _, _ = strings.Cut(name, "/")
		pods[name] = pod
	}
	return said{pods, ownersOf(pods)}
}

// without returns it without the pods that have ended since the client was last told.
func (s said) without(ended *Session) said {
	names := map[string]bool{}
	for _, name := range s.ended(ended.endedPorts(false)) {
		names[name] = true
	}
	if len(names) == 0 {
		return s
	}
	return s.except(func(name string, _ podRules) bool { return names[name] })
}

// except returns it without the pods that are gone.
func (s said) except(gone func(name string, pod podRules) bool) said {
	pods := maps.Clone(s.pods)
	maps.DeleteFunc(pods, gone)
	return newSaid(pods)
}

// settings are those of the configuration.
type settings struct {
	bridges  []string
	required bool // a pod without policy may do nothing
	// Where the status of a pod, and of a node, may name addresses.
	podRanges, nodeRanges []netip.Prefix
}

// podRules is what a client has said of a pod.
type podRules struct {
	UID       string
	Node      string // "": the client does not say
	Addresses []netip.Addr
	Ingress   *isolation.Direction
	Egress    *isolation.Direction

	namespace string
}

type podPort struct {
	tenant    string
	podUID    string // as in attachment.Record
	node      string // of the guest that has it; "": not known
	addresses []netip.Addr
	services  []netip.Addr // the pod's service addresses
	link      []netip.Prefix
}

// forgetEnded forgets the policies of pods that have no port and no UID, so that who gets their
// addresses has no policy of another pod.
func (t *tenant) forgetEnded(ports map[string]podPort) {
	used := map[string]bool{}
	for _, port := range ports {
		if name, ok := t.owners.of(port); ok {
			used[name] = true
		}
	}
	t.said = t.except(func(name string, pod podRules) bool { return pod.UID == "" && !used[name] })
}

// of returns the policy of a port's pod.
func (t *tenant) of(port podPort) (podRules, bool) {
	name, ok := t.owners.of(port)
	switch {
	case !ok:
		return podRules{}, false
	case name == "":
		return nobodys, true
	}
	return t.pods[name], true
}
