//go:build xen

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// The cases of the studies in which clients of this host load domains.
const (
	xenNetworkCases = `cases:
  - {name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s, timeout: 2m}
  - {name: tcp_stream, workload: iperf3, protocol: tcp, sizes: [16384], duration: 1s, timeout: 2m}
repetitions: 1
warmup: 0
retries: 2
`
	xenCollocationCases = `cases:
  - {name: web, workload: apache, sizes: [1KiB], intensities: [50%], warmup: 1s, duration: 10s, options: {clients: "2"}}
repetitions: 1
warmup: 0
retries: 3
timeout: 5m
`
)

// What clients, xentop and xentrace say of a domain and of dom0.
var xenCollocationMetrics = []string{
	collocation.Server, collocation.Utilisation, collocation.Executions, collocation.PerExecution, collocation.Waiting,
	collocation.Voluntary, collocation.HostCPU, collocation.HostExecutions, collocation.HostPerExecution,
}

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
` + xenNetworkCases, []string{"latency_mean", "throughput"}},
	"Collocation": {`name: xen-pair
suite: collocation
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV,    domains: [{type: xen-pv}]}
  - {name: PV-PV, domains: [{type: xen-pv}, {type: xen-pv}]}
` + xenCollocationCases, xenCollocationMetrics},
}

// xenKinds returns an experiment, and the names of its kinds of domains. It leaves out the configurations with kinds that are
// known to fail in a Xen host that this machine's QEMU emulates.
func xenKinds(t *testing.T, text string) (string, []string) {
	t.Helper()
	limits := doctor.XenDomains(t.Context(), doctor.System(image.CacheDir()))
	if limits == "" {
		return text, []string{"PV", "PVH", "HVM"}
	}
	t.Log("PV domains alone: ", limits)
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "xen-pvh") && !strings.Contains(line, "xen-hvm") {
			kept.WriteString(line)
		}
	}
	return kept.String(), []string{"PV"}
}

// A run boots a Xen host, creates domains there, measures in them, and leaves nothing.
func TestXen(t *testing.T) {
	unnest := unnestBinary(t)
	for name, e := range xenExperiments {
		t.Run(name, func(t *testing.T) {
			text, _ := xenKinds(t, e.text)
			dir := measureText(t, []string{unnest, "bench", "--noisy"}, text, 6*bringUp)
			assertNothingLeft(t)
			assertXenMetrics(t, dir, e.metrics...)
		})
	}
}

// A Xen host behind SSH that no run has booted has domains for suites, for workloads and for the collocation
// study, and nothing is left on it.
func TestXenHost(t *testing.T) {
	unnest := unnestBinary(t)
	in, enter, options := xenHost(t, unnest)
	before := xenState(t, in)
	bench := slices.Concat(enter, []string{"bench", "--noisy"})
	for name, test := range map[string]func(t *testing.T){
		"Sysbench": func(t *testing.T) { testXenHostKilled(t, in, bench, options) },
		"Network": func(t *testing.T) {
			text, _ := xenKinds(t, strings.ReplaceAll(xenHostNetwork, "HOST", options))
			dir := measureText(t, bench, text, 6*bringUp)
			assertXenMetrics(t, dir, "latency_mean", "throughput")
		},
		"Collocation": func(t *testing.T) {
			text, _ := xenKinds(t, strings.ReplaceAll(xenHostCollocation, "HOST", options))
			dir := measureText(t, bench, text, 6*bringUp)
			assertXenMetrics(t, dir, xenCollocationMetrics...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			test(t)
			if after := xenState(t, in); after != before {
				t.Errorf("the Xen host is\n%s\nwant\n%s", after, before)
			}
			if left := xenDomains(t, in); len(left) != 0 {
				t.Errorf("left: domains %q", left)
			}
			if out := mustRun(t, slices.Concat(enter[:len(enter)-1], []string{"ip", "route"})...); strings.Contains(out, "10.201.255.208") {
				t.Errorf("a route is left:\n%s", out)
			}
		})
	}
}

// Studies in which clients load domains on a Xen host of the user's. HOST is what names the host.
const (
	xenHostNetwork = `name: xen-host-network
