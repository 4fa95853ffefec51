package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// handler carries out an order of one verb.
type handler func(j *job, with json.RawMessage) (any, error)

// verbs are all that an agent can do. It is filled by init, because handlers reach
// back to it.
var verbs = map[string]handler{}

func init() {
	on((*job).about)
	on((*job).serve)
	on((*job).stop)
	on((*job).resume)
	on((*job).report)
	on((*job).connect)
	on((*job).datagrams)
	on((*job).pour)
	on((*job).segments)
	on((*job).hold)
	on((*job).exchange)
	on((*job).awaitEnd)
	on((*job).abort)
	on((*job).transfer)
	on((*job).bind)
	on((*job).ping)
	on((*job).traffic)
	on((*job).look)
	on((*job).run)
	on((*job).fetch)
	on((*job).callGRPC)
}

// on enters an order's handler.
func on[O Order[A], A any](do func(*job, O) (A, error)) {
	var zero O
	verbs[zero.verb()] = func(j *job, with json.RawMessage) (any, error) {
		var o O
		d := json.NewDecoder(bytes.NewReader(with))
		d.DisallowUnknownFields()
		if err := d.Decode(&o); err != nil {
			return nil, fmt.Errorf("read the order %s: %w: is the agent of another version?", zero.verb(), err)
		}
		return do(j, o)
	}
}
