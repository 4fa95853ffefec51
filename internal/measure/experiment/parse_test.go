package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/stack"
)

const small = `name: small
suite: network
configurations:
  - {name: NoCont}
  - {name: fused, stack: vm/containerd, network: brfusion}
cases:
  - name: udp_rr
    title: UDP ping-pong
    workload: sockperf
    protocol: udp
    sizes: [64, 1KiB]
    duration: 1s
    timeout: 20s
  - {name: tcp_stream, workload: iperf3, protocol: tcp, sizes: [1280], duration: 2s}
`

func mustParse(t *testing.T, text string) *Spec {
	t.Helper()
	s, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseFillsWhatIsLeftOut(t *testing.T) {
	s := mustParse(t, small)
	if s.Text != small || s.Name != "small" || s.Title != "small" || s.Suite != "network" {
		t.Errorf("name %q, title %q, suite %q", s.Name, s.Title, s.Suite)
	}
	if s.Repetitions != 6 || s.Warmup != 1 || s.Retries != 2 || s.Seed != 0 || s.Guest != (Guest{1, 1 << 30}) {
		t.Errorf("defaults: %+v", s)
	}
	configurations := []stack.Configuration{
		{Name: "NoCont", Stack: stack.Stack{stack.VM}},
		{Name: "fused", Stack: stack.Stack{stack.VM, stack.Containerd}, Network: stack.BrFusion},
	}
	if diff := cmp.Diff(configurations, s.Configurations); diff != "" {
		t.Errorf("configurations (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"NoCont"}, s.Baselines); diff != "" {
		t.Errorf("baselines (-want +got):\n%s", diff)
	}
	var got []string
	for _, c := range s.Cases {
		got = append(got, strings.Join([]string{c.Name, c.Group, c.Title, c.Tool, string(c.Params.Protocol),
			c.Params.Duration.String(), c.Timeout.String(), c.Primary, c.Suite}, "|"))
		if c.Size != c.Params.Size || len(c.Metrics) == 0 {
			t.Errorf("%s: size %d, of its parameters %d, metrics %v", c.Name, c.Size, c.Params.Size, c.Metrics)
		}
	}
	want := []string{
		"udp_rr/64|udp_rr|UDP ping-pong, 64 B|sockperf|udp|1s|20s|latency_mean|network",
		"udp_rr/1024|udp_rr|UDP ping-pong, 1024 B|sockperf|udp|1s|20s|latency_mean|network",
		"tcp_stream/1280|tcp_stream|tcp_stream, 1280 B|iperf3|tcp|2s|1m0s|throughput|network",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
}

func TestParseAllKeys(t *testing.T) {
	s := mustParse(t, `
name: all
title: "All: keys"
description: |
  Two
  lines.
suite: disk
baselines: [b]
guest: {vcpus: 5, memory: 4GiB}
configurations:
  - {name: a, stack: metal}
  - {name: b, stack: metal/docker, network: host, storage: volume}
cases:
  - {name: c, title: C, workload: iperf3, protocol: tcp, sizes: [1280], duration: 1s, warmup: 1s, options: {nodelay: true}}
repetitions: 7
warmup: 0
retries: 0
timeout: 5s
seed: 18446744073709551615
`)
	if s.Title != "All: keys" || s.Description != "Two\nlines.\n" || s.Guest != (Guest{5, 4 << 30}) ||
		s.Repetitions != 7 || s.Warmup != 0 || s.Retries != 0 || s.Seed != 1<<64-1 || s.Baselines[0] != "b" {
		t.Errorf("%+v", s)
	}
	c := s.Cases[0]
	if c.Timeout != 5*time.Second || c.Params.Warmup != time.Second || !c.Params.NoDelay {
		t.Errorf("%+v", c)
	}
	if s.Configurations[1].Storage != stack.Volume {
		t.Errorf("%+v", s.Configurations[1])
	}
}

// Each test replaces a part of the small file and wants these lines.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{"1KiB]", "-3]", `x.yaml:11: cases[0].sizes[1]: want a positive number of bytes such as 1280, 64KiB or 2GiB, got "-3"`},
		{"1KiB]", "64]", `x.yaml:11: cases[0].sizes[1]: 64 is listed twice`},
		{"1KiB]", "3]", `x.yaml:11: cases[0].sizes[1]: sockperf: size 3: want 14 to 65507 bytes`},
		{"    sizes: [64, 1KiB]\n", "", `x.yaml:7: cases[0]: sockperf: size 0: want 14`},
		{"[64, 1KiB]", "[]", `x.yaml:11: cases[0].sizes: the list is empty`},
		{"[64, 1KiB]", "1280", `x.yaml:11: cases[0].sizes: want a list, got "1280"`},
		{"[64, 1KiB]", "[[1]]", `x.yaml:11: cases[0].sizes[0]: want a single value, got a list`},
		{"sizes: [64, 1KiB]", "sizes: [3GiB]", `x.yaml:11: cases[0].sizes[0]: want at most 1GiB, got "3GiB"`},
		{"duration: 1s", "duration: 5", `x.yaml:12: cases[0].duration: want a duration such as 200ms, 1s or 2m, got "5"`},
		{"duration: 1s", "duration:", `x.yaml:12: cases[0].duration: want a duration such as 200ms, 1s or 2m, got ""`},
		{"timeout: 20s", "timeout: 3s", `x.yaml:13: cases[0].timeout: want more than the 3.25s that an execution takes, got "3s"`},
		{"duration: 2s", "timeout: 9s", `x.yaml:14: cases[1]: key duration is missing`},
		{"workload: sockperf", "workload: netperf", `x.yaml:9: cases[0].workload: `},
		{"protocol: udp", "protocol: sctp", `x.yaml:10: cases[0].protocol: sockperf: protocol "sctp": want udp or tcp`},
		{"protocol: udp", "protcol: udp", `x.yaml:10: cases[0].protcol: unknown key: did you mean protocol?`},
		{"protocol: udp", "colour: red", `x.yaml:10: cases[0].colour: unknown key: want one of duration, except, intensities, name, only, options, probe, protocol, repetitions, sizes, suite, timeout, title, warmup, workload`},
		{"protocol: udp", `"co\nlour": red`, `x.yaml:10: cases[0]."co\nlour": unknown key: want one of`},
		{"protocol: udp", "options: [a]", `x.yaml:10: cases[0].options: want keys and values such as clients, connections, nodelay, got a list`},
		{"protocol: udp", "options: {nodelay: maybe}", `x.yaml:10: cases[0].options.nodelay: want true or false, got "maybe"`},
		{"protocol: udp", "protocol: udp\n    options: {rate: 100}", `x.yaml:11: cases[0].options: sockperf: options threads, connections and rate: leave them out`},
		{"protocol: udp", "protocol: udp\n    options: {rate: 0}", `x.yaml:11: cases[0].options.rate: want a whole number from 1 to 2147483647, got "0"`},
		{"workload: sockperf", "workload: nginx", `x.yaml:10: cases[0].protocol: nginx: protocol "udp": leave it out, it is tcp`},
		{"protocol: udp", "protocol: udp\n    options: {nodelay: true}", `x.yaml:11: cases[0].options.nodelay: sockperf: nodelay`},
		{"duration: 1s", "duration: 500ms", `x.yaml:12: cases[0].duration: sockperf: duration 500ms: want whole seconds`},
		{"name: tcp_stream", "name: udp_rr", `x.yaml:14: cases[1].name: "udp_rr" is already the name of cases[0]`},
		{"name: tcp_stream", "name: tcp/stream", `x.yaml:14: cases[1].name: want letters, digits, _, - and . only, got "tcp/stream"`},
		{"name: fused", "name: NoCont", `x.yaml:5: configurations[1].name: "NoCont" is the name of an earlier configuration`},
		{"name: NoCont", "name: other", `x.yaml:4: configurations[0]: key stack is missing`},
		{"{name: NoCont}", "{stack: vm}", `x.yaml:4: configurations[0]: key name is missing`},
		{"{name: NoCont}", "NoCont", `x.yaml:4: configurations[0]: want keys and values such as arch, domains, drive, got "NoCont"`},
		{"stack: vm/containerd", "stack: vm/kvm", `x.yaml:5: configurations[1].stack: stack "vm/kvm": unknown layer "kvm": want metal, vm, ssh, xen-pv, xen-pvh, xen-hvm, kubernetes, containerd, docker or podman`},
		{"stack: vm/containerd", "stack: metal/containerd", `x.yaml:5: configurations[1]: configuration "fused": network brfusion needs a container in a VM: its VMM plugs the NIC; use a stack such as vm/containerd`},
		{", network: brfusion", "", `x.yaml:5: configurations[1]: key network is missing: want host, nat or brfusion`},
		{"suite: network\n", "", `x.yaml:1: key suite is missing`},
		{"suite: network", "suite: [network]", `x.yaml:2: suite: want a single value, got a list`},
		{"suite: network", "suite: network\nbaselines: [NAT]", `x.yaml:3: baselines[0]: no configuration is named "NAT": there are NoCont, fused`},
		{"suite: network", "suite: network\nbaselines: [fused, fused]", `x.yaml:3: baselines[1]: "fused" is listed twice`},
		{"suite: network", "suite: network\nrepetitions: 0", `x.yaml:3: repetitions: want a whole number from 1 to 10000, got "0"`},
		{"suite: network", "suite: network\nrepetition: 6", `x.yaml:3: repetition: unknown key: did you mean repetitions?`},
		{"suite: network", "suite: network\nsuite: disk", `x.yaml:3: parse YAML: `},
		{"suite: network", "suite: network\nseed: 0", `x.yaml:3: seed: want a whole number above 0, got "0"`},
		{"suite: network", "suite: network\nguest: {memory: 1GB}", `x.yaml:3: guest.memory: want whole MiB such as 512MiB or 2GiB, got "1GB"`},
		{"suite: network", "suite: network\nguest: {memory: 0.7GiB}", `x.yaml:3: guest.memory: want whole MiB such as 512MiB or 2GiB, got "0.7GiB"`},
		{"network: brfusion", "network: brfusion, memory: 1048577", `x.yaml:5: configurations[1].memory: want whole MiB such as 512MiB or 2GiB, got "1048577"`},
		{"suite: network", "suite: network\nguest: {memory: 9223372036854775807GiB}", `x.yaml:3: guest.memory: want whole MiB`},
		{"suite: network", "suite: network\nengine: runc", `x.yaml:3: engine: unknown engine "runc": want containerd, docker or podman`},
		{"stack: vm/containerd, network: brfusion}", "stack: vm}\nengine: docker", `x.yaml:6: engine: no configuration has stack vm/containerd`},
		{"suite: network", "suite: network\nguest:", `x.yaml:3: guest: want keys and values such as memory, release, vcpus, got nothing`},
		{"suite: network", "suite: &a network", `x.yaml:2: suite: want a single value, got a YAML anchor, alias or tag, which is not supported`},
		{"suite: network", "suite: network\n  broken", `x.yaml:`},
		{"suite: network", "suite: network\nuntil: 3", `x.yaml:3: until: want a percentage between 0% and 100% such as 3% or 0.5%, got "3"`},
		{"suite: network", "suite: network\nuntil: 0%\nlimit: 9", `x.yaml:3: until: want a percentage`},
		{"suite: network", "suite: network\nuntil: NaN%\nlimit: 9", `x.yaml:3: until: want a percentage`},
		{"suite: network", "suite: network\nuntil: 3%", `x.yaml:3: until: key limit is missing: add the maximum`},
		{"suite: network", "suite: network\nlimit: 9", `x.yaml:3: limit: key until is missing: add it`},
		{"suite: network", "suite: network\nuntil: 3%\nlimit: 5", `x.yaml:4: limit: want at least the 6 repetitions, got 5`},
		{"suite: network", "suite: network\nprofile: quick", `x.yaml:3: profile: no case is of a suite: leave it out`},
		{"suite: network", "suite: network\nprofile: slow", `x.yaml:3: profile: want quick or paper, got "slow"`},
		{"suite: network", "suite: network\novercommit: none", `x.yaml:3: overcommit: want full or reserved, got "none"`},
		{"network: brfusion}", "network: brfusion, vcpus: 1}\novercommit: reserved\nguest: {vcpus: 2}", `x.yaml:5: configurations[1]: overcommit reserved leaves nothing for level 1 of stack vm/containerd: each hypervisor below keeps 1 vCPU and 128MiB, and the guest has vcpus 1 and memory 1GiB: raise them, or use overcommit full`},
		{"network: brfusion", "network: brfusion, vcpus: 0", `x.yaml:5: configurations[1].vcpus: want a whole number from 1 to 1024, got "0"`},
		{"network: brfusion", "network: brfusion, memory: 1GB", `x.yaml:5: configurations[1].memory: want whole MiB such as 512MiB or 2GiB, got "1GB"`},
		{"network: brfusion", "network: brfusion, arch: amd64", `x.yaml:5: configurations[1]: configuration "fused": unknown architecture "amd64"`},
		{"network: brfusion", "network: brfusion, drive: near", `x.yaml:5: configurations[1]: configuration "fused": unknown drive "near"`},
		{"network: brfusion", "network: brfusion, host: ssh://h", `x.yaml:5: configurations[1]: configuration "fused": host ssh://h needs a machine reached over SSH`},
		{"stack: vm/containerd, network: brfusion", "stack: ssh", `x.yaml:5: configurations[1]: configuration "fused": stack ssh has no host: add host=ssh://user@address:port`},
		{"protocol: udp", "only: [a]", `x.yaml:10: cases[0].only: only cases of a suite can be chosen: add key suite`},
		{"protocol: udp", "suite: nothing", `x.yaml:7: cases[0].name: a case of a suite has its own: leave it out`},
		{small, "", `x.yaml:1: the file is empty`},
		{small, "- a", `x.yaml:1: want keys and values such as baselines, cases, configurations, got a list`},
		{small, small + "---\na: b\n", `x.yaml:16: a second document begins: want one in a file`},
		{small, strings.Repeat("[", 5000), `x.yaml: the file has 5000 opening brackets: want at most 4096`},
		{small, strings.Repeat("#", maxFile+1), `x.yaml: the file has 32769 bytes: want at most 32768`},
	} {
		text := strings.Replace(small, test.old, test.new, 1)
		if text == small {
			t.Fatalf("nothing to replace: %q", test.old)
		}
		_, err := Parse("x.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q for %q:\n got %v\nwant %s", test.new, test.old, err, test.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: more than one line: %v", test.new, test.old, err)
		}
	}
}

func TestParseTellsEveryMistake(t *testing.T) {
	text := strings.NewReplacer("1KiB", "0", "name: small", "nam: small", "2s", "later").Replace(small)
	_, err := Parse("x.yaml", []byte(text))
	want := `x.yaml:1: nam: unknown key: did you mean name?
x.yaml:11: cases[0].sizes[1]: want a positive number of bytes such as 1280, 64KiB or 2GiB, got "0"
x.yaml:14: cases[1].duration: want a duration such as 200ms, 1s or 2m, got "later"`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestWarnings(t *testing.T) {
	s := mustParse(t, small)
	if got := s.Warnings(); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
	s.Repetitions = 5
	s.Configurations = s.Configurations[:1]
	if got := s.Warnings(); len(got) != 2 || !strings.Contains(got[0], "at least 6") {
		t.Errorf("warnings %q", got)
	}
}

func TestRunAndBack(t *testing.T) {
	s := mustParse(t, small)
	s.Repetitions = 9
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	run := s.NewRun("r1", 7, started)
	if run.ID != "r1" || run.Seed != 7 || !run.Started.Equal(started) || run.File != small || !run.Interleaved ||
		run.Planned != 9*3*2 || len(run.Cases) != 3 || run.Configurations[1].Stack != "vm/containerd" ||
		run.Configurations[1].Options["network"] != "brfusion" || run.State != "running" {
		t.Errorf("%+v", run)
	}
	again, err := FromRun("results/r1", run)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Errorf("(-first +again):\n%s", diff)
	}
	run.File = "name: x"
	if _, err := FromRun("results/r1", run); err == nil || !strings.Contains(err.Error(), "results/r1") {
		t.Errorf("error %v does not name the run", err)
	}
}

func TestEmbeddedExperiments(t *testing.T) {
	for name, limit := range map[string][2]time.Duration{
		"quickstart": {3 * time.Minute, 5 * time.Minute},
		"network":    {10 * time.Minute, 40 * time.Minute},
		"selftest":   {10 * time.Second, 40 * time.Second},
		"brfusion":   {15 * time.Minute, 45 * time.Minute},
		"aa":         {5 * time.Minute, 12 * time.Minute},
	} {
		file, data, err := experiments.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Estimate(); got < limit[0] || got > limit[1] {
			t.Errorf("%s takes %s, want between %s and %s", name, got, limit[0], limit[1])
		}
		if s.Name != name {
			t.Errorf("%s is named %s", name, s.Name)
		}
		if warned := len(s.Warnings()) > 0; warned != (name == "selftest") {
			t.Errorf("%s: warnings %q", name, s.Warnings())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range experiments.List() {
		_, data, err := experiments.Open(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, text := range []string{small, "", "a", "[", "{", "- -", "? a\n: b", "name: *a", "name: &a b", "<<: {a: b}",
		"name: !!int x", "---\n---\n", "name: |\n  x", "name: >-\n", "configurations: [[[{", "\x00", "a: b: c", "%YAML 1.2\n---\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse("fuzz.yaml", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "fuzz.yaml:") {
					t.Fatalf("error %q does not name the file", line)
				}
			}
			return
		}
		if _, err := FromRun("r", s.NewRun("r", 1, time.Time{})); err != nil {
			t.Fatalf("parsed once, but not twice: %v", err)
		}
		if len(s.Cases) == 0 || len(s.Configurations) == 0 || s.Repetitions < 1 || len(s.Baselines) == 0 {
			t.Fatalf("an empty experiment: %+v", s)
		}
	})
}

// The engine of the experiment runs the containers in VMs in place of containerd.
func TestEngine(t *testing.T) {
	spec, err := Parse("x.yaml", []byte(`name: x
suite: network
engine: podman
configurations: [{name: NoCont}, {name: NAT}, {name: metal.aufs}, {name: other, stack: vm/containerd, network: nat}, {name: DockerNAT}]
cases: [{name: udp_rr, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}]
`))
	if err != nil {
		t.Fatal(err)
	}
	var stacks []string
	for _, c := range spec.Configurations {
		stacks = append(stacks, c.Stack.String())
	}
	if diff := cmp.Diff([]string{"vm", "vm/podman", "metal/containerd", "vm/podman", "vm/docker"}, stacks); diff != "" {
		t.Error(diff)
	}
}
