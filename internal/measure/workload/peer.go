package workload

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// peer loads a server of this project, which is in the same program as the client. An image
// with this program is all that is needed to measure between two pods.
type peer struct {
	name string
	udp  bool // also over UDP
}

// The loads between two peers, as those of netperf: TCP_RR and UDP_RR, TCP_CRR, TCP_STREAM.
var (
	echo    = peer{"echo", true}     // one message at a time, and its echo
	connect = peer{"connect", false} // the same, over a new connection each time
	stream  = peer{"stream", false}  // messages in one direction, without answers
)

// PeerImage is the name of the container image with Generator, as `make images` writes it.
const PeerImage = "localhost/unnest/load:1"

// PeerReady is what the server prints when it accepts clients.
const PeerReady = "peers are served"

// AttachedFlag makes the server end when its input ends.
const AttachedFlag = "-attached"

const (
	peerMinSize    = 8     // of the number of a message
	peerMaxUDPSize = 65507 // of a datagram
	peerMaxSize    = 1 << 20
	// peerPreparation is about what a client takes to start and to connect.
	peerPreparation = time.Second
)

// PeerPatience is how long the client waits for the echo of a datagram before it counts it as lost.
const PeerPatience = time.Second

// IsPeer reports whether w is a load between two peers.
func IsPeer(w Workload) bool {
	_, ok := w.(peer)
	return ok
}

func (w peer) Name() string { return w.name }

func (peer) Programs() []string { return nil }

func (peer) Ready() string { return PeerReady }

func (w peer) Ports(_ Params, port int) []Port { return []Port{{TCP, port}, {UDP, port}} }

func (peer) Lead() time.Duration { return 0 }

func (peer) Wall(p Params) time.Duration { return p.Warmup + p.Duration + peerPreparation }

func (w peer) Validate(p Params) error {
	complain := func(format string, args ...any) error { return fmt.Errorf(w.name+": "+format, args...) }
	most := peerMaxSize
	if p.Protocol == UDP {
		most = peerMaxUDPSize
	}
	switch {
	case w.udp && p.Protocol != UDP && p.Protocol != TCP:
		return complain("protocol %q: want udp or tcp", string(p.Protocol))
	case !w.udp && p.Protocol != TCP:
		return complain("protocol %q: want tcp", string(p.Protocol))
	case p.Size < peerMinSize || p.Size > most:
		return complain("size %d: want %d to %d bytes", p.Size, peerMinSize, most)
	case p.Duration < time.Second || p.Duration > maxDuration:
		return complain("duration %v: want 1s to %v", p.Duration, maxDuration)
	case p.Warmup < 0 || p.Warmup > maxDuration:
		return complain("warmup %v: want 0s to %v", p.Warmup, maxDuration)
	case p.Connections < 0 || p.Connections > maxConnections:
		return complain("connections %d: want 1 to %d", p.Connections, maxConnections)
	case p.NoDelay || p.Threads != 0 || p.Rate != 0 || p.ofDomains():
		return complain("options nodelay, threads, rate, step and clients, and key intensities: leave them out, they are of other workloads")
	}
	return nil
}

func (w peer) Metrics(p Params) []result.Metric {
	if w.name == stream.name {
		return []result.Metric{{Name: "throughput", Unit: "Mbit/s", Order: result.HIB}}
	}
	metrics := append(latencyMetrics("", false), result.Metric{Name: "transaction_rate", Unit: "transactions/s", Order: result.HIB})
	if p.Protocol == UDP {
		metrics = append(metrics, result.Metric{Name: "lost", Unit: "messages", Order: result.LIB})
	}
	return metrics
}

func (w peer) Primary(p Params) string { return w.Metrics(p)[0].Name }

func (peer) Server(_ Params, listen Endpoint) []string {
	return []string{Generator, "serve", "-listen", listen.text()}
}

func (w peer) Client(p Params, target Endpoint) []string {
	args := []string{Generator, w.name, "-target", target.text(), "-protocol", string(p.Protocol), "-size", strconv.Itoa(p.Size),
		"-connections", strconv.Itoa(cmp.Or(p.Connections, 1)), "-warmup", p.Warmup.String(), "-duration", p.Duration.String()}
	if p.Protocol == UDP {
		args = append(args, "-patience", PeerPatience.String())
	}
	return args
}

// text is the address with the port, for both families.
func (e Endpoint) text() string {
	if strings.Contains(e.Address, ":") {
		return "[" + e.Address + "]:" + strconv.Itoa(e.Port)
	}
	return e.Address + ":" + strconv.Itoa(e.Port)
}

// Parse parses the report of the client. The throughput is that of the sender, whose buffers are as
// full at the end of the measured part as at its begin.
func (w peer) Parse(p Params, stdout []byte) (Output, error) {
	r, err := readLoad(stdout)
	if err != nil {
		return Output{}, fmt.Errorf("%s: %w", w.name, err)
	}
	all := r.Latencies[AllRequests]
	if w.name == stream.name {
		return finish(w.name, []Value{{"throughput", all.Count * float64(p.Size) * 8 / 1e6 / r.Seconds}}, r.Answers)
	}
	values := append(all.values("", false), Value{"transaction_rate", all.Count / r.Seconds})
	if p.Protocol == UDP {
		lost := 0.0
		for _, n := range r.Failures {
			lost += n
		}
		values = append(values, Value{"lost", lost})
	}
	return finish(w.name, values, r.Answers)
}

// VersionArgs is nil, because the program has the version of unnest.
func (peer) VersionArgs() []string { return nil }

func (w peer) ParseVersion([]byte) (string, error) {
	return "", errors.New(w.name + ": it has no version of its own")
}
