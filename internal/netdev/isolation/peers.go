package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"

	"unnest/internal/netdev/nft"
)

// peerSet returns the peers of a family, and the name of their set, which says what it has,
// so that ports with the same peers share it. "": no set is needed.
func peerSet(f family, all []netip.Prefix) (name string, peers []netip.Prefix) {
	for _, p := range all {
		if p.Addr().BitLen() == f.bits {
			peers = append(peers, p.Masked())
		}
	}
	if len(peers) == 0 || peers[0].Bits() == 0 {
		return "", peers
	}
	slices.SortFunc(peers, netip.Prefix.Compare)
	var text strings.Builder
	for _, p := range peers {
		text.WriteString(p.String() + " ")
	}
	sum := sha256.Sum256([]byte(text.String()))
	return fmt.Sprintf("peers%d-%s", f.version, hex.EncodeToString(sum[:16])), peers
}

// peerSets returns the peers of all rules by the names of their sets.
func peerSets(ports map[key]Port) map[string][]netip.Prefix {
	wanted := map[string][]netip.Prefix{}
	for _, p := range ports {
		for _, d := range []*Direction{p.Ingress, p.Egress} {
			if d == nil {
				continue
			}
			for _, r := range d.Allow {
				for _, f := range families {
					if name, peers := peerSet(f, r.Peers); name != "" {
						wanted[name] = peers
					}
				}
			}
		}
	}
	return wanted
}

// addPeers adds the sets of peers that the kernel does not have yet.
func (t *Table) addPeers(c *nftables.Conn, ports map[key]Port) error {
	var errs []error
	for name, peers := range peerSets(ports) {
		if t.peers[name] != nil {
			continue
		}
		f := families[0]
		if peers[0].Addr().Is6() {
			f = families[1]
		}
		s := nft.NewSet(t.id(), table, name, f.kind)
		s.Interval = true
		t.peers[name] = s
		errs = append(errs, c.AddSet(s, nil), nft.Change(c.SetAddElements, s, intervals(peers)))
	}
	return errors.Join(errs...)
}

// deletePeers deletes the sets of peers that no port needs.
func (t *Table) deletePeers(c *nftables.Conn, ports map[key]Port) {
	wanted := peerSets(ports)
	for name, s := range t.peers {
		if wanted[name] == nil {
			c.DelSet(s)
			delete(t.peers, name)
		}
	}
}

// intervals returns the elements of a set of prefixes: the first address of each, and the
// address behind its last one unless there is none.
func intervals(peers []netip.Prefix) (elements []nftables.SetElement) {
	for _, p := range peers {
		elements = append(elements, nftables.SetElement{Key: p.Addr().AsSlice()})
		if end := lastAddress(p).Next(); end.IsValid() {
			elements = append(elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return elements
}

func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := p.Bits(); i < len(bytes)*8; i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}