suite: network
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV,  stack: xen-pv, HOST
  - {name: PVH, stack: xen-pvh, HOST
` + xenNetworkCases
	xenHostCollocation = `name: xen-host-pair
suite: collocation
guest: {vcpus: 1, memory: 512MiB}
configurations:
  - {name: PV,     domains: [{type: xen-pv}], HOST
  - {name: PV-PVH, domains: [{type: xen-pv}, {type: xen-pvh}], HOST
` + xenCollocationCases
)

// assertXenMetrics checks that a run is complete and that each configuration has the metrics.
func assertXenMetrics(t *testing.T, dir string, metrics ...string) {
	t.Helper()
	run, samples, err := rundir.Load(dir)
	if err != nil || run.State != result.Complete || run.Tools["xen"] == "" {
		t.Fatalf("run %q with tools %v, %v", run.State, run.Tools, err)
	}
	for _, c := range run.Configurations {
		for _, metric := range metrics {
			if !slices.ContainsFunc(samples, func(s result.Sample) bool {
				return s.Configuration == c.Name && s.Metric == metric && s.Value > 0
			}) {
				t.Errorf("%s has no %s", c.Name, metric)
			}
		}
	}
}

// testXenHostKilled kills a run. The next run does not copy the image again, and ends the domains that the
// killed one has left.
func testXenHostKilled(t *testing.T, in *place.SSH, bench []string, options string) {
	dir := t.TempDir()
	file := filepath.Join(dir, "xen.yaml")
	text := "name: xen-host\nprofile: quick\nguest: {vcpus: 1, memory: 512MiB}\nconfigurations:\n  - {name: PV, stack: xen-pv, " + options +
		"\n  - {name: PVH, stack: xen-pvh, " + options + "\n  - {name: HVM, stack: xen-hvm, " + options +
		"\ncases:\n  - {suite: sysbench, only: [sysbench-cpu]}\nrepetitions: 2\nwarmup: 0\nretries: 1\ntimeout: 10m\n"
	text, kinds := xenKinds(t, text)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	killed, whole := filepath.Join(dir, "killed"), filepath.Join(dir, "whole")
	r := launch(t, slices.Concat(bench, []string{file, "-o", killed})...)
	r.awaitExecutions(t, killed, 1)
	r.kill(t)
	if out := r.out.String(); !strings.Contains(out, "copy the image of domains") {
		t.Errorf("the image was not copied:\n%s", out)
	}
	if left := xenDomains(t, in); len(left) != len(kinds) {
		t.Errorf("the killed run has left the domains %q, want those of %q", left, kinds)
	}
	r = launch(t, slices.Concat(bench, []string{file, "-o", whole})...)
	if code := r.end(t, 6*bringUp); code != 0 || strings.Contains(r.out.String(), "copy the image of domains") {
		t.Fatalf("exit code %d, want 0, and the image not copied again:\n%s", code, r.out.String())
	}
	assertXenMetrics(t, whole, "throughput")
	assertMeasured(t, whole, []string{"sysbench-cpu"}, kinds...)
}

// xenState is what runs change on a Xen host besides its domains: its interfaces, whether it forwards, and
// its files, other than the images of domains, which stay.
func xenState(t *testing.T, dom0 place.Place) string {
	t.Helper()
	out, err := place.Output(t.Context(), dom0, "sh", "-c",
		"ls -A /var/tmp | grep -v ^unnest-images; ls /sys/class/net; cat /proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// xenDomains names the domains of runs on a Xen host.
func xenDomains(t *testing.T, dom0 place.Place) (names []string) {
	t.Helper()
	out, err := place.Output(t.Context(), dom0, "xl", "list")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "unnest-run-") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	return names
}

// xenHost boots a guest with Xen and hides the disk with the image of the domains, so the guest is like
// a host of the user's. Before that it builds the images of the studies, because no package can be
// had from the network of the guest. It returns the connection to dom0, the command that runs a program
// in that network, and the end of a configuration that names the host.
func xenHost(t *testing.T, unnest string) (in *place.SSH, enter []string, options string) {
	t.Helper()
	n := newNodes(t, nil)
	var err error
	builder := &image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
	for _, recipe := range []image.Recipe{ // of the studies
		image.DefaultRecipe(), image.DefaultRecipe().With("apache2-bin"), image.SuiteRecipe([]string{"sysbench"}).Emulated(),
	} {
		for _, r := range []image.Recipe{recipe, recipe.Xen()} { // of the load generators, and of the domains
			_, err = builder.Root(t.Context(), r)
			n.check(err)
		}
		n.image, err = builder.Build(t.Context(), recipe.Xen())
		n.check(err)
	}
	dom0 := n.boot(fleet.Options{
		Name: "xen1", VCPUs: 1 /* with two, PVH domains die: docs/xen.md */, Memory: guest.XenMemory + 3*(512+48)<<20,
		Extras: func(netip.Addr) (fleet.Extras, error) { return fleet.Extras{Addresses: xen.Addresses()}, nil },
	})
	in = dom0.ssh
	const hide = `for serial in /sys/block/vd*/serial; do mount --bind /dev/null "$serial"; done`
	n.check(place.Run(t.Context(), in, "sh", "-c", hide))
	hostKey, err := ssh.NewPublicKey(dom0.Seed.HostKey.Public())
	n.check(err)
	home, _ := home(t)
	writeKnownHosts(t, home, knownhosts.Line([]string{dom0.TenantIP}, hostKey))
	options = "host: 'ssh://root@" + dom0.TenantIP + "', identity: " + filepath.Join(n.fleet.Lab.Dir, "ssh.key") + "}"
	return in, inNamespace(n.fleet.Lab.HostNS(), home, unnest), options
}
