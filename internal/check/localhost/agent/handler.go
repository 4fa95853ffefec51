package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
)

// handler executes a request.
type handler func(j *job, with json.RawMessage) (any, error)

// handlers has a handler for each request, by the name on the wire; names has that name, by
// the type of the request. init fills them, because handlers refer to them.
var (
	handlers = map[string]handler{}
	names    = map[reflect.Type]string{}
)

func init() {
	on("about", (*job).about)
	on("serve", (*job).serve)
	on("stop", (*job).stop)
	on("resume", (*job).resume)
	on("report", (*job).report)
	on("connect", (*job).connect)
	on("datagrams", (*job).datagrams)
	on("pour", (*job).pour)
	on("segments", (*job).segments)
	on("hold", (*job).hold)
	on("exchange", (*job).exchange)
	on("await-end", (*job).awaitEnd)
	on("abort", (*job).abort)
	on("transfer", (*job).transfer)
	on("bind", (*job).bind)
	on("ping", (*job).ping)
	on("traffic", (*job).traffic)
	on("look", (*job).look)
	on("run", (*job).run)
	on("fetch", (*job).fetch)
	on("call-grpc", (*job).callGRPC)
}

// on registers the handler of a request.
func on[R Request[A], A any](name string, do func(*job, R) (A, error)) {
	names[reflect.TypeFor[R]()] = name
	handlers[name] = func(j *job, with json.RawMessage) (any, error) {
		var r R
		d := json.NewDecoder(bytes.NewReader(with))
		d.DisallowUnknownFields()
		if err := d.Decode(&r); err != nil {
			return nil, fmt.Errorf("read request %s: %w: the agent is of another version", name, err)
		}
		return do(j, r)
	}
}
