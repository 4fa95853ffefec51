// Package workload has the network benchmark tools, and applications that are loaded over a
// network: for each one the command lines of its server and client, and the parser of the
// client's output.
//
// It is pure: it builds argument lists and parses bytes. Running commands, choosing sizes
// and repetitions, and reading CPU time (package cputime) do not belong here.
package workload

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// Protocol is the transport protocol that carries the messages.
type Protocol string

// The transport protocols.
const (
	UDP Protocol = "udp"
	TCP Protocol = "tcp"
)

// Params are the parameters of one execution. Call the other methods of a workload only
// with params that its Validate accepts.
type Params struct {
	Protocol Protocol      // UDP or TCP
	Size     int           // bytes of one message, without headers; of a value or a file
	Duration time.Duration // of the load, whole seconds
	Warmup   time.Duration // of load before Duration, left out of the results, whole seconds
	NoDelay  bool          // iperf3 over TCP: send each message at once (TCP_NODELAY)

	// Of the load of an application; 0: that of Bacou et al. 2019, Table 1.
	Threads     int // of the load generator
	Connections int // open at the same time, over all threads
	Rate        int // requests/s, sent by a schedule; 0: each connection sends when it has its answer

	// Of the load of domains: see package collocation.
	Intensity int // percent of the full load; 0: the load is raised until the throughput falls
	Step      int // requests/s by which the load is raised; 0: it doubles first
	Clients   int // addresses that the requests come from; 0: 1
}

// Endpoint is where a server listens or a client connects.
type Endpoint struct {
	Address string // IPv4 address; empty in a server: all addresses
	Port    int
}

// Port is a port of the server that the client must reach; a container engine publishes
// it.
type Port struct {
	Protocol Protocol
	Number   int
}

// Value is one measured value of a metric, finite and not negative.
type Value struct {
	Metric string
	Value  float64
}

// Output is the result of one execution of a client.
type Output struct {
	Values []Value // a subset of the workload's Metrics, in their order
	// Operations is the number of round trips or received messages of the whole
	// execution, including the warm-up, because CPU time is read over the whole
	// execution.
	Operations float64
}

// Workload is one benchmark tool, with a server in the system under test and a client
// that loads it.
type Workload interface {
	// Name is the name in experiment files. Without Programs, it is that of the binary that
	// client and server need.
	Name() string
	// Programs are the paths of the server's programs in guests and containers, if those that
	// every container has are not enough. The client is then Generator, which says when it is
	// Prepared, and waits to be told to begin.
	Programs() []string
	// Validate returns an error that names the first invalid param.
	Validate(p Params) error
	// Metrics lists the metrics that Parse can return.
	Metrics(p Params) []result.Metric
	// Primary is the metric of the case in tables.
	Primary(p Params) string
	// Server is the command of the server, which serves one client after another until it
	// is killed.
	Server(p Params, listen Endpoint) []string
	// Ready is the text that the server prints when it accepts clients.
	Ready() string
	// Ports lists the ports that a client must reach when the server listens on port.
	Ports(p Params, port int) []Port
	// Client is the command of the client.
	Client(p Params, target Endpoint) []string
	// Lead is the minimum time that the client idles before it loads the network. During
	// this time another client may be measured.
	Lead() time.Duration
	// Wall is the expected duration of the client, including Lead.
	Wall(p Params) time.Duration
	// Parse parses the standard output of the client, also of one that exited with an
	// error: the output has the reason, and not every tool exits with an error when it
	// fails. Errors name the tool and quote the decisive line.
	Parse(p Params, stdout []byte) (Output, error)
	// VersionArgs is the command that prints the version of the tool.
	VersionArgs() []string
	// ParseVersion parses the output of VersionArgs.
	ParseVersion(output []byte) (string, error)
}

// File is a file that no Debian package has: of Maven Central, or built.
type File struct {
	Built  string // name among the files that make builds
	Make   string // the target of make that builds it
	Maven  string // coordinates on Maven Central, group:artifact:version of a jar
	SHA256 string // of its content, in hexadecimal
	Path   string // in guests and containers
}

