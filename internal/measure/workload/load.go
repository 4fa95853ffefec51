package workload

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// Generator is the program that loads servers of applications, see package load: its path
// in guests and containers.
const Generator = "/usr/local/bin/unnest-load"

// Prepared is what the load generator prints to stderr when it has connected and the server has
// its data. It begins to load the server when it reads a line.
const Prepared = "prepared"

// WaitFlag makes the load generator wait until it reads a line.
const WaitFlag = "-wait"

// listening is what the servers' script prints when the server accepts connections. The
// servers themselves print nothing then.
const listening = "the server accepts connections"

// freePort takes a port from the arguments and refuses one that is in use.
const freePort = `port=$1; shift
listens() { busybox grep -qs "$(printf ':%04X 0*:0000 0A' "$port")" /proc/net/tcp /proc/net/tcp6; }
if listens; then echo "port $port is in use by another program"; exit 98; fi
`

// serverScript replaces itself with a server, the arguments behind its port, and prints
// listening when a socket listens on the port. It refuses a port that is in use, because the
// socket of another program would look like the server's.
const serverScript = freePort + `while kill -0 $$ 2>/dev/null; do listens && echo "` + listening + `" && exit; busybox sleep 0.1; done &
exec "$@"
`

// LoadReport is what the load generator prints, as JSON.
type LoadReport struct {
	Error     string              `json:"error,omitempty"` // why there is no result
	Seconds   float64             `json:"seconds"`         // that were measured
	Planned   float64             `json:"planned"`         // requests that the schedule has for these seconds; 0: no schedule
	Answers   float64             `json:"answers"`         // checked answers since the load was told to begin, with the warm-up
	Served    float64             `json:"served"`          // checked answers that came in the measured part, whenever their requests were due
	LateP99   float64             `json:"late_p99"`        // µs by which the generator handed out requests too late
	Latencies map[string]Latency  `json:"latencies"`       // by kind of request, and of all kinds together
	Naive     map[string]*Latency `json:"naive,omitempty"` // the same from the time at which a request was sent

	// Of a load that counts requests without an answer in place of ending at the first one.
	Failures   map[string]float64 `json:"failures,omitempty"`   // requests of the measured part, by cause
	Bytes      float64            `json:"bytes,omitempty"`      // that were sent and received for the served answers
	CPU        float64            `json:"cpu,omitempty"`        // seconds that the generator used during the load
	Elapsed    float64            `json:"elapsed,omitempty"`    // seconds of the load
	Processors int                `json:"processors,omitempty"` // that the generator may use

	// Of a load between two peers: their machines, the client's first, before and after the load.
	Before []MachineReading `json:"before,omitempty"`
	After  []MachineReading `json:"after,omitempty"`
}

// MachineReading is what the kernel of a machine counts.
type MachineReading struct {
	Boot string `json:"boot"` // ID of its boot: equal ones are of the same machine
	Stat string `json:"stat"` // the line cpu of /proc/stat
}

// The causes of requests without an answer.
const (
	Refused     = "refused"      // the server takes no connection
	TimedOut    = "timed out"    // no answer within the client's patience
	Reset       = "reset"        // the server closed the connection
	Wrong       = "wrong answer" // another status or content
	Descriptors = "no file descriptor"
	Ports       = "no local port"
	OtherCause  = "failed otherwise"
)

// The limits at which the generator, and not the server, bounds the load.
const (
	busyLimit = 0.9    // share of its processors
	lateLimit = 20_000 // µs by which it hands out 1 % of the requests too late
)

// Exhausted says what generators lack that run at the same time on the same processors, so that
// they cannot load the servers more. It is empty if they lack nothing.
func Exhausted(reports ...LoadReport) string {
	busy := 0.0
	for _, r := range reports {
		switch {
		case r.Failures[Descriptors] > 0:
			return "it has no more file descriptors: raise the limit by ulimit -n"
		case r.Failures[Ports] > 0:
			return "it has no more local ports: use more clients"
		}
		busy += r.Busy()
	}
	if busy >= busyLimit {
		return fmt.Sprintf("it uses %.0f %% of its processors", 100*busy)
	}
	return ""
}

