package experiment

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
)

func TestMachines(t *testing.T) {
	const gib = 1 << 30
	on := func(layers ...stack.Layer) stack.Configuration {
		return stack.Configuration{Name: stack.Stack(layers).String(), Stack: layers}
	}
	sized := func(vcpus int, memory int64) stack.Configuration {
		return stack.Configuration{Name: "sized", Stack: stack.Stack{stack.VM}, VCPUs: vcpus, Memory: memory}
	}
	for _, test := range []struct {
		overcommit    Overcommit
		guest         Guest
		configuration stack.Configuration
		want          []suite.Resources
	}{
		// FitzGerald 2014, §2.4: 4 cores and 16 GB, 3 and 14, 2 and 12.
		{Reserved, Guest{4, 16 * gib}, on(stack.VM, stack.VM), []suite.Resources{{VCPUs: 4, Memory: 16 * gib}, {VCPUs: 3, Memory: 14 * gib}, {VCPUs: 2, Memory: 12 * gib}}},
		{Full, Guest{4, 16 * gib}, on(stack.VM, stack.VM), []suite.Resources{{VCPUs: 4, Memory: 16 * gib}, {VCPUs: 4, Memory: 16 * gib}, {VCPUs: 4, Memory: 16 * gib}}},
		{"", Guest{2, gib}, on(stack.VM, stack.Containerd), []suite.Resources{{VCPUs: 2, Memory: gib}, {VCPUs: 2, Memory: gib}}},
		{Reserved, Guest{4, 16 * gib}, on(stack.Metal, stack.Containerd), []suite.Resources{{VCPUs: 4, Memory: 16 * gib}}},
		// Of more than 16 GiB a hypervisor keeps 2 GiB, of less an eighth.
		{Reserved, Guest{4, 64 * gib}, on(stack.VM), []suite.Resources{{VCPUs: 4, Memory: 64 * gib}, {VCPUs: 3, Memory: 62 * gib}}},
		{Reserved, Guest{3, 2 * gib}, on(stack.VM, stack.VM), []suite.Resources{{VCPUs: 3, Memory: 2 * gib}, {VCPUs: 2, Memory: 1792 << 20}, {VCPUs: 1, Memory: 1536 << 20}}},
		{Reserved, Guest{2, 1001 << 20}, on(stack.VM), []suite.Resources{{VCPUs: 2, Memory: 1001 << 20}, {VCPUs: 1, Memory: 876 << 20}}},
		// The hypervisors keep a part of the configuration's own size.
		{Reserved, Guest{1, gib}, sized(4, 16*gib), []suite.Resources{{VCPUs: 4, Memory: 16 * gib}, {VCPUs: 3, Memory: 14 * gib}}},
		{Full, Guest{1, gib}, sized(0, 3*gib), []suite.Resources{{VCPUs: 1, Memory: 3 * gib}, {VCPUs: 1, Memory: 3 * gib}}},
		{Full, Guest{2, gib}, on(stack.SSH), []suite.Resources{{VCPUs: 2, Memory: gib}}},
	} {
		s := &Spec{Guest: test.guest, Overcommit: test.overcommit}
		got, err := s.Machines(test.configuration)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s %+v %s (-want +got):\n%s", test.overcommit, test.guest, test.configuration, diff)
		}
		last := got[len(got)-1]
		last.Whole = got[0].Memory
		if r, err := s.Resources(test.configuration); err != nil || r != last {
			t.Errorf("%s: resources %+v, %v; want those of the last machine", test.configuration, r, err)
		}
	}
}

// For every guest, a level has less than the one below, and more than nothing unless
// there is an error.
func TestReservedLeavesSomething(t *testing.T) {
	failed := 0
	for vcpus := 1; vcpus <= 6; vcpus++ {
		for _, memory := range []int64{1 << 20, 64 << 20, 1 << 30, 16 << 30, 17 << 30} {
			s := &Spec{Guest: Guest{vcpus, memory}, Overcommit: Reserved}
			for depth := 1; depth <= 9; depth++ {
				c := stack.Configuration{Name: "x"}
				for range depth {
					c.Stack = append(c.Stack, stack.VM)
				}
				machines, err := s.Machines(c)
				if (err != nil) != (depth >= vcpus || int64(depth)*keptOf(memory) >= memory) {
					t.Errorf("%d vCPUs, %d bytes, %d levels: %v", vcpus, memory, depth, err)
				}
				if err != nil {
					failed++
					continue
				}
				for i, m := range machines {
					if m.VCPUs != vcpus-i || m.Memory <= 0 || i > 0 && m.Memory > machines[i-1].Memory {
						t.Errorf("%d vCPUs, %d bytes: %+v", vcpus, memory, machines)
					}
				}
			}
		}
	}
	if failed == 0 {
		t.Error("no stack was too deep")
	}
}

func TestRunNotesResources(t *testing.T) {
	s := specOf(2, 1, 6)
	s.Guest, s.Overcommit = Guest{4, 16 << 30}, Reserved
	s.Configurations[0].Stack = stack.Stack{stack.Metal}
	s.Configurations[1].Stack = stack.Stack{stack.VM, stack.VM}
	run := s.NewRun("r", 1, started)
	for i, want := range []map[string]string{{"vcpus": "4", "memory": "16GiB"}, {"vcpus": "2", "memory": "12GiB"}} {
		if diff := cmp.Diff(want, run.Configurations[i].Options); diff != "" {
			t.Errorf("configuration %d (-want +got):\n%s", i, diff)
		}
	}
}

// The release of guests is that of their configuration, else that of all. A place without a VM has none.
func TestRelease(t *testing.T) {
	spec, err := Parse("x.yaml", []byte(`name: x
suite: network
guest: {release: trixie}
configurations: [{name: host, stack: metal}, {name: new, stack: vm}, {name: old, stack: vm, release: bookworm}]
cases: [{name: a, workload: sockperf, protocol: udp, sizes: [64], duration: 1s}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []stack.Release{"", stack.Trixie, stack.Bookworm} {
		if c := spec.Configurations[i]; c.Release != want {
			t.Errorf("%s: release %q, want %q", c.Name, c.Release, want)
		}
	}
	for _, tt := range []struct{ old, new, want string }{
		{"stack: metal", "stack: vm/vm", "release trixie needs a VM of x86_64 on this host"},
		{"workload: sockperf, protocol: udp, sizes: [64]", "workload: kafka", "cases[0].workload: kafka needs openjdk-17-jre-headless, which Debian 13 does not have: want release bookworm in configuration new"},
	} {
		text := strings.Replace(spec.Text, tt.old, tt.new, 1)
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: got %v, want %q", tt.new, err, tt.want)
		}
	}
}
