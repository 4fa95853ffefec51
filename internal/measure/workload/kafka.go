package workload

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// kafka is a broker that is its own controller (KRaft), loaded by Kafka's own producer
// performance tool (Bacou et al. 2019, Table 1): messages of 100 bytes at a constant rate, in
// batches of up to 8,192 bytes.
type kafka struct{ load }

func newKafka() kafka { return kafka{load{name: "kafka", size: 100, maxSize: 1 << 19}} }

const (
	kafkaBatch = 8192 // bytes
	kafkaTopic = "unnest"
	// kafkaHost is the name under which clients find the broker. A broker tells its clients
	// where it is, and behind NAT it does not know that; the clients resolve the name.
	kafkaHost = "broker"
	// kafkaHosts is the file that resolves kafkaHost.
	kafkaHosts = "/tmp/unnest-kafka-hosts"
	// kafkaController is the distance of the controller's port, on the loopback, from the broker's.
	kafkaController = 20000
	kafkaStarted    = "Kafka Server started"
)

// What Kafka needs besides its jars. The path of the program has Java's version, so that no
// other Java can run. Debian's path also has the architecture; kafkaScript finds that of another one.
const (
	kafkaJava    = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java"
	kafkaPackage = "openjdk-17-jre-headless"
	kafkaDir     = "/usr/local/share/kafka"
)

func (kafka) Programs() []string { return []string{kafkaJava} }

// kafkaJars are Kafka and what it imports: Maven coordinates, and the SHA-256 of the jar.
//
//go:embed kafka.jars
var kafkaJars string

// Extra is what a workload needs that no guest has.
func (kafka) Extra() Extra {
	x := Extra{Packages: []string{kafkaPackage}, Bookworm: true, Alone: true, Derived: kafkaClasses()}
	x.Files = kafkaFiles()
	return x
}

func kafkaFiles() (files []File) {
	for line := range strings.Lines(kafkaJars) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] != "#" {
			files = append(files, File{Maven: fields[0], SHA256: fields[1], Path: kafkaJar(fields[0])})
		}
	}
	return files
}

// kafkaJar is the path of a jar with these Maven coordinates in guests and containers.
func kafkaJar(maven string) string {
	parts := strings.Split(maven, ":")
	return path.Join(kafkaDir, strings.Join(parts[1:], "-")+".jar")
}

// kafkaProgram is the command line of a class of Kafka, with an option about class data. Only the first compiler is used: the second
// one takes minutes in an emulated guest. An error is one line, without a trace of the stack.
func kafkaProgram(heap, classes string, more ...string) []string {
	var jars []string
	for _, f := range kafkaFiles() {
		jars = append(jars, f.Path)
	}
	args := []string{kafkaJava, "-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", classes, "-Xlog:disable", "-XX:-UsePerfData",
		"-XX:-StackTraceInThrowable", "-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-Dlog4j2.loggerContextFactory=org.apache.logging.log4j.simple.SimpleLoggerContextFactory", "-cp", strings.Join(jars, ":")}
	return append(args, more...)
}

// kafkaScript writes the broker's directory before it replaces itself with the broker. It
// formats the directory itself: Kafka's own program for that takes as long as a start.
const kafkaScript = `dir=$1 conf=$2 meta=$3; shift 3
` + freePort + `java=$1; shift
for other in "${java%-*/bin/java}"-*/bin/java; do [ -x "$java" ] || [ ! -x "$other" ] || java=$other; done
[ -x "$java" ] || { echo "there is no $java: install the Debian package ` + kafkaPackage + `"; exit 127; }
busybox rm -rf "$dir" && busybox mkdir -p "$dir/data" && busybox echo "$conf" >"$dir/server.properties" && busybox echo "$meta" >"$dir/data/meta.properties" || exit
exec "$java" "$@"
`

// kafkaProperties has one node and no copies. The cleaner, which nothing here needs, would take
// half of the heap.
const kafkaProperties = `process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://%[1]s:%[2]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://` + kafkaHost + `:%[2]d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:%[3]d
log.dirs=%[4]s/data
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
log.cleaner.enable=false
auto.create.topics.enable=false`

const kafkaMeta = "version=1\ncluster.id=unnest0000000000000000\nnode.id=1"

func (kafka) Server(_ Params, listen Endpoint) []string {
	return kafkaBroker(listen, loadClasses(brokerClasses))
}

func kafkaBroker(listen Endpoint, classes string) []string {
	dir := fmt.Sprintf("/tmp/unnest-kafka-%d", listen.Port)
	conf := fmt.Sprintf(kafkaProperties, cmp.Or(listen.Address, "0.0.0.0"), listen.Port, listen.Port+kafkaController, dir)
	args := []string{"sh", "-c", kafkaScript, "kafka", dir, conf, kafkaMeta, strconv.Itoa(listen.Port)}
	return append(args, kafkaProgram("192m", classes, "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
		"kafka.Kafka", dir+"/server.properties")...)
}

func (kafka) Ready() string { return kafkaStarted }

// kafkaPreparation is about what a broker and the producer take to start, in an emulated guest.
const kafkaPreparation = 25 * time.Second

func (kafka) Wall(p Params) time.Duration { return p.Warmup + p.Duration + kafkaPreparation }

func (k kafka) Validate(p Params) error {
	switch err := k.load.Validate(p); {
	case p.Rate == 0:
		return errors.New("kafka: rate is missing: give the messages per second")
	case err != nil:
		return err
	case p.Threads != 0 || p.Connections != 0:
		return errors.New("kafka: options threads and connections: leave them out, the tool has one producer")
	case p.Warmup < time.Second:
		return fmt.Errorf("kafka: warmup %v: want at least 1s, in which the producer connects", p.Warmup)
	}
	return nil
}

