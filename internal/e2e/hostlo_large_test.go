//go:build chaos

package e2e

import (
	"cmp"
	"os"
	"regexp"
	"testing"
	"time"

	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/testbed/fleet"
)

// largeCases are the cases of load. UNNEST_LOCALHOST_CASES selects others.
const largeCases = `^(tcp|udp)/.*/(many-short-|simultaneous-|thousands-|outgoing-|held-|burst-)|^own/.*/(many-short-|thousands-|burst-)`

// TestHostloLarge runs the localhost cases of load in full size, over a pod with a fraction in
// each of several guests. make e2e TEST=TestHostloLarge runs it.
func TestHostloLarge(t *testing.T) {
	n := newNodes(t, nil)
	p := &splitPod{nodes: n}
	p.in = n.bootAll(hostloGuests(t), fleet.Options{Slots: 4})
	for _, m := range p.in {
		m.put("unnest-localhost")
		m.fraction(podName, podSegment)
		m.ownAddresses(podName)
	}
	o := localhost.Options{
		Only: regexp.MustCompile(cmp.Or(os.Getenv("UNNEST_LOCALHOST_CASES"), largeCases)), Skip: regexp.MustCompile(outsideCases),
		Large: true, Patience: time.Minute,
	}
	for _, out := range p.try(t, p.in, podName, o) {
		if out.Verdict() != localhost.Pass {
			t.Errorf("%s: %s: %v", out.Case, out.Verdict(), out.Err)
		}
	}
	for f, c := range p.segment(t).Counts {
		t.Logf("fraction %d: %+v", f, c)
	}
}
