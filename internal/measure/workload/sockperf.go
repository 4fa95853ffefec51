package workload

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"unnest/internal/measure/result"
)

// sockperf runs sockperf's ping-pong: the client sends one message, waits for
// its echo and sends the next, as netperf's UDP_RR and TCP_RR do. Latencies are
// whole round trips (--full-rtt), not sockperf's half ones.
//
// Options not used, and why (sockperf 3.7): --no-rdtsc in the client makes the
// warm-up the TSC frequency in GHz times longer, and a 1 s run then ends with no
// valid observation; in the server it changes nothing, since the server reads
// no clock. --dontwarmup stops multicast dummies only. No option shortens the
// sleep of 2 s before the test or the first 400 ms and last 50 ms that are left
// out of the statistics. Buffers need no size: one message is under way at a
// time, and 16 KiB fits the defaults.
type sockperf struct{}

const (
	sockperfMinSize = 14    // header of a message
	sockperfMaxSize = 65507 // largest message that a server takes by default

	sockperfWarmup   = 400 * time.Millisecond // left out at the start of each run
	sockperfCooldown = 50 * time.Millisecond  // left out at its end
	sockperfLead     = 2 * time.Second        // a sleep that no option shortens
	// sockperfOverhead is the wall time of a client beyond its -t: 0.1 s to
	// calibrate the TSC, its sleep, 0.1 s for late replies, process start.
	sockperfOverhead = 2250 * time.Millisecond
	// stallLimit is how long a client waits for an echo at the end of a run,
	// beside two of its longest round trips, before the message counts as lost.
	stallLimit = 50 * time.Millisecond
	// tailObservations is how many observations must lie beyond a percentile
	// for it to be reported: p99 takes 1000 round trips, p99.9 takes 10000.
	tailObservations = 10
)

func (sockperf) Name() string      { return "sockperf" }
func (sockperf) Tool() string      { return "sockperf" }
func (sockperf) Operation() string { return "round trip" }

// Ready is the end of the line that sockperf flushes before its receive loop.
func (sockperf) Ready() string { return "to block on socket(s)" }

func (sockperf) Validate(p Params) error {
	if err := p.validate("sockperf", sockperfMinSize, sockperfMaxSize); err != nil {
		return err
	}
	if p.Warmup != 0 {
		return fmt.Errorf("sockperf: warmup %v: leave it out, the first %v of every run are left out anyway", p.Warmup, sockperfWarmup)
	}
	if p.NoDelay {
		return fmt.Errorf("sockperf: nodelay: leave it out, ping-pong always sets TCP_NODELAY")
	}
	return nil
}

