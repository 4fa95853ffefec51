package networkpolicy

import (
	"crypto/sha256"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/netdev/isolation"
)

// sharedPeers are peers of rules by their iprange.Sum, so that pods with the same have them once.
type sharedPeers map[[sha256.Size]byte]*sharedRanges

type sharedRanges struct {
	ranges []iprange.Range
	users  int
}

// share has rules of a pod share the peers that other pods have.
func (s sharedPeers) share(p podRules) {
	for _, d := range []*isolation.Direction{p.Ingress, p.Egress} {
		if d == nil {
			continue
		}
		for i, r := range d.Allow {
			content := iprange.Sum(r.Peers)
			if s[content] == nil {
				s[content] = &sharedRanges{ranges: r.Peers}
			}
			d.Allow[i].Peers = s[content].ranges
		}
	}
}

// use counts further users of shared peers, or fewer, and returns the number of ranges that
// there are more now.
func (s sharedPeers) use(peers []iprange.Range, users int) (more int) {
	content := iprange.Sum(peers)
	shared := s[content]
	if shared.users == 0 {
		more = len(peers)
	}
	if shared.users += users; shared.users == 0 {
		delete(s, content)
		more -= len(peers)
	}
	return more
}