// Extra is what a workload needs that no guest has.
type Extra struct {
	Packages []string // of Debian
	Bookworm bool     // Debian 13 does not have Packages
	Files    []File
	Derived  Derived
	// Alone means that the server runs only while its client does, because it takes memory and
	// CPU time also when it has nothing to do.
	Alone bool
}

// Derived are files that a script makes of the other ones, once for each version of the packages.
type Derived struct {
	Script string   // for sh in the guests' root directory, with a loopback; its argument is an empty directory
	Paths  []string // of the files in guests and containers; the script makes one with each name
}

// ExtraOf returns what w needs that no guest has. The client of such a workload is Generator,
// and needs the same.
func ExtraOf(w Workload) Extra {
	if more, ok := w.(interface{ Extra() Extra }); ok {
		return more.Extra()
	}
	return Extra{}
}

// All returns all workloads, sorted by name.
func All() []Workload {
	return []Workload{newApache(), connect, echo, iperf3{}, newKafka(), newMemcached(), newNginx(), sockperf{}, stream}
}

// Lookup returns the workload called name, or an error that lists the names.
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

// validate checks the params that all workloads have: a known protocol, a size from
// minSize to maxSize bytes, and a duration in whole seconds, because both tools read it
// with atoi. iperf3 reads "0.5" as 0, which means forever.
func (p Params) validate(tool string, minSize, maxSize int) error {
	if p.Protocol != UDP && p.Protocol != TCP {
		return fmt.Errorf("%s: protocol %q: want udp or tcp", tool, string(p.Protocol))
	}
	if p.Size < minSize || p.Size > maxSize {
		return fmt.Errorf("%s: size %d: want %d to %d bytes", tool, p.Size, minSize, maxSize)
	}
	if p.Threads != 0 || p.Connections != 0 || p.Rate != 0 || p.ofDomains() {
		return fmt.Errorf("%s: options threads, connections and rate: leave them out, they are of applications", tool)
	}
	if p.Duration < time.Second || p.Duration%time.Second != 0 || p.Duration > maxDuration {
		return fmt.Errorf("%s: duration %v: want whole seconds, 1s to %v", tool, p.Duration, maxDuration)
	}
	return nil
}

// ofDomains reports whether a parameter is set that only the load of domains has.
func (p Params) ofDomains() bool { return p.Intensity != 0 || p.Step != 0 || p.Clients != 0 }

// maxDuration is the longest run that iperf3 takes (MAX_TIME, 86400 s).
const maxDuration = 24 * time.Hour

// seconds returns d in whole seconds.
func seconds(d time.Duration) int { return int(d / time.Second) }

// maxQuoted limits quotes of a tool's output in errors, in bytes.
const maxQuoted = 200

// Quote quotes line for an error, truncated to maxQuoted bytes.
func Quote(line []byte) string {
	line = bytes.TrimSpace(line)
	if len(line) > maxQuoted {
		line = line[:maxQuoted]
	}
	return strconv.Quote(string(line))
}

// lastLine returns the last line of output that is not blank.
func lastLine(output []byte) []byte {
	output = bytes.TrimSpace(output)
	return output[bytes.LastIndexByte(output, '\n')+1:]
}

// checkNumber returns an error unless v is finite and not negative.
func checkNumber(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return fmt.Errorf("%v is not a finite number of at least 0", v)
	}
	return nil
}

// finish returns an Output of valid values and operations.
func finish(tool string, values []Value, operations float64) (Output, error) {
	for _, v := range values {
		if err := checkNumber(v.Value); err != nil {
			return Output{}, fmt.Errorf("%s: read %s: %w", tool, v.Metric, err)
		}
	}
	if err := checkNumber(operations); err != nil || operations == 0 {
		return Output{}, fmt.Errorf("%s: %v operations: want a finite number over 0", tool, operations)
	}
	return Output{Values: values, Operations: operations}, nil
}

// parseVersion returns the first group of pattern in output.
func parseVersion(tool string, pattern *regexp.Regexp, output []byte) (string, error) {
	m := pattern.FindSubmatch(output)
	if m == nil {
		return "", fmt.Errorf("%s: no version in %s", tool, Quote(output))
	}
	return string(m[1]), nil
}
