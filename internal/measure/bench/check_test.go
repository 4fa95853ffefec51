package bench

import (
	"fmt"
	"strings"
	"testing"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/study/domains"
)

// Every study that comes with unnest can be brought up, but for those in an existing cluster.
func TestCheckStudies(t *testing.T) {
	for _, name := range experiments.List() {
		spec := benchtest.Open(t, name)
		if err := Check(spec); (err != nil) != spec.OfCluster() {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The servers of applications are in our container image, and not on every machine.
func TestSupportedOverSSH(t *testing.T) {
	const text = `name: mine
suite: applications
configurations:
  - {name: mine, stack: %s, host: "ssh://192.0.2.1"}
cases:
  - {name: memcached, workload: memcached, duration: 1s}
`
	for stacked, want := range map[string]string{
		"ssh":                           "stack ssh: the servers of applications come with our container image: use ssh/containerd or ssh/docker",
		"ssh/docker, network: nat":      "",
		"ssh/containerd":                "key network is missing: want host or nat",
		"ssh/containerd, network: host": "",
	} {
		err := Check(benchtest.Parse(t, fmt.Sprintf(text, stacked)))
		if (err != nil) != (want != "") || err != nil && !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", stacked, err, want)
		}
	}
}

func TestCheckServed(t *testing.T) {
	for configuration, want := range map[string]string{
		"{name: metal.local}":                      "",
		"{name: metal.remote}":                     "",
		"{name: metal.aufs}":                       "",
		"{name: vm.mnt.nat}":                       "",
		"{name: vm.aufs.host}":                     "",
		"{name: L2, stack: vm/vm}":                 "",
		"{name: far, stack: vm/vm, drive: remote}": "use drive local",
		"{name: own, stack: vm/containerd, network: brfusion, drive: remote}":                        "network brfusion: want host or nat",
		"{name: closed, stack: vm/containerd, drive: remote}":                                        "key network is missing",
		"{name: pod, stack: vm/containerd, network: localhost, drive: pod}":                          "drive pod",
		"{name: z, stack: vm, arch: s390x}":                                                          "",
		"{name: z, stack: vm, arch: s390x, drive: remote}":                                           "",
		"{name: z, stack: vm/containerd, arch: s390x}":                                               "use stack vm",
		"{name: z, stack: vm/vm, arch: aarch64}":                                                     "arch aarch64",
		"{name: docker, stack: vm/docker}":                                                           "",
		"{name: docker, stack: metal/docker}":                                                        "stack metal/docker: clients cannot reach it yet",
		"{name: PV, stack: xen-pv}":                                                                  "",
		`{name: mine, stack: ssh, host: "ssh://root@192.0.2.1"}`:                                     "use ssh/containerd or ssh/docker",
		`{name: mine, stack: ssh/docker, host: "ssh://root@192.0.2.1"}`:                              "",
		`{name: mine, stack: ssh/docker, host: "ssh://root@192.0.2.1", drive: remote}`:               "key network is missing",
		`{name: mine, stack: ssh/docker, host: "ssh://root@192.0.2.1", drive: remote, network: nat}`: "",
	} {
		spec := benchtest.Parse(t, "name: a\nconfigurations: ["+configuration+"]\ncases: [{suite: application}]\n")
		err := Check(spec)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", configuration, err, want)
		}
	}
}

// Cases that need different machines are refused when the file is read, and so is a suite of an earlier version.
func TestCheckRefusesCases(t *testing.T) {
	for cases, want := range map[string]string{
		"suite: network\ncases: [{name: rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}, {suite: sysbench}]\n": "experiment refused: cases of [suites workloads] need different machines: write one file for each",
		"suite: generators\ncases: [{name: closed, workload: apache, sizes: [1KiB], duration: 1s}]\n":                            "experiment refused: no study compares load generators any more: measure with an earlier version, or name another suite",
	} {
		err := Check(benchtest.Parse(t, "name: refused\nconfigurations: [{name: vm, stack: vm}]\n"+cases))
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestCheckProbes(t *testing.T) {
	for _, tt := range []struct{ cases, configuration, want string }{
		{"[{name: b, probe: boot}]", "{name: vmlinux, stack: vm}", ""},
		{"[{name: b, probe: boot}]", "{name: mine, stack: vm}", "configuration mine: probes boot and ready compare the kernels vmlinux and bzImage"},
		{"[{name: b, probe: boot}]", "{name: bzImage, stack: vm, arch: s390x}", "need stack vm and arch x86_64"},
		{"[{name: r, probe: ready}, {name: f, probe: ready-four}]", "{name: restored, stack: vm}", ""},
		{"[{name: r, probe: ready}]", "{name: restored, stack: vm, start: restored}", "start restored: the name of the configuration says how its guests begin"},
		{"[{name: s, probe: start}]", "{name: NAT, stack: vm/containerd, network: nat}", ""},
		{"[{name: s, probe: add}]", "{name: Host, stack: vm/containerd, network: host}", "configuration Host: want network nat, docker-bridge"},
		{"[{name: s, probe: start}]", "{name: VM, stack: vm}", "use stack vm/containerd"},
	} {
		spec := benchtest.Parse(t, "name: p\nsuite: p\nconfigurations: ["+tt.configuration+"]\ncases: "+tt.cases+"\n")
		err := Check(spec)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %s: got %v, want %q", tt.cases, tt.configuration, err, tt.want)
		}
	}
}

func TestCheckXen(t *testing.T) {
	for name, test := range map[string]struct{ configurations, cases, want string }{
		"suite":                 {"  - {name: PV, stack: xen-pv}\n", sysbenchCases, ""},
		"suite, host":           {"  - {name: PV, stack: xen-pv, host: \"ssh://x\"}\n", sysbenchCases, ""},
		"network":               {"  - {name: PV, stack: xen-pv}\n  - {name: VM, stack: vm}\n", networkCases, ""},
		"network, host":         {"  - {name: PV, stack: xen-pv, host: \"ssh://x\"}\n", networkCases, ""},
		"network, two hosts":    {"  - {name: A, stack: xen-pv, host: \"ssh://x\"}\n  - {name: B, stack: xen-pvh, host: \"ssh://y\"}\n", networkCases, "one Xen host at a time"},
		"suite, two hosts":      {"  - {name: A, stack: xen-pv, host: \"ssh://x\"}\n  - {name: B, stack: xen-pvh, host: \"ssh://y\"}\n", sysbenchCases, ""},
		"domains":               {"  - {name: PV, domains: [{type: xen-pv}, {type: xen-hvm}]}\n", apacheCases, ""},
		"domains of both hosts": {"  - {name: A, domains: [{type: xen-pv}]}\n  - {name: B, domains: [{type: pvm}]}\n", apacheCases, "have a host of their own"},
		"domains, host":         {"  - {name: PV, domains: [{type: xen-pv}], host: \"ssh://x\"}\n", apacheCases, ""},
		"domains, two hosts":    {"  - {name: A, domains: [{type: xen-pv}], host: \"ssh://x\"}\n  - {name: B, domains: [{type: xen-pv}]}\n", apacheCases, "all domains of a file have one host"},
	} {
		err := Check(benchtest.XenSpec(t, test.configurations, test.cases))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// An experiment with domains is one study. None of its metrics is one of those that studies add.
func TestDomainStudy(t *testing.T) {
	s := benchtest.Parse(t, benchtest.Mixes)
	if err := Check(s); err != nil {
		t.Fatal(err)
	}
	study, err := newStudy(s, machines.Options{})
	if _, ok := study.(*domains.Study); !ok || err != nil {
		t.Fatalf("got a %T, %v", study, err)
	}
	for _, m := range Metrics(s) {
		if m.Name == collocation.Utilisation {
			t.Error("a metric is twice in a case")
		}
	}
}

const (
	sysbenchCases = "  - {suite: sysbench}\n"
	networkCases  = "  - {name: a, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}\n"
	apacheCases   = "  - {name: a, workload: apache, sizes: [1KiB], intensities: [50%], duration: 1s}\n"
)