// Limit says why the generators are not to be trusted: they are exhausted, or late, as on a busy
// machine. It is empty if they are neither.
func Limit(reports ...LoadReport) string {
	for _, r := range reports {
		if r.LateP99 >= lateLimit {
			return cmp.Or(Exhausted(reports...), fmt.Sprintf("it sends 1 %% of the requests %.0f ms or more too late", r.LateP99/1000))
		}
	}
	return Exhausted(reports...)
}

// Busy is the share of its processors that the generator used.
func (r LoadReport) Busy() float64 {
	if !(r.Elapsed > 0) {
		return 0
	}
	return r.CPU / (r.Elapsed * float64(max(r.Processors, 1)))
}

// AllRequests is the key of LoadReport for all kinds of requests together.
const AllRequests = "all"

// Latency describes the latencies of requests, in µs.
type Latency struct {
	Count  float64 `json:"count"`
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95,omitempty"` // of Kafka only
	P99    float64 `json:"p99"`
	P999   float64 `json:"p999"`
	Max    float64 `json:"max,omitempty"` // of Kafka only
}

// The limits of a load.
const (
	maxConnections = 1000 // the servers accept 1024
	maxThreads     = 64
	maxRate        = 1_000_000 // requests/s
	maxIntensity   = 1000      // percent
	MaxClients     = 100       // addresses of the generator
	// loadPreparation is about what a client takes to start, to connect and to store the
	// keys of memcached.
	loadPreparation = 500 * time.Millisecond
)

// load is the part that the workloads of applications have in common.
type load struct {
	name     string
	kinds    string // of requests, if there are several, with spaces between them
	threads  int    // defaults, see Params
	conns    int
	size     int
	maxSize  int
	openOnly bool // a rate is required
	domains  bool // it can load domains
}

func (l load) Name() string { return l.name }

func (load) Ready() string { return listening }

func (load) Ports(_ Params, port int) []Port { return []Port{{TCP, port}} }

func (load) Lead() time.Duration { return 0 }

func (load) Wall(p Params) time.Duration { return p.Warmup + p.Duration + loadPreparation }

func (l load) Validate(p Params) error {
	complain := func(format string, args ...any) error { return fmt.Errorf(l.name+": "+format, args...) }
	limits := []struct {
		name       string
		value, max int
	}{{"size", p.Size, l.maxSize}, {"threads", p.Threads, maxThreads}, {"connections", p.Connections, maxConnections}, {"rate", p.Rate, maxRate},
		{"intensities", p.Intensity, maxIntensity}, {"step", p.Step, maxRate}, {"clients", p.Clients, MaxClients}}
	for _, limit := range limits {
		if limit.value < 0 || limit.value > limit.max {
			return complain("%s %d: want 1 to %d", limit.name, limit.value, limit.max)
		}
	}
	switch {
	case p.Protocol != "" && p.Protocol != TCP:
		return complain("protocol %q: leave it out, it is tcp", string(p.Protocol))
	case p.Duration < time.Second || p.Duration > maxDuration:
		return complain("duration %v: want 1s to %v", p.Duration, maxDuration)
	case p.Warmup < 0 || p.Warmup > maxDuration:
		return complain("warmup %v: want 0s to %v", p.Warmup, maxDuration)
	case p.NoDelay:
		return complain("nodelay: leave it out, it is always set")
	case p.ofDomains() && !l.domains:
		return complain("options step and clients, and key intensities: leave them out, they are of the load of domains")
	case p.ofDomains() && p.Rate > 0:
		return complain("rate: leave it out, the load of domains is raised, or is a share of the full load")
	case l.openOnly && p.Rate == 0:
		return complain("rate is missing: give the requests per second")
	}
	return nil
}

// latencyMetrics are those of one kind of requests. Naive ones have no deviation, because they
// are shown for comparison only.
func latencyMetrics(prefix string, naive bool) (metrics []result.Metric) {
	for _, name := range []string{"mean", "p50", "p99", "p999", "stddev"} {
		if name != "stddev" || !naive {
			metrics = append(metrics, result.Metric{Name: prefix + "latency_" + name, Unit: "us", Order: result.LIB})
		}
	}
	return metrics
}

