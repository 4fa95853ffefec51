//go:build xen

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
)

// The experiments with domains of Xen, each in the shortest form: one block.
var xenExperiments = map[string]struct {
	text    string
	metrics []string // that each configuration has
}{
	"Sysbench": {`name: xen-short
profile: quick
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV,  stack: xen-pv}
  - {name: PVH, stack: xen-pvh}
cases:
  - {suite: sysbench}
repetitions: 1
warmup: 0
retries: 1
timeout: 10m
`, []string{"throughput"}},
	"Network": {`name: xen-network-short
suite: network
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV, stack: xen-pv}
cases:
  - {name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s, timeout: 2m}
  - {name: tcp_stream, workload: iperf3, protocol: tcp, sizes: [16384], duration: 1s, timeout: 2m}
repetitions: 1
warmup: 0
retries: 2
`, []string{"latency_mean", "throughput"}},
	"Collocation": {`name: xen-pair
suite: collocation
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV,    domains: [{type: xen-pv}]}
  - {name: PV-PV, domains: [{type: xen-pv}, {type: xen-pv}]}
cases:
  - {name: web, workload: apache, sizes: [1KiB], intensities: [50%], warmup: 1s, duration: 10s, options: {clients: "2"}}
repetitions: 1
warmup: 0
retries: 3
timeout: 5m
`, []string{collocation.Server, collocation.Utilisation, collocation.HostCPU}},
}

// A run boots a Xen host, creates domains there, measures in them, and leaves nothing.
func TestXen(t *testing.T) {
	unnest := unnestBinary(t)
	for name, e := range xenExperiments {
		t.Run(name, func(t *testing.T) {
			file, dir := filepath.Join(t.TempDir(), "xen.yaml"), filepath.Join(t.TempDir(), "run")
			if err := os.WriteFile(file, []byte(e.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
			if code := r.end(t, 6*bringUp); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, r.out.String())
			}
			assertNothingLeft(t)
			run, samples, err := result.Load(dir)
			if err != nil || run.State != result.Complete || run.Tools["xen"] == "" {
				t.Fatalf("run %q with tools %v, %v", run.State, run.Tools, err)
			}
			for _, c := range run.Configurations {
				for _, metric := range e.metrics {
					if !slices.ContainsFunc(samples, func(s result.Sample) bool {
						return s.Configuration == c.Name && s.Metric == metric && s.Value > 0
					}) {
						t.Errorf("%s has no %s", c.Name, metric)
					}
				}
			}
		})
	}
}
