package workload

import (
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var produceLoad = Params{Duration: 6 * time.Second, Warmup: 4 * time.Second, Rate: 1200}

// The parameters are those of Bacou et al. 2019, Table 1.
func TestKafkaArguments(t *testing.T) {
	target := Endpoint{Address: "10.0.0.2", Port: 5201}
	client := join(newKafka().Client(produceLoad, target))
	for _, want := range []string{
		"/usr/local/bin/unnest-load kafka -target 10.0.0.2:5201 -topic unnest -hosts /tmp/unnest-kafka-hosts -name broker -rate 1200 -warmup 4s -duration 6s -wait -- /usr/lib/jvm/java-17-openjdk-amd64/bin/java ",
		" -Djdk.net.hosts.file=/tmp/unnest-kafka-hosts org.apache.kafka.tools.ProducerPerformance --topic unnest --num-records 12000 --warmup-records 4800 --record-size 100 --throughput 1200 ",
		" bootstrap.servers=broker:5201 batch.size=8192 linger.ms=0 acks=1",
	} {
		if !strings.Contains(client, want) {
			t.Errorf("no %q in\n%s", want, client)
		}
	}
	server := join(newKafka().Server(produceLoad, target))
	for _, want := range []string{
		"listeners=PLAINTEXT://10.0.0.2:5201,CONTROLLER://127.0.0.1:25201\n", "advertised.listeners=PLAINTEXT://broker:5201\n", "process.roles=broker,controller\n",
		"log.dirs=/tmp/unnest-kafka-5201/data\n", " kafka.Kafka /tmp/unnest-kafka-5201/server.properties",
	} {
		if !strings.Contains(server, want) {
			t.Errorf("no %q in\n%s", want, server)
		}
	}
	if everywhere := join(newKafka().Server(produceLoad, Endpoint{Port: 5201})); !strings.Contains(everywhere, "listeners=PLAINTEXT://0.0.0.0:5201,") {
		t.Errorf("it does not listen everywhere: %s", everywhere)
	}
}

// Every jar is pinned by its digest, has a path of its own, and is on the class path.
func TestKafkaJars(t *testing.T) {
	files := newKafka().Extra().Files
	server := newKafka().Server(produceLoad, Endpoint{Port: 5201})
	at := slices.Index(server, "-cp")
	if at < 0 || len(files) < 2 {
		t.Fatalf("%d jars, class path at %d of %q", len(files), at, server)
	}
	classes := strings.Split(server[at+1], ":")
	seen := map[string]bool{}
	for _, f := range files {
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != 32 || strings.Count(f.Maven, ":") != 2 {
			t.Errorf("%+v: want coordinates and a SHA-256", f)
		}
		if seen[f.Path] || filepath.Dir(f.Path) != kafkaDir || !slices.Contains(classes, f.Path) {
			t.Errorf("%+v: its path is taken, or not on the class path", f)
		}
		seen[f.Path] = true
	}
	if len(classes) != len(files) {
		t.Errorf("%d entries in the class path, %d jars", len(classes), len(files))
	}
}

func TestKafkaValidate(t *testing.T) {
	with := func(change func(*Params)) Params { p := produceLoad; change(&p); return p }
	for want, p := range map[string]Params{
		"": produceLoad,
		"kafka: rate is missing: give the messages per second":                              with(func(p *Params) { p.Rate = 0 }),
		"kafka: options threads and connections: leave them out, the tool has one producer": with(func(p *Params) { p.Threads = 2 }),
		"kafka: warmup 500ms: want at least 1s, in which the producer connects":             with(func(p *Params) { p.Warmup = 500 * time.Millisecond }),
		"kafka: size 1048576: want 1 to 524288":                                             with(func(p *Params) { p.Size = 1 << 20 }),
		`kafka: protocol "udp": leave it out, it is tcp`:                                    with(func(p *Params) { p.Protocol = UDP }),
	} {
		got := ""
		if err := newKafka().Validate(p); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// The outputs in testdata were printed by the tool.
func TestParseProduced(t *testing.T) {
	got, err := ParseProduced(capture(t, "kafka-producer.txt"), 12000, 4800)
	if err != nil {
		t.Fatal(err)
	}
	want := Produced{Messages: 7200, Rate: 1196.013289, Latency: Latency{Count: 7200, Mean: 3.05, P50: 1, P95: 14, P99: 29, P999: 39, Max: 41}}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-3, 0)); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	report, err := got.Report(1200)
	if err != nil {
		t.Fatal(err)
	}
	if all := report.Latencies[AllRequests]; all.Mean != 3050 || all.P999 != 39000 || all.Max != 41000 || all.Count != 7200 || !(report.Planned > 7200) {
		t.Errorf("got %+v: want µs, and a rate that was not quite reached", report)
	}
}

// A tool that was behind its schedule at the end of the warm-up has no result. One that ends early by
// less than it can count was not faster than asked.
func TestProducedCatchesUp(t *testing.T) {
	if r, err := (Produced{Messages: 3600, Rate: 666}).Report(600); err == nil || r.Seconds != 0 ||
		err.Error() != "the producer was 0.6 s behind its schedule when the measured part began, and sent 666 messages/s to catch up, not 600: lengthen warmup" {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, rate := range []float64{605, 600, 300} {
		r, err := Produced{Messages: 3600, Rate: rate}.Report(600)
		if want := 3600 / min(rate, 600); err != nil || r.Seconds != want || r.Planned != 600*want {
			t.Errorf("%v messages/s: got %+v, %v", rate, r, err)
		}
	}
}

const summary = "100 records sent, 50.0 records/sec (0.01 MB/sec), 3.00 ms avg latency, 9.00 ms max latency, 2 ms 50th, 4 ms 95th, 8 ms 99th, 9 ms 99.9th.\n"

func TestParseProducedErrors(t *testing.T) {
	steady := strings.Replace(strings.Replace(summary, "100", "60", 1), " records", " steady state records", 1)
	for output, want := range map[string]string{
		"":                             `the producer ended without a summary: ""`,
		"Error: could not find java\n": `the producer ended without a summary: "Error: could not find java"`,
		"NaN records sent\norg.apache.kafka.common.errors.TimeoutException: Topic unnest not present in metadata after 15000 ms.\n": `the producer ended without a summary: "org.apache.kafka.common.errors.TimeoutException: Topic unnest`,
		"org.apache.kafka.common.errors.KafkaStorageException: no space\n" + strings.Replace(summary, "100", "97", 1):               `the broker acknowledged 97 of 100 messages: "org.apache.kafka.common.errors.KafkaStorageException: no space"`,
		summary: "the producer has no summary of the 60 messages after its warm-up",
		summary + strings.Replace(steady, "60", "59", 1):      "the producer has no summary of the 60 messages after its warm-up",
		summary + strings.Replace(steady, "50.0", "1.2.3", 1): "read the producer's summary",
	} {
		got, err := ParseProduced([]byte(output), 100, 40)
		if err == nil || !strings.HasPrefix(err.Error(), want) || got != (Produced{}) {
			t.Errorf("%q: got %+v, %v\nwant %s", output, got, err, want)
		}
	}
	if got, err := ParseProduced([]byte(summary+steady), 100, 40); err != nil || got.Messages != 60 || got.Rate != 50 {
		t.Errorf("got %+v, %v", got, err)
	}
}

const kafkaReport = `{"seconds":6.03,"planned":7236,"answers":7300,"late_p99":0,"latencies":{"all":{"count":7200,"mean":3280,"stddev":0,"p50":3000,"p95":5000,"p99":9000,"p999":20000,"max":24000}}}`

// 99.9 % need 10,000 messages.
func TestKafkaParse(t *testing.T) {
	got, err := newKafka().Parse(produceLoad, []byte(kafkaReport))
	if err != nil {
		t.Fatal(err)
	}
	checkOutput(t, newKafka(), produceLoad, got)
	want := Output{[]Value{
		{"latency_mean", 3280}, {"latency_p50", 3000}, {"latency_p95", 5000}, {"latency_p99", 9000}, {"latency_max", 24000},
		{"message_rate", 1194.03}, {"reached", 99.5025},
	}, 7300}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-4, 0)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	for report, want := range map[string]string{
		"": "kafka: no output", `{"error":"the broker acknowledged 3 messages and has 2"}`: "kafka: the broker acknowledged 3 messages and has 2",
		closedReport: "kafka: the report is of a load without a schedule",
	} {
		if _, err := newKafka().Parse(produceLoad, []byte(report)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestKafkaVersion(t *testing.T) {
	if got, err := newKafka().ParseVersion([]byte("argparse4j-0.7.0.jar\nkafka-clients-4.1.1.jar\nkafka_2.13-4.1.1.jar\n")); err != nil || got != "4.1.1" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzParseProduced(f *testing.F) {
	f.Add(capture(f, "kafka-producer.txt"))
	f.Add([]byte(summary))
	f.Fuzz(func(t *testing.T, output []byte) {
		got, err := ParseProduced(output, 12000, 4800)
		if err == nil && (got.Messages != 7200 || !(got.Rate > 0)) {
			t.Errorf("got %+v", got)
		}
	})
}
