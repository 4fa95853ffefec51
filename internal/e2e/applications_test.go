package e2e

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// applications loads memcached and NGINX in a guest, and in a container on this host.
const applications = `name: small
suite: applications
configurations:
  - {name: NoCont,    stack: vm}
  - {name: metal-nat, stack: metal/containerd, network: nat}
cases:
  - {name: memcached, title: memcached, workload: memcached, duration: 1s, options: {connections: 20}}
  - {name: nginx,     title: NGINX at a constant rate, workload: nginx, warmup: 200ms, duration: 1s, options: {rate: 20, connections: 10}}
repetitions: 1
warmup: 0
`

// The servers do real work: the load generator compares every answer, and fails at the first
// wrong one. The report has the figures of the requests, and the CPU time per request.
func TestApplications(t *testing.T) {
	unnest := unnestBinary(t)
	dir := measureText(t, []string{unnest, "bench", "--noisy"}, applications, bringUp)
	assertNothingLeft(t)
	run, samples, err := rundir.Load(dir)
	if err != nil || run.State != result.Complete || run.Tools["memcached"] == "" || run.Tools["nginx"] == "" {
		t.Errorf("run %q with tools %v, %v", run.State, run.Tools, err)
	}
	common := []string{"latency_mean", "latency_stddev", "response_rate", "host_usr", "server_usr", "server_sys"}
	guests := []string{"guest_sys", "vm_usr", "vm_sys"}
	for name, metrics := range map[string][]string{
		"memcached": append(common, "get_rate", "get_latency_mean", "set_rate", "set_latency_mean"),
		"nginx":     append(common, "reached", "naive_latency_mean", "late_p99"),
	} {
		for configuration, own := range map[string][]string{"NoCont": guests, "metal-nat": nil} {
			for _, metric := range slices.Concat(metrics, own) {
				i := slices.IndexFunc(samples, func(s result.Sample) bool {
					return s.Case == name && s.Configuration == configuration && s.Metric == metric
				})
				if i < 0 {
					t.Errorf("%s in %s has no %s", name, configuration, metric)
				} else if strings.HasPrefix(metric, "response") && !(samples[i].Value > 0) {
					t.Errorf("%s in %s: %+v", name, configuration, samples[i])
				}
			}
		}
	}
	page := mustRun(t, unnest, "report", dir)
	for _, want := range []string{"memcached", "NGINX at a constant rate", "CPU time of processes per unit of work", "naive_latency_mean", "get_rate"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report has no %q:\n%s", want, page)
		}
	}
}
