package localhost

import (
	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// pingCases check that every ping has exactly one reply.
var pingCases = []testCase{
	{"every-request-has-one-reply", true, both, func(t *trial) { t.eachPings(t.loopback, 56) }},
	{"large-requests-have-one-reply", true, both, func(t *trial) { t.eachPings(t.loopback, 60000) }},
}

// eachPings lets the fractions ping one after the other. On one loopback, concurrent pings
// see each other's replies, and the socket buffers are too small for all of them.
func (t *trial) eachPings(address string, size int) {
	const times = 5
	for _, f := range t.fractions {
		got := do(t, f, agent.Ping{Address: address, Times: times, Size: size})
		if got.Replies != times || got.Duplicates != 0 {
			check.Failf("%s: ping %s: %d requests had %d replies and %d duplicates", f, address, times, got.Replies, got.Duplicates)
		}
	}
}
