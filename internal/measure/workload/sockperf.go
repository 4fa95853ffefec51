package workload

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// sockperf runs sockperf's ping-pong: the client sends one message, waits for its echo and
// sends the next, like UDP_RR and TCP_RR of netperf. Latencies are whole round trips
// (--full-rtt), not half ones.
//
// These options of sockperf 3.7 are not used: --no-rdtsc in the client makes the warm-up
// longer by the TSC frequency in GHz, and a 1 s run then ends without a valid
// observation; the server reads no clock. --dontwarmup only stops multicast dummies. No
// option shortens the sleep of 2 s before the test, or the first 400 ms and last 50 ms
// that the statistics leave out. Only one message is in flight, so the default buffers
// suffice.
type sockperf struct{}

const (
	sockperfMinSize = 14    // header of a message
	sockperfMaxSize = 65507 // largest message that a server accepts by default

	sockperfWarmup   = 400 * time.Millisecond // left out of the statistics at the start
	sockperfCooldown = 50 * time.Millisecond  // left out at the end
	// sockperfLead is the time before the first message: 0.1 s to calibrate the TSC, and a sleep of 2 s.
	sockperfLead = 2100 * time.Millisecond
	// sockperfOverhead is the wall time of a client beyond -t: the lead, 0.1 s for late replies,
	// process start.
	sockperfOverhead = 2250 * time.Millisecond
	// stallLimit, plus two of the longest round trips, is the wait for an echo at the end
	// of a run after which the message counts as lost.
	stallLimit = 50 * time.Millisecond
	// tailObservations is the number of observations beyond a percentile that is needed
	// to report it: p99 needs 1000 round trips, p99.9 needs 10000.
	tailObservations = 10
)

func (sockperf) Name() string { return "sockperf" }

func (sockperf) Programs() []string { return nil }

// Ready is the end of the line that sockperf flushes before its receive loop.
func (sockperf) Ready() string { return "to block on socket(s)" }

func (sockperf) Validate(p Params) error {
	if err := p.validate("sockperf", sockperfMinSize, sockperfMaxSize); err != nil {
		return err
	}
	if p.Warmup != 0 {
		return fmt.Errorf("sockperf: warmup %v: leave it out, sockperf always ignores the first %v", p.Warmup, sockperfWarmup)
	}
	if p.NoDelay {
		return fmt.Errorf("sockperf: nodelay: leave it out, ping-pong always sets TCP_NODELAY")
	}
	return nil
}

func (sockperf) Metrics(p Params) []result.Metric {
	var metrics []result.Metric
	for _, name := range []string{"latency_mean", "latency_p50", "latency_p99", "latency_p999", "latency_stddev"} {
		metrics = append(metrics, result.Metric{Name: name, Unit: "us", Order: result.LIB})
	}
	metrics = append(metrics, result.Metric{Name: "transaction_rate", Unit: "transactions/s", Order: result.HIB})
	if p.Protocol == UDP {
		for _, name := range []string{"lost", "duplicated", "out_of_order"} {
			metrics = append(metrics, result.Metric{Name: name, Unit: "messages", Order: result.LIB})
		}
	}
	return metrics
}

func (sockperf) Primary(Params) string { return "latency_mean" }

func (sockperf) Server(p Params, listen Endpoint) []string {
	args := []string{"sockperf", "server", "-p", strconv.Itoa(listen.Port)}
	if listen.Address != "" {
		args = append(args, "-i", listen.Address)
	}
	return appendTCP(args, p)
}

func (sockperf) Ports(p Params, port int) []Port { return []Port{{p.Protocol, port}} }

func (sockperf) Client(p Params, target Endpoint) []string {
	args := []string{"sockperf", "ping-pong",
		"-i", target.Address, "-p", strconv.Itoa(target.Port),
		"-m", strconv.Itoa(p.Size), "-t", strconv.Itoa(seconds(p.Duration)), "--full-rtt"}
	return appendTCP(args, p)
}

func appendTCP(args []string, p Params) []string {
	if p.Protocol == TCP {
		return append(args, "--tcp")
	}
	return args
}

func (sockperf) Lead() time.Duration { return sockperfLead }

func (sockperf) Wall(p Params) time.Duration { return p.Duration + sockperfOverhead }

func (sockperf) VersionArgs() []string { return []string{"sockperf", "--version"} }

var sockperfVersion = regexp.MustCompile(`sockperf, version (\S+)`)

func (sockperf) ParseVersion(output []byte) (string, error) {
	return parseVersion("sockperf", sockperfVersion, output)
}

// Parse parses the statistics of a run. A lost UDP message ends a ping-pong: the client
// waits for its echo until the end, and sockperf does not count it as dropped. The valid
// duration is then too short, and Parse adds 1 to "lost"; the earlier latencies are
// valid. After a duplicated message two are in flight, so later latencies are not those
// of a ping-pong.
func (sockperf) Parse(p Params, stdout []byte) (Output, error) {
	r, err := readSockperf(stdout)
	if err != nil {
		return Output{}, fmt.Errorf("sockperf: %w", err)
	}
	values := []Value{{"latency_mean", r.mean}, {"latency_p50", r.p50}}
	if r.observations >= 100*tailObservations {
		values = append(values, Value{"latency_p99", r.p99})
	}
	if r.observations >= 1000*tailObservations {
		values = append(values, Value{"latency_p999", r.p999})
	}
	values = append(values, Value{"latency_stddev", r.stddev}, Value{"transaction_rate", r.valid / r.validSeconds})
	if p.Protocol == UDP {
		values = append(values, Value{"lost", r.dropped + r.stalled()}, Value{"duplicated", r.duplicated}, Value{"out_of_order", r.outOfOrder})
	}
	return finish("sockperf", values, r.received)
}

