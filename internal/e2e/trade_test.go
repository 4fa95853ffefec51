//go:build trade

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest/internal/measure/result"
)

// trade loads the trading application on this host: without a container, in one, and from
// outside.
const trade = `name: trade
guest: {vcpus: 2, memory: 2GiB}
repetitions: 1
warmup: 0
retries: 0
configurations:
  - {name: metal.local}
  - {name: metal.remote}
  - {name: metal.aufs}
  - {name: metal.mnt.nat}
cases:
  - {suite: application}
`

// WildFly serves the application, JMeter loads it, every answer is right, and the database
// balances. The samples have the intervals, and the report draws them. It needs bin/trade.tar, and
// runs by make test-trade.
func TestTrade(t *testing.T) {
	unnest := unnestBinary(t)
	file, dir := filepath.Join(t.TempDir(), "trade.yaml"), filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, []byte(trade), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launch(t, unnest, "bench", "--noisy", file, "-o", dir)
	if code := r.end(t, 30*time.Minute); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, r.out.String())
	}
	assertNothingLeft(t)
	run, samples, err := result.Load(dir)
	if err != nil || run.State != result.Complete || run.Tools["wildfly"] == "" || run.Tools["jmeter"] == "" {
		t.Fatalf("run %q with tools %v, %v", run.State, run.Tools, err)
	}
	measured := 0
	for _, s := range samples {
		if s.Metric == "throughput" {
			measured++
			if !(s.Value > 0) || len(s.Intervals) != 3 {
				t.Errorf("%s: %+v", s.Configuration, s)
			}
		}
	}
	if measured != len(run.Configurations) {
		t.Errorf("%d of %d configurations are measured: %+v", measured, len(run.Configurations), run.Failures)
	}
	page := mustRun(t, unnest, "report", dir)
	for _, want := range []string{"Trading application", "total score"} {
		if !strings.Contains(page, want) {
			t.Errorf("the report has no %q:\n%s", want, page)
		}
	}
}
