//go:build xen

package e2e

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
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
			dir := measureText(t, []string{unnest, "bench", "--noisy"}, e.text, 6*bringUp)
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

// A run copies the image of the domains to a Xen host behind SSH that it has not booted. The next run
// does not copy it again, and ends the domain that a killed run has left there.
func TestXenHost(t *testing.T) {
	unnest := unnestBinary(t)
	in, enter, options := xenHost(t, unnest)
	dir := t.TempDir()
	file := filepath.Join(dir, "xen.yaml")
	text := "name: xen-host\nprofile: quick\nguest: {vcpus: 1, memory: 512MiB}\nconfigurations:\n  - {name: PV, stack: xen-pv, " + options +
		"\ncases:\n  - {suite: sysbench, only: [sysbench-cpu]}\nrepetitions: 2\nwarmup: 0\nretries: 1\ntimeout: 10m\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	killed, whole := filepath.Join(dir, "killed"), filepath.Join(dir, "whole")
	r := launch(t, append(enter, "bench", "--noisy", file, "-o", killed)...)
	r.awaitExecutions(t, killed, 1)
	r.kill(t)
	if out := r.out.String(); !strings.Contains(out, "copy the image of domains") {
		t.Errorf("the image was not copied:\n%s", out)
	}
	if left := xenDomains(t, in); len(left) != 1 {
		t.Errorf("the killed run has left the domains %q, want one", left)
	}
	r = launch(t, append(enter, "bench", "--noisy", file, "-o", whole)...)
	if code := r.end(t, 6*bringUp); code != 0 || strings.Contains(r.out.String(), "copy the image of domains") {
		t.Fatalf("exit code %d, want 0, and the image not copied again:\n%s", code, r.out.String())
	}
	run, samples, err := result.Load(whole)
	if err != nil || run.State != result.Complete || run.Tools["xen"] == "" || len(samples) == 0 {
		t.Errorf("run %q with %d samples, tools %v, %v", run.State, len(samples), run.Tools, err)
	}
	if left := xenDomains(t, in); len(left) != 0 {
		t.Errorf("left: domains %q", left)
	}
	if out, err := place.Output(t.Context(), in, "sh", "-c", "ls -A /var/tmp; ls /sys/class/net"); err != nil || strings.Contains(string(out), "unnest-run-") || strings.Contains(string(out), "unnest0") {
		t.Errorf("left: %s, %v", out, err)
	}
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
// a host of the user's. Before that it builds the image for sysbench, because no package can be
// had from the network of the guest. It returns the connection to dom0, the command that runs a program
// in that network, and the end of a configuration that names the host.
func xenHost(t *testing.T, unnest string) (in *place.SSH, enter []string, options string) {
	t.Helper()
	n := newNodes(t, nil)
	var err error
	n.image, err = (&guest.Builder{Cache: guest.CacheDir(), Progress: func(step string) { t.Log(step) }}).Build(t.Context(), guest.SuiteRecipe([]string{"sysbench"}).Xen())
	n.check(err)
	dom0 := n.boot(fleet.Options{Name: "xen1", VCPUs: 2, Memory: guest.XenMemory + (512+48)<<20})
	in = dom0.ssh
	const hide = `for serial in /sys/block/vd*/serial; do mount --bind /dev/null "$serial"; done`
	n.check(place.Run(t.Context(), in, "sh", "-c", hide))
	hostKey, err := ssh.NewPublicKey(dom0.Seed.HostKey.Public())
	n.check(err)
	home, _ := home(t)
	address, _, err := net.SplitHostPort(dom0.Address)
	n.check(err)
	writeKnownHosts(t, home, knownhosts.Line([]string{address}, hostKey))
	options = "host: 'ssh://root@" + address + "', identity: " + filepath.Join(n.fleet.Lab.Dir, "ssh.key") + "}"
	return in, inNamespace(n.fleet.Lab.HostNS(), home, unnest), options
}