func (l load) Metrics(p Params) []result.Metric {
	metrics := slices.Concat(latencyMetrics("", false), []result.Metric{{Name: "response_rate", Unit: "responses/s", Order: result.HIB}})
	if p.Rate > 0 {
		metrics = append(metrics, result.Metric{Name: "reached", Unit: "%", Order: result.HIB})
		metrics = append(metrics, latencyMetrics("naive_", true)...)
		metrics = append(metrics, result.Metric{Name: "late_p99", Unit: "us", Order: result.LIB})
	}
	for _, kind := range strings.Fields(l.kinds) {
		metrics = append(metrics, result.Metric{Name: kind + "_rate", Unit: "responses/s", Order: result.HIB})
		metrics = append(metrics, latencyMetrics(kind+"_", false)...)
	}
	return metrics
}

// Primary is the latency under a constant rate, and otherwise the rate.
func (load) Primary(p Params) string {
	if p.Rate > 0 {
		return "latency_mean"
	}
	return "response_rate"
}

func (l load) Client(p Params, target Endpoint) []string {
	number := func(n, otherwise int) string { return strconv.Itoa(cmp.Or(n, otherwise)) }
	return []string{Generator, l.name, "-target", target.Address + ":" + strconv.Itoa(target.Port),
		"-threads", number(p.Threads, l.threads), "-connections", number(p.Connections, l.conns), "-size", number(p.Size, l.size),
		"-rate", strconv.Itoa(p.Rate), "-warmup", p.Warmup.String(), "-duration", p.Duration.String(), WaitFlag}
}

// Parse parses the report of the load generator.
func (l load) Parse(p Params, stdout []byte) (Output, error) {
	r, err := readLoad(stdout)
	if err != nil {
		return Output{}, fmt.Errorf("%s: %w", l.name, err)
	}
	all := r.Latencies[AllRequests]
	values := all.values("", false)
	values = append(values, Value{"response_rate", all.Count / r.Seconds})
	if p.Rate > 0 {
		if !(r.Planned > 0) || r.Naive[AllRequests] == nil {
			return Output{}, fmt.Errorf("%s: the report is of a load without a schedule", l.name)
		}
		values = append(values, Value{"reached", 100 * all.Count / r.Planned})
		values = append(values, r.Naive[AllRequests].values("naive_", true)...)
		values = append(values, Value{"late_p99", r.LateP99})
	}
	for _, kind := range strings.Fields(l.kinds) {
		one := r.Latencies[kind]
		values = append(values, Value{kind + "_rate", one.Count / r.Seconds})
		if one.Count > 0 {
			values = append(values, one.values(kind+"_", false)...)
		}
	}
	return finish(l.name, values, r.Answers)
}

func readLoad(stdout []byte) (r LoadReport, err error) {
	if len(bytes.TrimSpace(stdout)) == 0 {
		return r, errors.New("no output")
	}
	if err := json.Unmarshal(stdout, &r); err != nil {
		return r, fmt.Errorf("decode report that ends with %s: %w", Quote(lastLine(stdout)), err)
	}
	switch {
	case r.Error != "":
		return r, errors.New(string(bytes.Join(bytes.Fields([]byte(r.Error)), []byte(" "))))
	case !(r.Seconds > 0) || !(r.Latencies[AllRequests].Count > 0):
		if failed := r.FailedRequests(); failed != "" {
			return r, fmt.Errorf("no answer in the measured %v s: %s", r.Seconds, failed)
		}
		return r, fmt.Errorf("no answer in the measured %v s: increase the duration", r.Seconds)
	}
	return r, nil
}

// FailedRequests says how many requests have no answer, by cause: "12 refused, 3 timed out".
func (r LoadReport) FailedRequests() string {
	var all []string
	for _, cause := range slices.Sorted(maps.Keys(r.Failures)) {
		all = append(all, fmt.Sprintf("%.0f %s", r.Failures[cause], cause))
	}
	return strings.Join(all, ", ")
}

// values returns the metrics that have enough observations, see tailObservations.
func (y Latency) values(prefix string, naive bool) []Value {
	values := []Value{{prefix + "latency_mean", y.Mean}, {prefix + "latency_p50", y.P50}}
	if y.Count >= 100*tailObservations {
		values = append(values, Value{prefix + "latency_p99", y.P99})
	}
	if y.Count >= 1000*tailObservations {
		values = append(values, Value{prefix + "latency_p999", y.P999})
	}
	if !naive {
		values = append(values, Value{prefix + "latency_stddev", y.StdDev})
	}
	return values
}
