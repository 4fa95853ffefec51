package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// iperf3 streams messages from the client to the server without a rate limit, like
// TCP_STREAM and UDP_STREAM of netperf, and reports what the server received.
//
// The UDP stream has no warm-up: with --omit, iperf3 3.12 adds the losses of the warm-up
// to those of the test, and prints 139 % lost. Runs end by time, not by --bytes or
// --blockcount, so that every configuration is measured equally long; a 1 s run takes
// 1.01 s.
type iperf3 struct{}

const (
	iperf3MinSize    = 16      // header of an iperf3 datagram
	iperf3MaxSizeUDP = 65507   // largest UDP payload over IPv4
	iperf3MaxSizeTCP = 1 << 20 // MAX_BLOCKSIZE

	iperf3MaxConnections = 128 // MAX_STREAMS

	iperf3MaxWarmup = 60 * time.Second
	// iperf3Overhead is the wall time of a client beyond warm-up and duration:
	// process start, control connection, exchange of results.
	iperf3Overhead = 80 * time.Millisecond
	// iperf3Connect bounds how long the client waits for the server, in ms.
	iperf3Connect = "5000"
)

func (iperf3) Name() string { return "iperf3" }

func (iperf3) Programs() []string { return nil }

// Ready is in the line that iperf3 prints before each client, flushed by --forceflush.
func (iperf3) Ready() string { return "Server listening on" }

func (iperf3) Validate(p Params) error {
	maxSize := iperf3MaxSizeTCP
	if p.Protocol == UDP {
		maxSize = iperf3MaxSizeUDP
	}
	connections := p.Connections
	p.Connections = 0
	if err := p.validate("iperf3", iperf3MinSize, maxSize); err != nil {
		return err
	}
	if connections != 0 && (p.Protocol == UDP || connections < 0 || connections > iperf3MaxConnections) {
		return fmt.Errorf("iperf3: connections %d: want 1 to %d, with tcp", connections, iperf3MaxConnections)
	}
	if p.Warmup < 0 || p.Warmup > iperf3MaxWarmup || p.Warmup%time.Second != 0 {
		return fmt.Errorf("iperf3: warmup %v: want whole seconds, 0s to %v", p.Warmup, iperf3MaxWarmup)
	}
	if p.Protocol == UDP && p.Warmup > 0 {
		return fmt.Errorf("iperf3: warmup %v: leave it out with udp, iperf3 counts the losses of the warm-up", p.Warmup)
	}
	if p.Protocol == UDP && p.NoDelay {
		return fmt.Errorf("iperf3: nodelay: leave it out with udp, it is a TCP option")
	}
	return nil
}

func (iperf3) Metrics(p Params) []result.Metric {
	throughput := result.Metric{Name: "throughput", Unit: "Mbit/s", Order: result.HIB}
	if p.Protocol == TCP {
		return []result.Metric{throughput, {Name: "retransmits", Unit: "segments", Order: result.LIB}}
	}
	return []result.Metric{
		throughput,
		{Name: "packet_rate", Unit: "packets/s", Order: result.HIB},
		{Name: "lost_percent", Unit: "%", Order: result.LIB},
		{Name: "jitter", Unit: "us", Order: result.LIB},
	}
}

func (iperf3) Primary(Params) string { return "throughput" }

func (iperf3) Server(_ Params, listen Endpoint) []string {
	args := []string{"iperf3", "-s", "-p", strconv.Itoa(listen.Port), "--forceflush"}
	if listen.Address != "" {
		args = append(args, "-B", listen.Address)
	}
	return args
}

// Ports includes TCP for a UDP test, whose control connection has the same number.
func (iperf3) Ports(p Params, port int) []Port {
	if p.Protocol == UDP {
		return []Port{{TCP, port}, {UDP, port}}
	}
	return []Port{{TCP, port}}
}

func (iperf3) Client(p Params, target Endpoint) []string {
	args := []string{"iperf3", "-c", target.Address, "-p", strconv.Itoa(target.Port),
		"-J", "--connect-timeout", iperf3Connect,
		"-t", strconv.Itoa(seconds(p.Duration)), "-l", strconv.Itoa(p.Size)}
	if p.Warmup > 0 {
		args = append(args, "-O", strconv.Itoa(seconds(p.Warmup)))
	}
	if p.NoDelay {
		args = append(args, "-N")
	}
	if p.Connections > 0 {
		args = append(args, "-P", strconv.Itoa(p.Connections))
	}
	if p.Protocol == UDP {
		args = append(args, "-u", "-b", "0")
	}
	return args
}

func (iperf3) Lead() time.Duration { return 0 }

func (iperf3) Wall(p Params) time.Duration { return p.Warmup + p.Duration + iperf3Overhead }

func (iperf3) VersionArgs() []string { return []string{"iperf3", "--version"} }

var iperf3Version = regexp.MustCompile(`(?m)^iperf (\S+)`)

func (iperf3) ParseVersion(output []byte) (string, error) {
	return parseVersion("iperf3", iperf3Version, output)
}

