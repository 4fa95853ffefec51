package workload

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Peer is a load generator that ours is compared with, on one server.
type Peer struct {
	Name string // of the program and of its Debian package
	// Open: it sends at a rate, with a connection for each request. Else it sends in a closed loop, over
	// connections that stay open.
	Open    bool
	command func(p Params, target Endpoint) []string
	parse   func(out string) (rate, latency float64, err error) // responses/s and the mean in µs
}

// Peers lists them.
func Peers() []Peer {
	return []Peer{{"httperf", true, httperfCommand, parseHttperf}, {"wrk", false, wrkCommand, parseWrk}}
}

// Command is the command that loads the server as p says. Loads have no warm-up: not every peer has one.
func (g Peer) Command(p Params, target Endpoint) []string { return g.command(p, target) }

// VersionArgs is the command that prints the version. wrk exits with an error then.
func (g Peer) VersionArgs() []string {
	return []string{"sh", "-c", g.Name + " --version 2>&1 || " + g.Name + " -v 2>&1 || true"}
}

// OwnCommand is the same load by our generator.
func OwnCommand(p Params, target Endpoint) []string {
	command := newApache().Client(p, target)
	command = command[:len(command)-1] // without -wait: no peer waits
	if p.Rate == 0 {
		command = append(command, "-keep")
	}
	return command
}

// Parse parses what the peer prints.
func (g Peer) Parse(p Params, stdout []byte) (Output, error) {
	rate, latency, err := g.parse(string(stdout))
	if err != nil {
		return Output{}, fmt.Errorf("%s: %w: its output ends with %s", g.Name, err, Quote(lastLine(stdout)))
	}
	values := []Value{{"latency_mean", latency}, {"response_rate", rate}}
	if g.Open {
		values = append(values, Value{"reached", 100 * rate / float64(p.Rate)})
	}
	return finish(g.Name, values, rate*p.Duration.Seconds())
}

func httperfCommand(p Params, target Endpoint) []string {
	return []string{"httperf", "--hog", "--server", target.Address, "--port", strconv.Itoa(target.Port), "--uri", ApacheFile(p.Size),
		"--rate", strconv.Itoa(p.Rate), "--num-conns", strconv.Itoa(int(math.Round(float64(p.Rate) * p.Duration.Seconds()))), "--num-calls", "1",
		"--timeout", strconv.Itoa(int(DomainPatience / time.Second))}
}

func wrkCommand(p Params, target Endpoint) []string {
	return []string{"wrk", "--threads", "1", "--connections", strconv.Itoa(p.Connections), "--duration", strconv.Itoa(seconds(p.Duration)) + "s",
		fmt.Sprintf("http://%s:%d%s", target.Address, target.Port, ApacheFile(p.Size))}
}

var (
	httperfTotal = regexp.MustCompile(`Total: connections \d+ requests \d+ replies (\d+) test-duration ([0-9.]+) s`)
	httperfTime  = regexp.MustCompile(`Connection time \[ms\]: min [0-9.]+ avg ([0-9.]+)`)
	wrkRate      = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkLatency   = regexp.MustCompile(`Latency\s+([0-9.]+)(us|ms|s)\b`)
)

var errNoLoad = errors.New("no rate or no latency")

// parseHttperf reads the mean time of a connection, which has one request: from its opening to its end.
func parseHttperf(out string) (rate, latency float64, err error) {
	total, mean := httperfTotal.FindStringSubmatch(out), httperfTime.FindStringSubmatch(out)
	if total == nil || mean == nil {
		return 0, 0, errNoLoad
	}
	replies, took, ms := float(total[1]), float(total[2]), float(mean[1])
	if !(took > 0) {
		return 0, 0, errNoLoad
	}
	return replies / took, ms * 1e3, nil
}

func parseWrk(out string) (rate, latency float64, err error) {
	if i := strings.Index(out, "Socket errors:"); i >= 0 {
		line, _, _ := strings.Cut(out[i:], "\n")
		return 0, 0, errors.New(line)
	}
	perSecond, mean := wrkRate.FindStringSubmatch(out), wrkLatency.FindStringSubmatch(out)
	if perSecond == nil || mean == nil {
		return 0, 0, errNoLoad
	}
	return float(perSecond[1]), float(mean[1]) * map[string]float64{"us": 1, "ms": 1e3, "s": 1e6}[mean[2]], nil
}

// float reads a number that a regular expression has found; NaN if it is none.
func float(text string) float64 {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}
