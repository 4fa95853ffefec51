package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/xen"
)

func xenSpec(t *testing.T, configurations, cases string) *experiment.Spec {
	t.Helper()
	suite := "suite: x\n"
	if strings.Contains(cases, "suite: sysbench") {
		suite = ""
	}
	spec, err := experiment.Parse("x.yaml", []byte("name: x\n"+suite+"guest: {vcpus: 4, memory: 512MiB}\nconfigurations:\n"+
		configurations+"cases:\n"+cases+"repetitions: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

const (
	sysbenchCases = "  - {suite: sysbench}\n"
	networkCases  = "  - {name: a, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}\n"
	apacheCases   = "  - {name: a, workload: apache, sizes: [1KiB], intensities: [50%], duration: 1s}\n"
)

// The guest with Xen has room for each domain of the file, once, and not for those on hosts of the
// user's.
func TestXenOptions(t *testing.T) {
	for name, test := range map[string]struct {
		configurations, cases string
		domains               int64
		accel                 guest.Accel
		processors            int
	}{
		"stacks": {"  - {name: PV, stack: xen-pv}\n  - {name: PVH, stack: xen-pvh}\n  - {name: VM, stack: vm}\n" +
			"  - {name: R, stack: xen-pv, host: \"ssh://x\"}\n", sysbenchCases, 2, guest.KVM, 4},
		"domains": {"  - {name: A, domains: [{type: xen-pv}]}\n  - {name: B, domains: [{type: xen-pv}, {type: xen-pv}, {type: xen-pvh}]}\n", apacheCases, 3, guest.KVM, 4},
		// Such domains die if the emulated host has more processors.
		"emulated hardware virtualization": {"  - {name: PV, stack: xen-pv}\n  - {name: HVM, stack: xen-hvm}\n", sysbenchCases, 2, guest.TCG, 1},
		"emulated, PV only":                {"  - {name: PV, stack: xen-pv}\n  - {name: PVH, stack: xen-pvh, host: \"ssh://x\"}\n", sysbenchCases, 1, guest.TCG, 4},
	} {
		b := &Bench{spec: xenSpec(t, test.configurations, test.cases), images: images{xen: guest.Image{Digest: "x"}}, options: Options{Accel: test.accel}}
		o, err := b.xenOptions()
		if want := guest.XenMemory + test.domains*(512<<20+xenOverhead); err != nil || o.Memory != want || o.VCPUs != test.processors || o.Image.Digest != "x" {
			t.Errorf("%s: got %d bytes, %d vCPUs, %v; want %d bytes", name, o.Memory, o.VCPUs, err, want)
		}
		if extras, err := o.Extras(xen.Addresses()[0]); err != nil || !slices.Equal(extras.Addresses, xen.Addresses()) {
			t.Errorf("%s: got %v, %v", name, extras, err)
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
		err := Check(xenSpec(t, test.configurations, test.cases))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v; want %q", name, err, test.want)
		}
	}
}

// Each configuration has a domain of its own.
func TestXenMachineKeys(t *testing.T) {
	spec := xenSpec(t, "  - {name: A, stack: xen-pv}\n  - {name: B, stack: xen-pv}\n  - {name: C, stack: xen-pv, host: \"ssh://x\"}\n", sysbenchCases)
	seen := map[string]bool{}
	for _, c := range spec.Configurations {
		key, err := machineKey(spec, c)
		if err != nil || seen[key] || key == xenKey+c.Host {
			t.Errorf("%s: %q, %v", c.Name, key, err)
		}
		seen[key] = true
	}
	if k := kindOf(stack.Stack{stack.XenPVH}); k != xen.PVH {
		t.Errorf("got %q", k)
	}
}

// What is not of the run is the host's: dom0, and domains of others.
func TestProcessorValues(t *testing.T) {
	h := &xenHost{Host: xen.Host{Dir: "/var/tmp/unnest-run-a"}}
	values := h.processorValues([]xen.Sample{
		{Percent: map[string]float64{"Domain-0": 90, "unnest-run-a-xen-pv1": 40, "unnest-run-b-pv": 6}},
		{Percent: map[string]float64{"Domain-0": 100, "unnest-run-a-xen-pv1": 60, "unnest-run-b-pv": 4}},
	})
	for name, want := range map[string]float64{"xen-pv1": 50, ofHost: 100} {
		if v := values[name]; len(v) != 1 || v[0].Value != want {
			t.Errorf("%q: got %v, want %v", name, v, want)
		}
	}
	if len(values) != 2 || values["xen-pv1"][0].Metric != collocation.Utilisation || values[ofHost][0].Metric != collocation.HostCPU {
		t.Errorf("got %v", values)
	}
}

// Domains that are not of the run are the host's, and one of the run that was asleep had no execution.
func TestExecutionValues(t *testing.T) {
	h := &xenHost{Host: xen.Host{Dir: "/var/tmp/unnest-run-a"}}
	values := executionValues(h.reading(xen.Trace{Window: 2 * time.Second, Domains: map[int]xen.Scheduled{
		0: {CPU: time.Second, Waiting: time.Second, Executions: 100, Waited: 60, Preempted: 40},
		3: {CPU: 500 * time.Millisecond, Waiting: 3 * time.Second, Executions: 50, Waited: 20, Preempted: 30},
		5: {CPU: time.Second, Executions: 100},
	}}, []xen.Entry{{Name: "unnest-run-a-xen-pv1", ID: 3}, {Name: "unnest-run-a-xen-pv2", ID: 4}}))
	for name, want := range map[string]map[string]float64{
		"xen-pv1": {collocation.Executions: 25, collocation.PerExecution: 10000, collocation.Waiting: 150, collocation.Voluntary: 10, collocation.Involuntary: 15},
		"xen-pv2": {collocation.Executions: 0, collocation.PerExecution: 0, collocation.Waiting: 0, collocation.Voluntary: 0, collocation.Involuntary: 0},
		ofHost:    {collocation.HostExecutions: 100, collocation.HostPerExecution: 10000},
	} {
		if diff := cmp.Diff(want, byMetric(t, values[name])); diff != "" {
			t.Errorf("%q differs (-want +got):\n%s", name, diff)
		}
	}
	if len(values) != 3 {
		t.Errorf("got %v", values)
	}
}
