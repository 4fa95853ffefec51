package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"unnest.io/unnest/internal/measure/workload"
)

// toolMode is the environment variable that turns this test binary into a producer, which
// differs from Kafka's in its language only.
const toolMode = "UNNEST_TEST_PRODUCER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(toolMode); mode != "" {
		os.Exit(fakeTool(mode, os.Args[1:], os.Stdout))
	}
	os.Exit(m.Run())
}

// fakeTool sends 100 messages to the broker whose address is in the file, 40 of them in the warm-up.
func fakeTool(mode string, args []string, stdout io.Writer) int {
	if mode == "crash" {
		_, _ = fmt.Fprintln(stdout, "Error: Could not find or load main class")
		return 1
	}
	if mode == "stuck" {
		_, _ = fmt.Fprintln(stdout, "org.apache.kafka.common.errors.TimeoutException: Topic unnest not present in metadata after 15000 ms.")
		time.Sleep(10 * time.Minute)
	}
	hosts, err := os.ReadFile(args[0])
	if address, name, _ := strings.Cut(string(hosts), " "); err != nil || address != "127.0.0.1" || name != "broker\n" {
		_, _ = fmt.Fprintln(stdout, "the file of hosts:", string(hosts), err)
		return 1
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(args[1]), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return 1
	}
	sent := 100
	if mode == "loses" {
		sent = 97
	}
	for i := range sent {
		if err := client.ProduceSync(context.Background(), &kgo.Record{Topic: "unnest", Value: make([]byte, 100)}).FirstErr(); err != nil {
			_, _ = fmt.Fprintln(stdout, "Exception:", err)
			return 1
		}
		if i == 40 {
			time.Sleep(300 * time.Millisecond) // in which the generator is told to begin
		}
	}
	rate := map[string]string{"behind": "22.2"}[mode]
	if rate == "" {
		rate = "19.2"
	}
	rest := " records sent, " + rate + " records/sec (0.01 MB/sec), 3.00 ms avg latency, 9.00 ms max latency, 2 ms 50th, 4 ms 95th, 8 ms 99th, 9 ms 99.9th."
	acknowledged := map[string]int{"refused": 90}[mode]
	if acknowledged == 0 {
		acknowledged = 100
	}
	_, _ = fmt.Fprintf(stdout, "%d%s\n60 steady state%s\n", acknowledged, rest, rest)
	if mode == "early" {
		if err := os.WriteFile(args[0]+ended, nil, 0o600); err != nil {
			return 1
		}
	}
	return 0
}

// ended follows the name of the file of hosts in the name of that which says that the tool ends.
const ended = ".ended"

// late tells the generator to begin when a file is there.
type late string

func (l late) Read(p []byte) (int, error) {
	for _, err := os.Stat(string(l)); err != nil; _, err = os.Stat(string(l)) {
		time.Sleep(10 * time.Millisecond)
	}
	return copy(p, "\n"), nil
}

// produced runs the generator with the fake tool against a broker, and returns its report. Without stdin,
// the generator is told to begin when the tool ends.
func produced(t *testing.T, mode string, stdin io.Reader) (r workload.LoadReport, stderr string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	hosts, target := filepath.Join(t.TempDir(), "hosts"), cluster.ListenAddrs()[0]
	if stdin == nil {
		stdin = late(hosts + ended)
	}
	t.Setenv(toolMode, mode)
	var out, said strings.Builder
	code := Main([]string{"kafka", "-target", target, "-topic", "unnest", "-hosts", hosts, "-name", "broker", "-rate", "20", "-warmup", "2s", "-duration", "3s", "-wait", "--",
		self, hosts, target}, stdin, &out, &said)
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || (code == 0) != (r.Error == "") {
		t.Fatalf("exit code %d, %v: %s", code, err, out.String())
	}
	return r, said.String()
}

// The generator waits with the tool running, counts what came since it was told to begin, and
// has the latencies of the tool in µs.
func TestProduce(t *testing.T) {
	r, said := produced(t, "works", strings.NewReader("\n"))
	if r.Error != "" || said != workload.Prepared+"\n" {
		t.Fatalf("got %+v, printed %q", r, said)
	}
	if r.Answers < 1 || r.Answers > 60 || r.Latencies[workload.AllRequests].Mean != 3000 || r.Seconds != 3.125 || r.Planned != 62.5 {
		t.Errorf("got %+v", r)
	}
}

// A message that did not arrive fails the load, also if the tool does not know that.
func TestProduceFails(t *testing.T) {
	for mode, want := range map[string]string{
		"crash":   `the producer ended without a summary: "Error: Could not find or load main class"`,
		"stuck":   `the producer ended without a summary: "org.apache.kafka.common.errors.TimeoutException: Topic unnest not present`,
		"refused": "the broker acknowledged 90 of 100 messages",
		"behind":  "the producer was 0.3 s behind its schedule when the measured part began, and sent 22 messages/s to catch up, not 20: lengthen warmup",
		"loses":   "the broker acknowledged 100 messages and has 97",
	} {
		t.Run(mode, func(t *testing.T) {
			if r, _ := produced(t, mode, strings.NewReader("\n")); !strings.HasPrefix(r.Error, want) {
				t.Errorf("got %+v, want %s", r, want)
			}
		})
	}
	if r, _ := produced(t, "works", strings.NewReader("")); !strings.HasPrefix(r.Error, "wait to be told to begin") {
		t.Errorf("got %+v", r)
	}
	if r, _ := produced(t, "early", nil); r.Error != "the broker had all 100 messages before the load was told to begin: lengthen warmup and duration" {
		t.Errorf("got %+v", r)
	}
	var out strings.Builder
	args := []string{"kafka", "-target", "127.0.0.1:1", "-topic", "unnest", "-hosts", "h", "-name", "broker", "-rate", "20", "-duration", "3s"}
	if code := Main(args, strings.NewReader(""), &out, io.Discard); code == 0 || !strings.Contains(out.String(), "the command of the tool") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
	if code := Main(append(args, "--", "true"), strings.NewReader(""), &out, io.Discard); code == 0 || !strings.Contains(out.String(), "create topic unnest: ") {
		t.Errorf("exit code %d: %s", code, out.String())
	}
}
