package networkpolicy

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/isolation"
)

// keptPod is a pod in a record.
type keptPod struct {
	UID       string            `json:"uid,omitempty"`
	Node      string            `json:"node,omitempty"` // "": the client does not say
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Ingress   *keptDirection    `json:"ingress,omitempty"`
	Egress    *keptDirection    `json:"egress,omitempty"`
	Peers     [][]iprange.Range `json:"peers,omitempty"` // of spokenPod: those of all rules, each once
}

type keptDirection struct{ Allow []keptRule }

type keptRule struct {
	Peers    keptPeers
	Services []isolation.Service
}

// keptPeers are peers by their number in the record, from 1 on, or 0 and the peers as an earlier version has kept them.
type keptPeers struct {
	number int
	peers  []iprange.Range
}

// MarshalJSON implements json.Marshaler.
func (k keptPeers) MarshalJSON() ([]byte, error) { return json.Marshal(k.number) }

// UnmarshalJSON implements json.Unmarshaler.
func (k *keptPeers) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, &k.peers)
	}
	return json.Unmarshal(text, &k.number)
}

// recordOf returns a function that writes the record of pods. Each pod is a line; the first line has the peers of all. So it holds
// the text of one line at a time.
func recordOf(pods map[string]podRules) func(io.Writer) error {
	return func(to io.Writer) error {
		w := bufio.NewWriter(to)
		lines := json.NewEncoder(w)
		numbers, all := map[*iprange.Range]int{}, [][]iprange.Range(nil)
		for _, pod := range pods {
			for _, r := range pod.rules() {
				if len(r.Peers) > 0 && numbers[&r.Peers[0]] == 0 {
					all = append(all, r.Peers)
					numbers[&r.Peers[0]] = len(all)
				}
			}
		}
		_, err := w.WriteString("{")
		for i, name := range slices.Sorted(maps.Keys(pods)) { // spokenPod is the first
			pod := pods[name]
			k := keptPod{pod.UID, pod.Node, pod.Addresses, keptOf(pod.Ingress, numbers), keptOf(pod.Egress, numbers), nil}
			if name == spokenPod {
				k.Peers = all
			}
			key, keyErr := json.Marshal(name)
			if i > 0 {
				key = slices.Concat([]byte{','}, key)
			}
			_, writeErr := w.Write(append(key, ':'))
			if err = cmp.Or(err, keyErr, writeErr, lines.Encode(k)); err != nil {
				return err
			}
		}
		_, endErr := w.WriteString("}\n")
		return cmp.Or(endErr, w.Flush())
	}
}

func keptOf(d *isolation.Direction, numbers map[*iprange.Range]int) *keptDirection {
	if d == nil {
		return nil
	}
	k := &keptDirection{}
	for _, r := range d.Allow {
		rule := keptRule{Services: r.Services}
		if len(r.Peers) > 0 {
			rule.Peers.number = numbers[&r.Peers[0]]
		}
		k.Allow = append(k.Allow, rule)
	}
	return k
}

// podsOf returns the pods of a record.
func podsOf(kept map[string]keptPod) (map[string]podRules, error) {
	pods, shared, all := map[string]podRules{}, sharedPeers{}, kept[spokenPod].Peers
	for i := range all {
		all[i] = iprange.Union(all[i])
	}
	direction := func(k *keptDirection) (*isolation.Direction, error) {
		if k == nil {
			return nil, nil
		}
		d := &isolation.Direction{}
		for _, r := range k.Allow {
			rule, n := isolation.Rule{Peers: iprange.Union(r.Peers.peers), Services: r.Services}, r.Peers.number // an earlier version kept prefixes
			if n < 0 || n > len(all) {
				return nil, fmt.Errorf("peers %d: want up to %d", n, len(all))
			}
			if n > 0 {
				rule.Peers = all[n-1]
			}
			d.Allow = append(d.Allow, rule)
		}
		return d, nil
	}
	for name, k := range kept {
		if name == spokenPod {
			continue
		}
		pod := podRules{UID: k.UID, Node: k.Node, Addresses: k.Addresses}
		var ingressErr, egressErr error
		pod.Ingress, ingressErr = direction(k.Ingress)
		pod.Egress, egressErr = direction(k.Egress)
		if err := errors.Join(ingressErr, egressErr); err != nil {
			return nil, fmt.Errorf("pod %s: %w", name, err)
		}
		if len(all) == 0 { // it is of an earlier version
			shared.share(pod)
		}
		pods[name] = pod
	}
	return pods, nil
}