// Messages returns how many messages a load sends, and how many of them before it is measured.
func Messages(rate int, warmup, duration time.Duration) (all, before int) {
	count := func(d time.Duration) int { return int(d.Seconds() * float64(rate)) }
	return count(warmup + duration), count(warmup)
}

// Client is the load generator with the tool as its last arguments. Acknowledgement and
// lingering are those of 2019, when the paper was written; later versions of Kafka have other defaults.
func (k kafka) Client(p Params, target Endpoint) []string {
	number := strconv.Itoa
	generator := []string{Generator, k.name, "-target", target.Address + ":" + number(target.Port), "-topic", kafkaTopic, "-hosts", kafkaHosts, "-name", kafkaHost,
		"-rate", number(p.Rate), "-warmup", p.Warmup.String(), "-duration", p.Duration.String(), WaitFlag}
	return append(append(generator, "--"), k.tool(p, target.Port, loadClasses(producerClasses))...)
}

func (k kafka) tool(p Params, port int, classes string) []string {
	all, before := Messages(p.Rate, p.Warmup, p.Duration)
	number := strconv.Itoa
	return kafkaProgram("128m", classes, "-Djdk.net.hosts.file="+kafkaHosts, "org.apache.kafka.tools.ProducerPerformance",
		"--topic", kafkaTopic, "--num-records", number(all), "--warmup-records", number(before), "--record-size", number(cmp.Or(p.Size, k.size)),
		"--throughput", number(p.Rate), "--producer-props", "bootstrap.servers="+kafkaHost+":"+number(port), "batch.size="+number(kafkaBatch),
		"linger.ms=0", "acks=1")
}

func (k kafka) Metrics(Params) []result.Metric {
	var metrics []result.Metric
	for _, name := range []string{"mean", "p50", "p95", "p99", "p999", "max"} {
		metrics = append(metrics, result.Metric{Name: "latency_" + name, Unit: "us", Order: result.LIB})
	}
	return append(metrics, result.Metric{Name: "message_rate", Unit: "messages/s", Order: result.HIB},
		result.Metric{Name: "reached", Unit: "%", Order: result.HIB})
}

// Primary is the metric of the paper.
func (kafka) Primary(Params) string { return "latency_mean" }

// Parse parses the report of the load generator, which has read that of the tool.
func (k kafka) Parse(_ Params, stdout []byte) (Output, error) {
	r, err := readLoad(stdout)
	if err != nil {
		return Output{}, fmt.Errorf("%s: %w", k.name, err)
	}
	all := r.Latencies[AllRequests]
	if !(r.Planned > 0) {
		return Output{}, fmt.Errorf("%s: the report is of a load without a schedule", k.name)
	}
	values := []Value{{"latency_mean", all.Mean}, {"latency_p50", all.P50}}
	for _, tail := range []struct {
		name     string
		value    float64
		requests float64
	}{{"p95", all.P95, 20}, {"p99", all.P99, 100}, {"p999", all.P999, 1000}} {
		if all.Count >= tail.requests*tailObservations {
			values = append(values, Value{"latency_" + tail.name, tail.value})
		}
	}
	values = append(values, Value{"latency_max", all.Max}, Value{"message_rate", all.Count / r.Seconds}, Value{"reached", 100 * all.Count / r.Planned})
	return finish(k.name, values, r.Answers)
}

// VersionArgs lists the jars, because Kafka takes ten seconds to say its version in an emulated guest.
func (kafka) VersionArgs() []string { return []string{"ls", kafkaDir} }

func (k kafka) ParseVersion(output []byte) (string, error) {
	return parseVersion(k.name, kafkaVersion, output)
}

// Archives of class data, which Java maps in place of reading, checking and linking each class. With them a
// broker starts in half of the CPU time.
const (
	brokerClasses   = "broker.jsa"
	producerClasses = "producer.jsa"
)

// loadClasses is the option that loads an archive. Without the archive, or with one of another Java, Java
// starts as it does without the option.
func loadClasses(name string) string { return "-XX:SharedArchiveFile=" + path.Join(kafkaDir, name) }

// kafkaClasses makes the archives of what a broker and the producer load for some messages.
func kafkaClasses() Derived {
	const port = 5001
	dump := func(name string) string { return "-XX:ArchiveClassesAtExit=/tmp/classes/" + name }
	broker := kafkaBroker(Endpoint{Address: "127.0.0.1", Port: port}, dump(brokerClasses))
	for i, arg := range broker {
		broker[i] = strings.Replace(arg, "auto.create.topics.enable=false", "auto.create.topics.enable=true", 1)
	}
	tool := newKafka().tool(Params{Rate: 600, Warmup: time.Second, Duration: time.Second}, port, dump(producerClasses))
	return Derived{
		Script: `out=$1
mkdir /tmp/classes && echo "127.0.0.1 ` + kafkaHost + `" >` + kafkaHosts + `
` + quoted(broker) + ` >/tmp/broker.log 2>&1 &
broker=$!
until busybox grep -q "` + kafkaStarted + `" /tmp/broker.log; do
	kill -0 $broker 2>/dev/null || { busybox tail -n 3 /tmp/broker.log >&2; exit 1; }
	busybox sleep 0.1
done
` + quoted(tool) + ` >/tmp/tool.log 2>&1
kill $broker
wait $broker
cp /tmp/classes/` + brokerClasses + " /tmp/classes/" + producerClasses + ` "$out" || { busybox tail -n 3 /tmp/tool.log >&2; exit 1; }
`,
		Paths: []string{path.Join(kafkaDir, brokerClasses), path.Join(kafkaDir, producerClasses)},
	}
}

// quoted is a command as a shell takes it.
func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(words, " ")
}

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
