package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/testbed/guest"
)

// metricNames checks the metrics of a case and returns their names.
func metricNames(t *testing.T, c result.Case) []string {
	t.Helper()
	var names []string
	for _, m := range c.Metrics {
		if err := m.Order.Validate(); err != nil || m.Unit == "" || slices.Contains(names, m.Name) {
			t.Errorf("%s: metric %+v has no order or unit, or is there twice (%v)", c.Name, m, err)
		}
		names = append(names, m.Name)
	}
	if !slices.Contains(names, c.Primary) {
		t.Errorf("%s: primary %s is not among %v", c.Name, c.Primary, names)
	}
	return names
}

// checkStudy checks a study that comes with unnest and returns the names of its
// configurations.
func checkStudy(t *testing.T, s *experiment.Spec) (names []string) {
	t.Helper()
	if len(s.Warnings()) > 0 {
		t.Errorf("its results are weak: %v", s.Warnings())
	}
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	for _, b := range s.Baselines {
		if !slices.Contains(names, b) {
			t.Errorf("baseline %s is not a configuration", b)
		}
	}
	return names
}

func TestBootStudy(t *testing.T) {
	s := open(t, "boot-kernel")
	checkStudy(t, s)
	if plan := experiment.Schedule(s, 1); len(plan) != 2*10 {
		t.Errorf("%d executions, want 10 of each kernel", len(plan))
	}
	names := metricNames(t, s.Cases[0].Case)
	values := bootValues(guest.BootTimes{
		Firmware: time.Second, Kernel: 2 * time.Second, Userspace: 3 * time.Second, SSH: 4 * time.Second, Total: 10 * time.Second,
	})
	want := map[string]float64{"total": 10, "firmware": 1, "kernel": 2, "userspace": 3, "ssh": 4}
	for _, v := range values {
		if !slices.Contains(names, v.Metric) || want[v.Metric] != v.Value {
			t.Errorf("got %+v, want %v of the metrics %v", v, want[v.Metric], names)
		}
	}
	if len(values) != len(names) {
		t.Errorf("%d values for %d metrics", len(values), len(names))
	}
}

// The study harness has the configurations that the code distinguishes, and metrics for
// CPU times and wall.
func TestHarnessSpec(t *testing.T) {
	s := open(t, "harness")
	s.AddMetrics(Metrics(s)...)
	names := checkStudy(t, s)
	if want := []string{byHand, through}; !slices.Equal(names, want) {
		t.Errorf("configurations are %v, want %v", names, want)
	}
	for _, c := range s.Cases {
		if names := metricNames(t, c.Case); !slices.Contains(names, "wall") || !slices.Contains(names, "host_usr") {
			t.Errorf("%s: metrics are %v, want wall and the CPU times among them", c.Name, names)
		}
	}
	if quick := Metrics(open(t, "quickstart")); len(quick) != 7 || slices.Equal(Metrics(s), quick) {
		t.Errorf("the metrics of the harness are among those of other studies: %v", quick)
	}
	for _, name := range []string{"boot", "boot-kernel", "startup", "levels"} {
		if got := Metrics(open(t, name)); got != nil {
			t.Errorf("%s: additional metrics are %v, want none", name, got)
		}
	}
}

// Cases that need different machines are refused when the file is read.
func TestCheckRefusesMixedCases(t *testing.T) {
	spec := mustParse(t, `name: mixed
suite: network
configurations: [{name: vm, stack: vm}]
cases:
  - {name: rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}
  - {suite: sysbench}
`)
	err := Check(spec)
	if want := "experiment mixed: cases of [suites workloads] need different machines: write one file for each"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
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
		{"[{name: s, probe: add}]", "{name: Host, stack: vm/containerd, network: host}", "configuration Host: want network nat, brfusion"},
		{"[{name: s, probe: start}]", "{name: VM, stack: vm}", "use stack vm/containerd"},
	} {
		spec := mustParse(t, "name: p\nsuite: p\nconfigurations: ["+tt.configuration+"]\ncases: "+tt.cases+"\n")
		err := Check(spec)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s in %s: got %v, want %q", tt.cases, tt.configuration, err, tt.want)
		}
	}
}

// No client is started ahead while one is run by hand, which it would disturb.
func TestHarnessNext(t *testing.T) {
	manual, unnest := newExecution(byHand, pingPong, 0), newExecution(through, pingPong, 0)
	for _, tt := range []struct {
		following []experiment.Execution
		want      int
	}{
		{[]experiment.Execution{manual, unnest}, 0},
		{[]experiment.Execution{unnest, manual}, 1},
		{[]experiment.Execution{unnest, unnest}, 2},
	} {
		h := harness{newServices(&Bench{})}
		h.Next(tt.following)
		if len(h.next) != tt.want {
			t.Errorf("%v: %d are foretold, want %d", tt.following, len(h.next), tt.want)
		}
	}
	h := harness{newServices(&Bench{})}
	for i, first := range []experiment.Execution{manual, unnest} {
		h.instances = newBench(&clock{}).instances
		h.instances[byHand], h.instances[through] = h.instances["NAT"], h.instances["NAT"]
		h.services.client = &clock{}
		if err := h.Renew(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if len(h.early) != i {
			t.Errorf("before %s: %d clients are started ahead, want %d", first, len(h.early), i)
		}
	}
	h.dropEarly()
}

// Missing binaries are reported before a guest image is made.
func TestBuildImageWithoutPrograms(t *testing.T) {
	t.Setenv("UNNEST_CACHE", t.TempDir())
	dir := t.TempDir()
	_, err := BuildImage(t.Context(), dir, func(step string) { t.Errorf("it begins to %s", step) })
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v; want an error that names `make build`", err)
	}
}
