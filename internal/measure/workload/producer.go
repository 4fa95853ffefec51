package workload

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

// kafkaVersion matches the name of the jar that clients and broker share.
var kafkaVersion = regexp.MustCompile(`(?m)^kafka-clients-([\d.]+)\.jar$`)

// Produced is a summary of Kafka's producer performance tool: its latencies are in ms, from the
// time at which the tool hands a message to the producer.
type Produced struct {
	Messages float64 // that the broker acknowledged
	Rate     float64 // messages/s
	Latency  Latency
}

// producedLine is a summary. The part that follows the warm-up is called steady state.
var producedLine = regexp.MustCompile(`(?m)^(\d+)( steady state)? records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), ` +
	`([\d.]+) ms avg latency, ([\d.]+) ms max latency, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th\.\r?$`)

// ParseProduced returns the summary of what followed the warm-up from the output of the tool. It
// checks that the broker acknowledged all messages, and before of them in the warm-up.
func ParseProduced(output []byte, all, before int) (Produced, error) {
	var total, steady *Produced
	for _, m := range producedLine.FindAllSubmatch(output, -1) {
		one, err := produced(m)
		if err != nil {
			return Produced{}, err
		}
		if len(m[2]) > 0 {
			steady = &one
		} else {
			total = &one
		}
	}
	switch {
	case total == nil:
		return Produced{}, fmt.Errorf("the producer ended without a summary: %s", Quote(complaint(output)))
	case total.Messages != float64(all):
		return Produced{}, fmt.Errorf("the broker acknowledged %v of %d messages: %s", total.Messages, all, Quote(complaint(output)))
	case steady == nil || steady.Messages != float64(all-before) || !(steady.Rate > 0):
		return Produced{}, fmt.Errorf("the producer has no summary of the %d messages after its warm-up: %s", all-before, Quote(lastLine(output)))
	}
	return *steady, nil
}

func produced(m [][]byte) (p Produced, err error) {
	y := &p.Latency
	for i, into := range map[int]*float64{1: &p.Messages, 3: &p.Rate, 4: &y.Mean, 5: &y.Max, 6: &y.P50, 7: &y.P95, 8: &y.P99, 9: &y.P999} {
		if *into, err = strconv.ParseFloat(string(m[i]), 64); err != nil {
			return Produced{}, fmt.Errorf("read the producer's summary: %w", err)
		}
	}
	p.Latency.Count = p.Messages
	return p, nil
}

var exceptionLine = regexp.MustCompile(`(?m)^.*(Exception|Error|ERROR)\b.*$`)

// Complains reports whether the tool has printed an error. It goes on then, and waits for each
// further message.
func Complains(output []byte) bool { return exceptionLine.Match(output) }

// complaint returns the first line of output about an error, or else its last line.
func complaint(output []byte) []byte {
	if line := exceptionLine.Find(output); line != nil {
		return line
	}
	return lastLine(bytes.TrimSpace(output))
}

// aheadLimit is the share of the measured time by which the tool may end early: it counts in whole ms.
const aheadLimit = 0.01

// Report returns the summary as that of a load at a rate, in µs. The tool keeps to its rate on average since
// its start: if it was behind its schedule at the end of the warm-up, it sends the messages that are
// measured faster than asked, together with those that had waited. That is an error.
func (p Produced) Report(rate int) (LoadReport, error) {
	y := p.Latency
	for _, ms := range []*float64{&y.Mean, &y.P50, &y.P95, &y.P99, &y.P999, &y.Max} {
		*ms *= 1000
	}
	planned, seconds := p.Messages/float64(rate), p.Messages/p.Rate
	if seconds < planned*(1-aheadLimit) {
		return LoadReport{}, fmt.Errorf("the producer was %.1f s behind its schedule when the measured part began, and sent %.0f messages/s to catch up, not %d: lengthen warmup",
			planned-seconds, p.Rate, rate)
	}
	seconds = max(seconds, planned)
	return LoadReport{Seconds: seconds, Planned: float64(rate) * seconds, Latencies: map[string]Latency{AllRequests: y}}, nil
}
