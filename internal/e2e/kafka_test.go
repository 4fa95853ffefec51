//go:build kafka

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// broker loads Kafka in a guest, in a container of it, and in a pod.
const broker = `name: small
suite: applications
configurations:
  - {name: NoCont,   stack: vm}
  - {name: NAT,      stack: vm/containerd, network: nat}
  - {name: SameNode, stack: vm/containerd, network: localhost, drive: pod}
cases:
  - {name: kafka, title: Kafka, workload: kafka, warmup: 20s, duration: 6s, timeout: 4m, options: {rate: 600}}
repetitions: 1
warmup: 0
`

// A real broker has every message that Kafka's own tool has sent to it, in a VM, behind NAT and
// over the loopback of a pod. It runs only while it is measured.
func TestKafka(t *testing.T) {
	unnest := unnestBinary(t)
	dir := measureText(t, []string{unnest, "bench", "--noisy"}, broker, 25*time.Minute)
	assertNothingLeft(t)
	run, samples, err := rundir.Load(dir)
	if err != nil || run.State != result.Complete || run.Tools["kafka"] == "" || run.Tools["openjdk-17-jre-headless"] == "" {
		t.Errorf("run %q with tools %v, %v", run.State, run.Tools, err)
	}
	for _, note := range run.Notes {
		if strings.Contains(note, "starts slower") {
			t.Error(note)
		}
	}
	for _, configuration := range []string{"NoCont", "NAT", "SameNode"} {
		for _, metric := range []string{"latency_mean", "latency_p50", "latency_max", "message_rate", "reached", "guest_soft", "vm_usr", "server_usr"} {
			i := slices.IndexFunc(samples, func(s result.Sample) bool { return s.Configuration == configuration && s.Metric == metric })
			if i < 0 {
				t.Errorf("%s has no %s", configuration, metric)
			} else if !strings.HasSuffix(metric, "soft") && !(samples[i].Value > 0) {
				t.Errorf("%+v", samples[i])
			}
		}
	}
}

// allServers loads memcached, NGINX, iperf3 and Kafka.
const allServers = `name: servers
suite: applications
repetitions: 1
warmup: 0
cases:
  - {name: memcached, title: memcached, workload: memcached, warmup: 1s, duration: 3s, timeout: 90s, options: {connections: 20}}
  - {name: nginx, title: NGINX, workload: nginx, warmup: 1s, duration: 3s, timeout: 90s, options: {rate: 100}}
  - {name: tcp_stream, title: TCP stream, workload: iperf3, protocol: tcp, sizes: [16384], duration: 2s, timeout: 60s}
  - {name: kafka, title: Kafka, workload: kafka, warmup: 20s, duration: 6s, timeout: 6m, options: {rate: 600}}
configurations:
`

// All servers serve clients on this host also from containers of a host behind SSH. The first run loads
// a container of this host, and downloads the packages and files. The network of the second run has no way out.
func TestKafkaSSH(t *testing.T) {
	unnest := unnestBinary(t)
	loadServers(t, []string{unnest, "bench", "--noisy"}, map[string]string{"metal": "stack: metal/containerd, network: host"})
	bench, options := guestOverSSH(t, unnest, "--memory", "2GiB")
	mustRun(t, unnest, "vm", "ssh", "node1", "/etc/unnest/engine")
	loadServers(t, bench, map[string]string{
		"host": "stack: ssh/containerd, network: host, " + options,
		"nat":  "stack: ssh/containerd, network: nat, " + options,
	})
	assertLeftInGuest(t, unnest, "")
}

// The same in guests whose processor is of another architecture.
func TestKafkaForeign(t *testing.T) {
	unnest := unnestBinary(t)
	loadServers(t, []string{unnest, "bench", "--noisy"}, map[string]string{
		"aarch64": "stack: vm, arch: aarch64",
		"s390x":   "stack: vm, arch: s390x",
	})
	assertNothingLeft(t)
}

// loadServers loads the servers of configurations, and checks that all have worked. The map has the
// keys of each configuration by its name.
func loadServers(t *testing.T, bench []string, configurations map[string]string) {
	t.Helper()
	text := allServers
	for name, keys := range configurations {
		text += "  - {name: " + name + ", " + keys + "}\n"
	}
	_, samples, err := rundir.Load(measureText(t, bench, text, 25*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for name := range configurations {
		for _, want := range []struct{ name, metric string }{
			{"memcached", "response_rate"}, {"nginx", "latency_mean"}, {"tcp_stream/16384", "throughput"}, {"kafka", "message_rate"},
		} {
			if !slices.ContainsFunc(samples, func(s result.Sample) bool {
				return s.Configuration == name && s.Case == want.name && s.Metric == want.metric && s.Value > 0
			}) {
				t.Errorf("%s has no %s of %s", name, want.metric, want.name)
			}
		}
	}
}
