package levels

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/papers"
)

func TestNestings(t *testing.T) {
	conf := func(name, stack string, options ...string) result.Configuration {
		c := result.Configuration{Name: name, Stack: stack, Options: map[string]string{}}
		for _, o := range options {
			key, value, _ := strings.Cut(o, "=")
			c.Options[key] = value
		}
		return c
	}
	tests := []struct {
		name           string
		configurations []result.Configuration
		want           []string // name, level, below
	}{
		{"one level", []result.Configuration{conf("NoCont", "vm"), conf("by-hand", "vm")}, nil},
		{"containers are not levels", []result.Configuration{conf("vm.local", "vm"), conf("vm.aufs", "vm/docker"), conf("metal.aufs", "metal/containerd")}, nil},
		{"the thesis, in any order", []result.Configuration{conf("L2", "vm/vm"), conf("L0", "metal"), conf("L1", "vm")},
			[]string{"L0 0 ", "L1 1 L0", "L2 2 L1"}},
		{"a level left out", []result.Configuration{conf("L0", "metal"), conf("L2", "vm/vm")}, []string{"L0 0 ", "L2 2 L0"}},
		{"what stands above the VMs is shared", []result.Configuration{
			conf("metal.local", "metal"), conf("metal.aufs", "metal/docker"), conf("vm.local", "vm"), conf("vm.aufs", "vm/docker")},
			[]string{"metal.local 0 ", "vm.local 1 metal.local", "metal.aufs 0 ", "vm.aufs 1 metal.aufs"}},
		{"options are shared, but for the size", []result.Configuration{
			conf("a", "metal/docker", "network=nat"), conf("b", "vm/docker", "network=nat", "vcpus=2", "memory=1GiB"), conf("c", "vm/docker", "network=host")},
			[]string{"a 0 ", "b 1 a"}},
		{"two of a level share the one below", []result.Configuration{conf("L0", "metal"), conf("L1", "vm"), conf("L1-3", "vm"), conf("L2", "vm/vm"), conf("L2-2", "vm/vm")},
			[]string{"L0 0 ", "L1 1 L0", "L1-3 1 L0", "L2 2 L1", "L2-2 2 L1-3"}},
		{"a machine reached over SSH has no known level", []result.Configuration{conf("far", "ssh"), conf("L1", "vm")}, nil},
	}
	for _, tt := range tests {
		var got []string
		for _, r := range levelRows(nestings(result.Run{Configurations: tt.configurations})) {
			got = append(got, fmt.Sprintf("%s %d %s", r.name, r.level, r.below))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestPublishedMatches(t *testing.T) {
	tests := []struct {
		test string
		of   result.Case
		want bool
	}{
		{"cpu", result.Case{Name: "cpu", Tool: "sysbench"}, true},
		{"cpu", result.Case{Name: "sysbench-cpu", Tool: "sh"}, true},
		{"memory (write)", result.Case{Name: "sysbench-memory-write"}, true},
		{"memory (write)", result.Case{Name: "memory_write/16", Group: "memory_write", Tool: "sysbench"}, true},
		{"memory (write)", result.Case{Name: "sysbench-memory-read", Tool: "sysbench"}, false},
		{"cpu", result.Case{Name: "cpu", Tool: "stress-ng"}, false},
		{"cpu", result.Case{Name: "sysbench-cpus", Tool: "sysbench"}, false},
	}
	for _, tt := range tests {
		if got := testMatches(tt.test, tt.of); got != tt.want {
			t.Errorf("%q of %+v: %v", tt.test, tt.of, got)
		}
	}
	for _, unit := range []string{"MiB/s", "Mbit/s"} {
		if _, _, ok := publishedMean(papers.SysbenchRow{Throughput: papers.Mean{Mean: "1068.5", StdErr: "2.40"}}, result.Metric{Name: throughput, Unit: unit}); ok {
			t.Errorf("transactions per second match %s", unit)
		}
	}
	for name, want := range map[string]bool{"L1": true, "L1-3": true, "L1.small": true, "L10": false, "xL1": false} {
		if got := namedAfter(name, "L1"); got != want {
			t.Errorf("%s is named after L1: %v", name, got)
		}
	}
}

// Every row of the thesis has a throughput and a response time with standard errors.
func TestLevels(t *testing.T) {
	rows := papers.All().Levels
	if len(rows) != 60 {
		t.Fatalf("%d rows, want 60", len(rows))
	}
	if r := rows[1]; r.Architecture != "S390x" || r.Level != "L1" || !r.Overcommitted || r.Test != "cpu" || r.Throughput.Mean != "1041.3" || r.Throughput.StdErr != "18.60" || r.Response.Mean != "3.8450" || r.Response.StdErr != "0.0707" {
		t.Errorf("Table 5, L1: %+v", r)
	}
	for _, r := range rows {
		for _, name := range []string{throughput, response} {
			mean, stdErr, ok := publishedMean(r, result.Metric{Name: name, Unit: "ms"})
			if printed := map[string]papers.Mean{throughput: r.Throughput, response: r.Response}[name]; ok != (printed.Mean != "") || ok && (!mean.Defined() || printed.StdErr != "" && !stdErr.Defined()) {
				t.Errorf("%s of %+v: %v, %v, %v", name, r, mean, stdErr, ok)
			}
		}
	}
}
