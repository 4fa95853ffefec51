//go:build trade

package e2e

import (
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/testbed/image"
)

// tradeOnce measures each configuration once.
const tradeOnce = `name: trade
guest: {vcpus: 2, memory: 2GiB}
repetitions: 1
warmup: 0
retries: 0
`

// trade loads the trading application on this host: without a container, in one, and from
// outside.
const trade = tradeOnce + `configurations:
  - {name: metal.local}
  - {name: metal.remote}
  - {name: metal.aufs}
  - {name: metal.mnt.nat}
cases:
  - {suite: application}
`

// WildFly serves the application, JMeter loads it, every answer is right, and the database
// balances. The samples have the intervals, and the report draws them. It needs bin/trade.tar, and
// runs by make e2e TEST='TestTrade(SSH|Foreign|Xen)?'.
func TestTrade(t *testing.T) {
	measureTradeHere(t, trade, 30*time.Minute)
}

// remoteTrade loads the trading application in containers of a host behind SSH.
const remoteTrade = tradeOnce + `cases:
  - {suite: application, timeout: 10m}
configurations:
`

// The same in containers of a host behind SSH, loaded in the container and from this host.
func TestTradeSSH(t *testing.T) {
	unnest := unnestBinary(t)
	builder := image.Builder{Cache: image.CacheDir()} // the network of the run has no way out to Debian
	if _, err := builder.Root(t.Context(), image.SuiteRecipe([]string{"default-jre-headless"})); err != nil {
		t.Fatal(err)
	}
	bench, options := guestOverSSH(t, unnest, "--memory", "2GiB")
	mustRun(t, unnest, "vm", "ssh", "node1", "/etc/unnest/engine")
	text := remoteTrade
	for name, keys := range map[string]string{
		"closed": "drive: local",
		"local":  "drive: local, network: host",
		"remote": "drive: remote, network: host",
		"nat":    "drive: remote, network: nat",
	} {
		text += "  - {name: " + name + ", stack: ssh/containerd, " + keys + ", " + options + "}\n"
	}
	measureTrade(t, unnest, bench, text, 40*time.Minute)
	assertLeftInGuest(t, unnest, "")
}

// foreignTrade loads the trading application in guests of other architectures, from inside and from this host.
const foreignTrade = tradeOnce + `configurations:
  - {name: aarch64, stack: vm, arch: aarch64}
  - {name: s390x, stack: vm, arch: s390x}
  - {name: aarch64.remote, stack: vm, arch: aarch64, drive: remote}
cases:
  - {suite: application, timeout: 20m}
`

// The same in guests whose processor is of another architecture.
func TestTradeForeign(t *testing.T) {
	measureTradeHere(t, foreignTrade, 40*time.Minute)
}

// xenTrade loads the trading application in domains of Xen, from inside and from this host.
const xenTrade = tradeOnce + `configurations:
  - {name: pv, stack: xen-pv}
  - {name: pv.remote, stack: xen-pv, drive: remote}
cases:
  - {suite: application, timeout: 20m}
`

// The same in domains of a Xen host that the run boots.
func TestTradeXen(t *testing.T) {
	measureTradeHere(t, xenTrade, 40*time.Minute)
}

// measureTradeHere runs an experiment on this host, and checks that nothing of it is left.
func measureTradeHere(t *testing.T, text string, limit time.Duration) {
	t.Helper()
	unnest := unnestBinary(t)
	measureTrade(t, unnest, []string{unnest, "bench", "--noisy"}, text, limit)
	assertNothingLeft(t)
}

// measureTrade runs an experiment by the command bench, and checks that all configurations are measured.
func measureTrade(t *testing.T, unnest string, bench []string, text string, limit time.Duration) {
	t.Helper()
	dir := measureText(t, bench, text, limit)
	run, samples, err := rundir.Load(dir)
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