func (sockperf) Metrics(p Params) []result.Metric {
	metrics := []result.Metric{
		{Name: "latency_mean", Unit: "us", Order: result.LIB},
		{Name: "latency_p50", Unit: "us", Order: result.LIB},
		{Name: "latency_p99", Unit: "us", Order: result.LIB},
		{Name: "latency_p999", Unit: "us", Order: result.LIB},
		{Name: "latency_stddev", Unit: "us", Order: result.LIB},
		{Name: "transaction_rate", Unit: "transactions/s", Order: result.HIB},
	}
	if p.Protocol == TCP {
		return metrics
	}
	return append(metrics,
		result.Metric{Name: "lost", Unit: "messages", Order: result.LIB},
		result.Metric{Name: "duplicated", Unit: "messages", Order: result.LIB},
		result.Metric{Name: "out_of_order", Unit: "messages", Order: result.LIB})
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

// Parse reads the statistics of a run. A lost UDP message ends a ping-pong: the
// client waits for its echo until the time is up, and sockperf does not count it
// as dropped. It shows as a valid duration that is too short, and is added to
// "lost" here; the latencies up to it stand. A duplicated message leaves two
// under way, so that latencies after it are not those of a ping-pong.
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

// sockperfRun is what one run printed: times in µs unless named otherwise,
// counts in messages.
type sockperfRun struct {
	runSeconds, received     float64
	validSeconds, valid      float64
	mean, stddev             float64
	dropped, duplicated      float64
	outOfOrder, observations float64
	longest, p999, p99, p50  float64
}

// stalled returns 1 if the client was still waiting for an echo when the time
// was up, else 0.
func (r sockperfRun) stalled() float64 {
	expected := r.runSeconds - (sockperfWarmup + sockperfCooldown).Seconds()
	if expected-r.validSeconds > stallLimit.Seconds()+2*r.longest/1e6 {
		return 1
	}
	return 0
}

var (
	ansiColor = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	// sockperfFailure finds the line that says why there are no statistics.
	sockperfFailure = regexp.MustCompile(`(?m)^.*(?:ERROR|No valid observations|No messages were|Invalid|errno=).*$`)

	sockperfTotal      = regexp.MustCompile(`\[Total Run\] RunTime=(\S+) sec;.* ReceivedMessages=(\d+)`)
	sockperfValid      = regexp.MustCompile(`\[Valid Duration\] RunTime=(\S+) sec;.* ReceivedMessages=(\d+)`)
	sockperfMean       = regexp.MustCompile(`====> avg-rtt=(\S+) \(std-dev=([^\s,)]+)`)
	sockperfAnomalies  = regexp.MustCompile(`# dropped messages = (\d+); # duplicated messages = (\d+); # out-of-order messages = (\d+)`)
	sockperfCount      = regexp.MustCompile(`Total (\d+) observations`)
	sockperfMax        = regexp.MustCompile(`<MAX> observation = +(\S+)`)
	sockperfPercentile = map[string]*regexp.Regexp{
		"50.000": regexp.MustCompile(`percentile 50\.000 = +(\S+)`),
		"99.000": regexp.MustCompile(`percentile 99\.000 = +(\S+)`),
		"99.900": regexp.MustCompile(`percentile 99\.900 = +(\S+)`),
	}
)

// readSockperf finds every number of a run in what sockperf printed.
func readSockperf(stdout []byte) (sockperfRun, error) {
	var r sockperfRun
	text := ansiColor.ReplaceAll(stdout, nil)
	fields := []struct {
		what    string
		pattern *regexp.Regexp
		into    []*float64
	}{
		{"total run", sockperfTotal, []*float64{&r.runSeconds, &r.received}},
		{"valid duration", sockperfValid, []*float64{&r.validSeconds, &r.valid}},
		{"mean round trip (avg-rtt)", sockperfMean, []*float64{&r.mean, &r.stddev}},
		{"dropped messages", sockperfAnomalies, []*float64{&r.dropped, &r.duplicated, &r.outOfOrder}},
		{"observations", sockperfCount, []*float64{&r.observations}},
		{"longest observation", sockperfMax, []*float64{&r.longest}},
		{"percentile 50", sockperfPercentile["50.000"], []*float64{&r.p50}},
		{"percentile 99", sockperfPercentile["99.000"], []*float64{&r.p99}},
		{"percentile 99.9", sockperfPercentile["99.900"], []*float64{&r.p999}},
	}
	for _, f := range fields {
		if err := scan(text, f.what, f.pattern, f.into); err != nil {
			return sockperfRun{}, err
		}
	}
	if r.valid == 0 || r.observations == 0 || r.validSeconds == 0 {
		return sockperfRun{}, fmt.Errorf("no valid observations in %s: lengthen the duration", Quote(sockperfValid.Find(text)))
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

// missing explains why text has no line for what.
func missing(text []byte, what string) error {
	line := sockperfFailure.Find(text)
	switch {
	case line == nil && len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("no output")
	case line == nil:
		return fmt.Errorf("no line for the %s, output ends with %s", what, Quote(lastLine(text)))
	}
	if total := sockperfTotal.Find(text); total != nil {
		return fmt.Errorf("%s after %s: a lost message ends a ping-pong, see whether the network drops any, or lengthen the duration", Quote(line), Quote(total))
	}
	return fmt.Errorf("%s", Quote(line))
}