// sockperfRun is the output of one run: times in µs unless named otherwise, counts in
// messages.
type sockperfRun struct {
	runSeconds, received     float64
	validSeconds, valid      float64
	mean, stddev             float64
	dropped, duplicated      float64
	outOfOrder, observations float64
	longest, p999, p99, p50  float64
}

// stalled returns 1 if the client was waiting for an echo at the end, else 0.
func (r sockperfRun) stalled() float64 {
	expected := r.runSeconds - (sockperfWarmup + sockperfCooldown).Seconds()
	if expected-r.validSeconds > stallLimit.Seconds()+2*r.longest/1e6 {
		return 1
	}
	return 0
}

var (
	ansiColor = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	// sockperfFailure finds the line with the reason for missing statistics.
	sockperfFailure = regexp.MustCompile(`(?m)^.*(?:ERROR|No valid observations|No messages were|Invalid|errno=).*$`)

	sockperfTotal = regexp.MustCompile(`\[Total Run\] RunTime=(\S+) sec;.* ReceivedMessages=(\d+)`)
	sockperfValid = regexp.MustCompile(`\[Valid Duration\] RunTime=(\S+) sec;.* ReceivedMessages=(\d+)`)
)

// sockperfFields are the numbers in the output of sockperf.
var sockperfFields = []struct {
	what    string
	pattern *regexp.Regexp
	into    func(r *sockperfRun) []*float64
}{
	{"total run", sockperfTotal, func(r *sockperfRun) []*float64 { return []*float64{&r.runSeconds, &r.received} }},
	{"valid duration", sockperfValid, func(r *sockperfRun) []*float64 { return []*float64{&r.validSeconds, &r.valid} }},
	{"mean round trip (avg-rtt)", regexp.MustCompile(`====> avg-rtt=(\S+) \(std-dev=([^\s,)]+)`),
		func(r *sockperfRun) []*float64 { return []*float64{&r.mean, &r.stddev} }},
	{"dropped messages", regexp.MustCompile(`# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)`),
		func(r *sockperfRun) []*float64 { return []*float64{&r.dropped, &r.duplicated, &r.outOfOrder} }},
	{"observations", regexp.MustCompile(`Total (\d+) observations`), func(r *sockperfRun) []*float64 { return []*float64{&r.observations} }},
	{"longest observation", regexp.MustCompile(`<MAX> observation = +(\S+)`), func(r *sockperfRun) []*float64 { return []*float64{&r.longest} }},
	{"percentile 50", regexp.MustCompile(`percentile 50\.000 = +(\S+)`), func(r *sockperfRun) []*float64 { return []*float64{&r.p50} }},
	{"percentile 99", regexp.MustCompile(`percentile 99\.000 = +(\S+)`), func(r *sockperfRun) []*float64 { return []*float64{&r.p99} }},
	{"percentile 99.9", regexp.MustCompile(`percentile 99\.900 = +(\S+)`), func(r *sockperfRun) []*float64 { return []*float64{&r.p999} }},
}

// readSockperf finds the numbers of a run in its output.
func readSockperf(stdout []byte) (sockperfRun, error) {
	var r sockperfRun
	text := ansiColor.ReplaceAll(stdout, nil)
	for _, f := range sockperfFields {
		if err := scan(text, f.what, f.pattern, f.into(&r)); err != nil {
			return sockperfRun{}, err
		}
	}
	if r.valid == 0 || r.observations == 0 || r.validSeconds == 0 {
		return sockperfRun{}, fmt.Errorf("no valid observations in %s: increase the duration", Quote(sockperfValid.Find(text)))
	}
	return r, nil
}

// scan stores the groups of the first match of pattern in text as numbers.
func scan(text []byte, what string, pattern *regexp.Regexp, into []*float64) error {
	m := pattern.FindSubmatch(text)
	if m == nil {
		return missing(text, what)
	}
	for i, v := range into {
		var err error
		if *v, err = strconv.ParseFloat(string(m[i+1]), 64); err == nil {
			err = checkNumber(*v)
		}
		if err != nil {
			return fmt.Errorf("read %s from %s: %w", what, Quote(m[0]), err)
		}
	}
	return nil
}

// missing returns the reason why text has no line for what.
func missing(text []byte, what string) error {
	line := sockperfFailure.Find(text)
	switch {
	case line == nil && len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("no output")
	case line == nil:
		return fmt.Errorf("no line for the %s, output ends with %s", what, Quote(lastLine(text)))
	}
	if total := sockperfTotal.Find(text); total != nil {
		return fmt.Errorf("%s after %s: a lost message ends a ping-pong; check whether the network drops messages, or increase the duration", Quote(line), Quote(total))
	}
	return fmt.Errorf("%s", Quote(line))
}