// iperf3Report is the part of iperf3's JSON that is read. Pointers distinguish a missing
// or null number from 0.
type iperf3Report struct {
	Start struct {
		TestStart struct {
			Protocol string `json:"protocol"`
			Size     int    `json:"blksize"`
			Streams  int    `json:"num_streams"`
		} `json:"test_start"`
	} `json:"start"`
	Intervals []struct {
		Sum struct {
			Bytes   float64 `json:"bytes"`
			Omitted bool    `json:"omitted"`
		} `json:"sum"`
	} `json:"intervals"`
	End struct {
		Sent struct {
			Retransmits *float64 `json:"retransmits"`
		} `json:"sum_sent"`
		Received struct {
			Seconds     *float64 `json:"seconds"`
			Bytes       *float64 `json:"bytes"`
			Bits        *float64 `json:"bits_per_second"`
			Jitter      *float64 `json:"jitter_ms"`
			LostPercent *float64 `json:"lost_percent"`
		} `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

// Parse parses the JSON report of a client. Packets in "packet_rate" are datagrams of
// p.Size bytes, before IP fragmentation.
func (iperf3) Parse(p Params, stdout []byte) (Output, error) {
	var values []Value
	var omitted float64
	r, err := readIPerf3(p, stdout)
	if err == nil {
		values, err = r.values(p)
	}
	if err == nil {
		omitted, err = r.omitted()
	}
	if err != nil {
		return Output{}, fmt.Errorf("iperf3: %w", err)
	}
	return finish("iperf3", values, (omitted+*r.End.Received.Bytes)/float64(p.Size))
}

// readIPerf3 decodes a report and checks that it is of a test with p that moved data.
func readIPerf3(p Params, stdout []byte) (iperf3Report, error) {
	var r iperf3Report
	if len(bytes.TrimSpace(stdout)) == 0 {
		return r, errors.New("no output")
	}
	if err := json.Unmarshal(stdout, &r); err != nil {
		return r, fmt.Errorf("decode report that ends with %s: %w", Quote(lastLine(stdout)), err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s", Quote([]byte(r.Error)))
	}
	if t := r.Start.TestStart; strings.ToLower(t.Protocol) != string(p.Protocol) || t.Size != p.Size {
		return r, fmt.Errorf("report of a %q test with %d B messages: want %s with %d B", t.Protocol, t.Size, p.Protocol, p.Size)
	}
	if n := r.Start.TestStart.Streams; n != max(p.Connections, 1) {
		return r, fmt.Errorf("report of %d connections: want %d", n, max(p.Connections, 1))
	}
	if b := r.End.Received.Bytes; b == nil || !(*b > 0) {
		return r, errors.New(`end.sum_received.bytes missing or 0: the server received nothing`)
	}
	return r, nil
}

// values returns the metrics of p, in the order of Metrics.
func (r iperf3Report) values(p Params) ([]Value, error) {
	received := r.End.Received
	fields := []reportField{{"throughput", "end.sum_received.bits_per_second", received.Bits, 1e-6}}
	if p.Protocol == TCP {
		fields = append(fields, reportField{"retransmits", "end.sum_sent.retransmits", r.End.Sent.Retransmits, 1})
		return readFields(fields)
	}
	if s := received.Seconds; s == nil || !(*s > 0) {
		return nil, errors.New("end.sum_received.seconds missing or 0")
	}
	rate := *received.Bytes / float64(p.Size) / *received.Seconds
	fields = append(fields,
		reportField{"packet_rate", "end.sum_received.bytes", &rate, 1},
		reportField{"lost_percent", "end.sum_received.lost_percent", received.LostPercent, 1},
		reportField{"jitter", "end.sum_received.jitter_ms", received.Jitter, 1e3})
	if l := received.LostPercent; l != nil && *l > 100 {
		return nil, fmt.Errorf("end.sum_received.lost_percent: %v is over 100", *l)
	}
	return readFields(fields)
}

// reportField is one number of a report and its metric.
type reportField struct {
	metric string
	path   string // in the JSON report, for errors
	number *float64
	factor float64 // from the report's unit to the metric's
}

// readFields returns the values of fields, or an error for the first missing one.
func readFields(fields []reportField) ([]Value, error) {
	values := make([]Value, 0, len(fields))
	for _, f := range fields {
		if f.number == nil {
			return nil, fmt.Errorf("%s missing", f.path)
		}
		values = append(values, Value{f.metric, *f.number * f.factor})
	}
	return values, nil
}

// omitted returns the bytes that the client sent during the warm-up.
func (r iperf3Report) omitted() (float64, error) {
	var sum float64
	for n, i := range r.Intervals {
		if err := checkNumber(i.Sum.Bytes); err != nil {
			return 0, fmt.Errorf("intervals[%d].sum.bytes: %w", n, err)
		}
		if i.Sum.Omitted {
			sum += i.Sum.Bytes
		}
	}
	return sum, nil
}
