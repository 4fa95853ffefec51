package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"unnest/internal/netdev/isolation"
)

type tenantPolicies struct {
	bridges  []string
	required bool // a pod without policy may do nothing
	unread   bool // what a client has said cannot be read: all pods may do nothing
	pods     map[string]podPolicy
	names    map[netip.Addr]string // of pods, by their addresses
	session  *policySession        // of the client; nil: none is connected
}

// podPolicy is what the file has of a pod.
type podPolicy struct {
	Addresses []netip.Addr         `json:"addresses"`
	Ingress   *isolation.Direction `json:"ingress,omitempty"`
	Egress    *isolation.Direction `json:"egress,omitempty"`
}

type policyPort struct {
	tenant    string
	addresses []netip.Addr
	services  []netip.Addr // the pod's service addresses
}

func policiesPath(stateDir, tenant string) string {
	return filepath.Join(stateDir, "policies", tenant+".json")
}

func readPolicies(path string) (map[string]podPolicy, error) {
	pods := map[string]podPolicy{}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return pods, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &pods)
	}
	if err != nil {
		return map[string]podPolicy{}, fmt.Errorf("read %s: %w", path, err)
	}
	return pods, nil
}

// forgetEnded forgets the policies of pods that have no port, so that who gets their
// addresses has no policy of another pod.
func (t *tenantPolicies) forgetEnded(ports map[string]policyPort) {
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
func (t *tenantPolicies) set(pods map[string]podPolicy) {
	t.pods, t.names = pods, map[netip.Addr]string{}
	for name, pod := range pods {
		for _, a := range pod.Addresses {
			t.names[a] = name
		}
	}
}

func (t *tenantPolicies) forget(name string) {
	for _, a := range t.pods[name].Addresses {
		delete(t.names, a)
	}
	delete(t.pods, name)
}

// of returns the policy of the pod that has one of the addresses.
func (t *tenantPolicies) of(addresses []netip.Addr) (podPolicy, bool) {
	for _, a := range addresses {
		if pod, ok := t.pods[t.names[a]]; ok {
			return pod, true
		}
	}
	return podPolicy{}, false
}
