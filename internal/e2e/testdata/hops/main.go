// Command hops takes the times of messages on their way: when a client sends one, when
// its frame passes links, when the server has it, and the same of its answer. It obeys
// orders of JSON, one a line, and answers each by a line. What is in one kernel is on
// one clock, its monotonic one, in ns.
//
// A message of a ping-pong is numbered; see message.go. Those of the warm-up leave no
// times.
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

// order is what to do:
//
//   - serve: answer messages to Address, until the end;
//   - ask: send Count messages of Size bytes to Address after Warmup others, each when
//     the one before is answered;
//   - stamp: take the times at which frames of messages pass Links, until collect;
//   - collect: say all times since the last;
//   - cost: say what eBPF programs have cost so far, and keep account of it from now
//     on if Count is not 0.
type order struct {
	Do      string   `json:"do"`
	Address string   `json:"address"`
	Size    int      `json:"size"`
	Warmup  int      `json:"warmup"`
	Count   int      `json:"count"`
	Links   []string `json:"links"`
}

// reply is the answer to an order. Times are by place, such as "lo in request", and
// number of the message; 0 where it did not come by.
type reply struct {
	Error string             `json:"error,omitempty"`
	Times map[string][]int64 `json:"times,omitempty"`
	Costs map[string]cost    `json:"costs,omitempty"`
}

func main() {
	log.SetFlags(0)
	// A thread that waits in the kernel keeps one of the runtime's processors, and
	// garbage cannot be collected meanwhile; there is not much.
	runtime.GOMAXPROCS(4)
	debug.SetGCPercent(-1)
	if err := obey(os.Stdin, os.Stdout); err != nil {
		log.Fatal("hops: ", err)
	}
}

// obey carries out the orders in in until it ends.
func obey(in io.Reader, out io.Writer) error {
	a := &agent{times: times{}}
	answers := json.NewEncoder(out)
	for orders := json.NewDecoder(in); ; {
		var o order
		if err := orders.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		var r reply
		if err := a.do(o, &r); err != nil {
			r.Error = fmt.Sprintf("%s: %v", o.Do, err)
		}
		if err := answers.Encode(r); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// agent is what orders have begun.
type agent struct {
	times  times
	server *server
	stamps *stamps
	stats  io.Closer // of the kernel's account of programs
}

func (a *agent) do(o order, r *reply) (err error) {
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
		err = errors.New("there is no such order")
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

// times are by place and number of the message.
type times map[string][]int64

// set notes when a message came by a place, unless it did before.
func (t times) set(place string, number int, at int64) {
	for len(t[place]) <= number {
		t[place] = append(t[place], 0)
	}
	if t[place][number] == 0 {
		t[place][number] = at
	}
}
