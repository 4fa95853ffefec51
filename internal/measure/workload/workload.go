// Package workload knows the benchmark tools: for each one the command line of
// its server and of its client, and the parser of what the client prints.
//
// It is pure: it builds argument lists and reads bytes. Running commands, and
// deciding which sizes and how many repetitions to run, does not belong here,
// nor does CPU time, which package cputime reads.
package workload

import (
	"fmt"
	"strings"
	"time"

	"unnest/internal/measure/result"
)

// Protocol is the transport protocol that carries the messages.
type Protocol string

// The transport protocols.
const (
	UDP Protocol = "udp"
	TCP Protocol = "tcp"
)

// Params are the knobs of one execution. A workload's Validate says which
// combinations it takes; the other methods may be called on valid params only.
type Params struct {
	Protocol Protocol      // UDP or TCP
	Size     int           // bytes of one message, without headers
	Duration time.Duration // how long the client loads the network, whole seconds
	Warmup   time.Duration // load before Duration that is left out of the results, whole seconds
	NoDelay  bool          // iperf3 over TCP: send each message at once (TCP_NODELAY)
}

// Endpoint is where a server listens or a client connects.
type Endpoint struct {
	Address string // IPv4 address; empty in a server: every address
	Port    int
}

// Port is a port that the network must let through to the server, such as one
// that a container engine publishes.
type Port struct {
	Protocol Protocol
	Number   int
}

// Value is one measured value of a metric, always finite and not negative.
type Value struct {
	Metric string
	Value  float64
}

// Output is what one execution of a client measured.
type Output struct {
	Values []Value // a subset of the workload's Metrics, in their order
	// Operations is how many units of work the whole execution did, warm-up
	// included, because CPU time is read over the whole execution. The
	// workload's Operation names the unit.
	Operations float64
}

// Workload is one benchmark tool: a server beside the system under test and a
// client that loads it.
type Workload interface {
	// Name is what an experiment file calls the workload.
	Name() string
	// Tool is the program that both the client's and the server's place need.
	Tool() string
	// Operation names the unit that Output.Operations counts.
	Operation() string
	// Validate returns an error that names the first unusable param.
	Validate(p Params) error
	// Metrics lists every metric that Parse may yield.
	Metrics(p Params) []result.Metric
	// Primary is the metric that stands for the case in tables.
	Primary(p Params) string
	// Server is the command of the server. It serves one client after another
	// until it is killed.
	Server(p Params, listen Endpoint) []string
	// Ready is the text that the server writes to its standard output once it
	// takes clients.
	Ready() string
	// Ports lists what a client has to reach when the server listens on port.
	Ports(p Params, port int) []Port
	// Client is the command of the client. It ends by itself.
	Client(p Params, target Endpoint) []string
	// Lead is how long the client idles, at least, before it loads the network.
	// Meanwhile another client may be measured.
	Lead() time.Duration
	// Wall is how long the client takes when all goes well, Lead included.
	Wall(p Params) time.Duration
	// Parse reads the standard output of the client. Call it for a client that
	// exited with an error too: the output says why, and not every tool exits
	// with an error when it has one. Errors name the tool and quote the line
	// that decides.
	Parse(p Params, stdout []byte) (Output, error)
	// VersionArgs is the command that prints the tool's version.
	VersionArgs() []string
	// ParseVersion reads the version from what VersionArgs prints.
	ParseVersion(output []byte) (string, error)
}

// All returns every workload, sorted by name.
func All() []Workload {
	return []Workload{iperf3{}, sockperf{}}
}

// Lookup returns the workload called name, or an error that lists the names
// there are.
func Lookup(name string) (Workload, error) {
	var known []string
	for _, w := range All() {
		if w.Name() == name {
			return w, nil
		}
		known = append(known, w.Name())
	}
	return nil, fmt.Errorf("workload %q: unknown, want one of %s", name, strings.Join(known, ", "))
}
