package experiment

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

const domainsFile = `name: mixes
suite: collocation
configurations:
  - {name: HVM, domains: [{type: hvm}]}
  - {name: HVM-idle, domains: [{type: hvm}], neighbours: 2}
  - {name: PVM-1k, domains: [{type: pvm, size: 1KiB}, {type: pvm, weight: 512}, {type: con, active: false}]}
cases:
  - {name: web, title: Apache, workload: apache, sizes: [1KiB, 100KiB], intensities: [10%, 100%], duration: 2s, options: {clients: 6}}
  - {name: peak, workload: apache, sizes: [1KiB], duration: 1s, options: {step: 100}}
`

func TestDomains(t *testing.T) {
	s, err := Parse("x.yaml", []byte(domainsFile))
	if err != nil {
		t.Fatal(err)
	}
	hvm := stack.Domain{Type: stack.HVM}
	want := [][]stack.Domain{
		{hvm}, {hvm, {Type: stack.HVM, Idle: true}, {Type: stack.HVM, Idle: true}},
		{{Type: stack.PVM, Size: 1024}, {Type: stack.PVM, Weight: 512}, {Type: stack.CON, Idle: true}},
	}
	for i, c := range s.Configurations {
		if diff := cmp.Diff(want[i], c.Domains); diff != "" || c.Stack.String() != "vm" {
			t.Errorf("%s: %s (-want +got):\n%s", c.Name, c.Stack, diff)
		}
	}
	var cases []string
	for _, c := range s.Cases {
		cases = append(cases, c.Name+" "+c.Title)
		if c.Primary != collocation.Aggregate || len(c.Metrics) != len(collocation.Metrics()) {
			t.Errorf("%s: %s of %d metrics", c.Name, c.Primary, len(c.Metrics))
		}
	}
	names := "web@10/1024 Apache at 10 % of full load, 1024 B|web@10/102400 Apache at 10 % of full load, 102400 B|" +
		"web@100/1024 Apache at 100 % of full load, 1024 B|web@100/102400 Apache at 100 % of full load, 102400 B|peak/1024 peak, 1024 B"
	if got := strings.Join(cases, "|"); got != names {
		t.Errorf("cases %s\nwant  %s", got, names)
	}
	if a, b := s.Cases[0], s.Cases[4]; a.Intensity != 10 || a.Params.Clients != 6 || b.Intensity != 0 || b.Params.Step != 100 || b.Wall <= a.Wall {
		t.Errorf("%+v\n%+v", a, b)
	}
	run := s.NewRun("id", 1, time.Now())
	for i := range run.Cases {
		run.Cases[i].Metrics = slices.DeleteFunc(slices.Clone(run.Cases[i].Metrics), func(m result.Metric) bool { return m.Name == collocation.Unsent })
		if _, err := FromRun("r", run); err == nil || !strings.HasSuffix(err.Error(), "r was begun by an earlier version, which counted failed requests otherwise: measure it again") {
			t.Errorf("resume without unsent: %v", err)
		}
	}
	if got := run.Configurations[1]; got.Options["domains"] != "hvm1+hvm2(idle)+hvm3(idle)" || run.Cases[0].Intensity != 10 {
		t.Errorf("run: %+v, %+v", got, run.Cases[0])
	}
}

func TestDomainsRefused(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"{type: hvm}", "{type: xen}", "configurations[0].domains[0].type: want hvm or pvm or con or hvmcon or pvmcon or host or xen-pv or xen-pvh or xen-hvm"},
		{"{type: hvm}", "{weight: 7}", "configurations[0].domains[0]: key type is missing"},
		{"domains: [{type: hvm}]", "stack: vm", "configurations[0]: key domains is missing"},
		{"domains: [{type: hvm}]", "neighbours: 1", "configurations[0].neighbours: key domains is missing"},
		{"domains: [{type: hvm}]", "domains: [{type: hvm}], stack: vm", "configurations[0].stack: domains have the stacks"},
		{"domains: [{type: hvm}]", "domains: [{type: hvm, active: false}]", "no domain is active"},
		{"workload: apache", "workload: nginx", "cases[0].workload: domains are loaded by workload apache only"},
		{"sizes: [1KiB, 100KiB], ", "", "key sizes is missing"},
		{"{clients: 6}", "{rate: 6}", "cases[0].options.rate: domains are loaded with intensities"},
		{"{clients: 6}", "{threads: 2}", "cases[0].options.threads: each load generator of domains has a thread"},
		{"{clients: 6}", "{clients: 101}", "cases[0].options.clients: apache: clients 101: want 1 to 100"},
		{"10%, 100%", "10%, 10%", "cases[0].intensities[1]: 10% is listed twice"},
		{"10%, 100%", "1.5%", "want a whole percentage from 1% to 200%"},
	} {
		_, err := Parse("x.yaml", []byte(strings.Replace(domainsFile, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s for %s: %v\nwant %s", tt.new, tt.old, err, tt.want)
		}
	}
	single := "name: x\nsuite: x\nconfigurations:\n  - {name: a, stack: vm}\ncases:\n  - {name: n, workload: nginx, duration: 1s, KEY}\n"
	for key, want := range map[string]string{
		"intensities: [10%], options: {rate: 1}": "intensities are of the load of domains",
		"options: {rate: 1, step: 1}":            "options step and clients are of the load of domains",
	} {
		if _, err := Parse("x.yaml", []byte(strings.Replace(single, "KEY", key, 1))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Values of several domains have the same metrics and different tags. What else the machine did is
// a tag of all.
func TestParts(t *testing.T) {
	s, err := Parse("x.yaml", []byte(domainsFile))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := rundir.Create(t.TempDir()+"/run", s.NewRun("id", 1, time.Now()))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	e := &engine{spec: s, dir: dir}
	x := Execution{Configuration: s.Configurations[0], Case: s.Cases[0]}
	part := func(name string, v float64) Part {
		return Part{map[string]string{"domain": name}, []workload.Value{{Metric: collocation.Server, Value: v}}}
	}
	o := Outcome{Values: []workload.Value{{Metric: collocation.Aggregate, Value: 30}}, Parts: []Part{part("hvm1", 10), part("hvm2", 20)}}
	samples, err := e.samples(x, o, time.Now(), time.Second)
	if err != nil || len(samples) != 3 || samples[0].Tags["domain"] != "" || samples[1].Tags["domain"] != "hvm1" || samples[2].Value != 20 {
		t.Fatalf("%+v, %v", samples, err)
	}
	o.Values = nil
	if _, err := e.samples(x, o, time.Now(), time.Second); err == nil || !strings.Contains(err.Error(), "gave no "+collocation.Aggregate) {
		t.Errorf("no aggregate: %v", err)
	}
}
