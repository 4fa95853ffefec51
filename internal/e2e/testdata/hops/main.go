// Command hops records the times of messages: when the client sends a message, when its frame
// passes links, when the server receives it, and the same for the answer. It executes requests in
// JSON lines and answers each with a line. Times of one kernel are on one clock, its monotonic
// clock, in ns.
//
// Messages are numbered, see message.go. Messages of the warm-up leave no times.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"runtime/debug"
)

// request is one of:
//
//   - serve: answer messages to Address, until the end of hops;
//   - ask: send Warmup messages, then Count messages of Size bytes to Address, each after the
//     answer to the previous one;
//   - stamp: record the times at which frames of messages pass Links, until collect;
//   - collect: return all times since the last collect;
//   - cost: return the cost of eBPF programs since the last cost, and enable the kernel's
//     statistics of them if Count is not 0.
type request struct {
	Do      string   `json:"do"`
	Address string   `json:"address"`
	Size    int      `json:"size"`
	Warmup  int      `json:"warmup"`
	Count   int      `json:"count"`
	Links   []string `json:"links"`
}

// reply is the answer to a request. Times are by point, such as "lo in request", and by the
// number of the message; 0: the message did not pass the point.
type reply struct {
	Error string             `json:"error,omitempty"`
	Times map[string][]int64 `json:"times,omitempty"`
	Costs map[string]cost    `json:"costs,omitempty"`
}

func main() {
	log.SetFlags(0)
	// A thread that waits in the kernel occupies a processor of the runtime, which blocks
	// garbage collection. There is little garbage.
	runtime.GOMAXPROCS(4)
	debug.SetGCPercent(-1)
	if err := execute(os.Stdin, os.Stdout); err != nil {
		log.Fatal("hops: ", err)
	}
}

// execute executes the requests in in until in ends.
func execute(in io.Reader, out io.Writer) error {
	a := &agent{times: times{}}
	answers := json.NewEncoder(out)
	for requests := json.NewDecoder(in); ; {
		var o request
		if err := requests.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		var r reply
		if err := a.do(o, &r); err != nil {
			r.Error = fmt.Sprintf("%s: %v", o.Do, err)
		}
		if err := answers.Encode(r); err != nil {
			return fmt.Errorf("send a reply: %w", err)
		}
	}
}

// agent holds what requests have started.
type agent struct {
	times  times
	server *server
	stamps *stamps
	stats  io.Closer // disables the kernel's statistics of programs
}

func (a *agent) do(o request, r *reply) (err error) {
	switch o.Do {
	case "serve":
		a.server, err = serve(o.Address)
	case "ask":
		err = ask(o, a.times)
	case "stamp":
		a.stamps, err = stamp(o.Links)
	case "collect":
		err = a.collect(r)
	case "cost":
		err = a.cost(o.Count != 0, r)
	default:
		err = errors.New("unknown request")
	}
	return err
}

func (a *agent) collect(r *reply) error {
	if a.server != nil {
		a.server.collect(a.times)
	}
	var err error
	if a.stamps != nil {
		err = a.stamps.collect(a.times)
		a.stamps = nil
	}
	r.Times, a.times = a.times, times{}
	return err
}

// times are by point and number of the message.
type times map[string][]int64

// set records when a message first passed a point.
func (t times) set(place string, number int, at int64) {
	for len(t[place]) <= number {
		t[place] = append(t[place], 0)
	}
	if t[place][number] == 0 {
		t[place][number] = at
	}
}
