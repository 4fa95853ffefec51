//go:build collocation

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
)

// neighbours runs a container alone, next to an idle VM with emulated devices, and next to an
// active one.
const neighbours = `name: neighbours
suite: collocation
guest: {vcpus: 2, memory: 512MiB}
configurations:
  - {name: CON,      domains: [{type: con}]}
  - {name: HVM,      domains: [{type: hvm}]}
  - {name: CON-idle, domains: [{type: con}, {type: hvm, active: false}]}
  - {name: HVM-CON,  domains: [{type: hvm}, {type: con, size: 4KiB}]}
cases:
  - {name: web, title: Apache, workload: apache, sizes: [1KiB], intensities: [50%], warmup: 300ms, duration: 1s, options: {clients: "3"}}
repetitions: 3
warmup: 0
retries: 4
timeout: 2m
`

// Each domain has samples of its own. The VM is killed after the first execution: the run names it,
// starts it again and goes on.
func TestCollocation(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := filepath.Join(t.TempDir(), "neighbours.yaml"), filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, []byte(neighbours), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	r.awaitExecutions(t, dir, 1)
	killGuest(t)
	if code := r.end(t, bringUp); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertNothingLeft(t)
	run, samples, err := rundir.Load(dir)
	if err != nil || run.State != result.Complete || run.Tools["apache"] == "" {
		t.Errorf("run %q with tools %v, %v", run.State, run.Tools, err)
	}
	if notes := strings.Join(slices.Concat(run.Notes, run.Conditions), "\n"); !strings.Contains(notes, "guest died: hvm1") || !strings.Contains(notes, "full load of HVM") {
		t.Errorf("notes:\n%s", notes)
	}
	for configuration, domains := range map[string][]string{"CON": {"con1"}, "HVM": {"hvm1"}, "CON-idle": {"con1"}, "HVM-CON": {"hvm1", "con1"}} {
		for _, domain := range domains {
			for _, metric := range []string{collocation.Server, collocation.Network, collocation.Utilisation, collocation.Latency} {
				if !slices.ContainsFunc(samples, func(s result.Sample) bool {
					return s.Configuration == configuration && s.Metric == metric && s.Tags[collocation.DomainTag] == domain && s.Value > 0
				}) {
					t.Errorf("no %s of %s in %s", metric, domain, configuration)
				}
			}
		}
	}
	idle := func(s result.Sample) bool {
		return s.Configuration == "CON-idle" && s.Tags[collocation.ActiveTag] == "false"
	}
	if i := slices.IndexFunc(samples, idle); i < 0 || samples[i].Tags[collocation.DomainTag] != "hvm1" {
		t.Error("no sample of the idle neighbour")
	}
	page := mustRun(t, unnest, "report", dir)
	for _, want := range []string{"Active domains side by side", "next to idle neighbours", "HVM-CON"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report has no %q:\n%s", want, page)
		}
	}
}
