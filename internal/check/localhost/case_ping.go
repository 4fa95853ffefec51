package localhost

import (
	"fmt"

	"unnest/internal/check/localhost/agent"
)

// pingCases ask whether every fraction answers itself, and nobody else does.
var pingCases = []Case{
	{"ping", "every-request-has-one-reply", true, both, pingEach(56)},
	{"ping", "large-requests-have-one-reply", true, both, pingEach(60000)},
}

func pingEach(size int) func(*trial) error {
	return func(t *trial) error {
		return t.eachPings(t.loopback, size)
	}
}

// eachPings lets them ping in turn: on one loopback they would see each other's
// replies, and have no room for all.
func (t *trial) eachPings(address string, size int) error {
	for _, f := range t.fractions {
		if err := t.pings(f, address, size); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) pings(f *fraction, address string, size int) error {
	const times = 5
	got, err := do(t, f, agent.Ping{Address: address, Times: times, Size: size})
	if err != nil {
		return err
	}
	if got.Replies != times || got.Duplicates != 0 {
		return fmt.Errorf("%s: ping %s: %d requests had %d replies and %d duplicates", f, address, times, got.Replies, got.Duplicates)
	}
	return nil
}
