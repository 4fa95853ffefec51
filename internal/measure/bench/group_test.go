package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hierarchy makes files of a control group's file system in a directory.
func hierarchy(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// The files of a group in both versions. The kernel makes those that a test makes by hand.
func TestGroup(t *testing.T) {
	v1 := map[string]string{
		"cpu/cgroup.procs": "", "cpuacct/cgroup.procs": "", "cpuset/cgroup.procs": "", "cpuset/cpuset.mems": "0\n", "unified/cgroup.procs": "",
		"cpu/lab/hvm1/cpu.shares": "1024", "cpu/lab/hvm1/cpu.cfs_quota_us": "-1", "cpuacct/lab/hvm1/cpuacct.usage": "1500000000\n",
		"cpuset/lab/hvm1/cpuset.mems": "", "cpuset/lab/cpuset.mems": "", "cpuset/lab/cpuset.cpus": "", "cpuset/lab/hvm1/cpuset.cpus": "", "cpu/lab/hvm1/cgroup.procs": "",
		"cpuacct/lab/hvm1/cgroup.procs": "", "cpuset/lab/hvm1/cgroup.procs": "", "unified/lab/hvm1/cgroup.procs": "",
	}
	v2 := map[string]string{
		"cgroup.controllers": "cpu cpuset", "cgroup.subtree_control": "", "lab/cgroup.subtree_control": "", "lab/hvm1/cpu.weight": "100",
		"lab/hvm1/cpu.max": "max 100000", "lab/hvm1/cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "lab/hvm1/cpuset.cpus": "", "lab/hvm1/cgroup.procs": "",
	}
	for _, tt := range []struct {
		files         map[string]string
		counted, want string
	}{
		{v1, "unified/lab/hvm1", "cpu/lab/hvm1/cpu.shares=256 cpu/lab/hvm1/cpu.cfs_quota_us=200000 cpuset/lab/hvm1/cpuset.cpus=0,1 cpuset/lab/cpuset.mems=0 cpuset/lab/hvm1/cgroup.procs=77 unified/lab/hvm1/cgroup.procs=77"},
		{v2, "lab/hvm1", "lab/hvm1/cpu.weight=10 lab/hvm1/cpu.max=200000_100000 lab/hvm1/cpuset.cpus=0,1 lab/hvm1/cgroup.procs=77 lab/cgroup.subtree_control=+cpu_+cpuset"},
	} {
		root := hierarchy(t, tt.files)
		g, err := makeGroup(root, "lab/hvm1", "0,1")
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []func() error{func() error { return g.weigh(256) }, func() error { return g.limit(2) }, func() error { return g.join(77) }} {
			if err := step(); err != nil {
				t.Error(err)
			}
		}
		for pair := range strings.SplitSeq(tt.want, " ") {
			file, want, _ := strings.Cut(pair, "=")
			if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != strings.ReplaceAll(want, "_", " ") {
				t.Errorf("%s: %q, %v; want %q", file, got, err, want)
			}
		}
		if used, err := g.time(); err != nil || used != 1500*time.Millisecond {
			t.Errorf("time %v, %v", used, err)
		}
		if got := strings.TrimPrefix(g.counted(), root+"/"); got != tt.counted {
			t.Errorf("counted by %s, want %s", got, tt.counted)
		}
	}
	if low, high := weightOf(2), weightOf(262144); low != 1 || high != 10000 || weightOf(1024) != 39 {
		t.Errorf("weights %d, %d, %d", low, weightOf(1024), high)
	}
}

// Processes of a group in the kernel are weighed and counted.
func TestGroupInKernel(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	processors, _, n, err := splitProcessors()
	if err != nil || n < 1 {
		t.Fatal(n, err)
	}
	name := "unnest-group-test"
	g, err := makeGroup(groupRoot, name+"/one", processors)
	t.Cleanup(func() {
		if err := removeGroups(name); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	busy := startBusy(t)
	if err := g.join(busy); err != nil {
		t.Fatal(err)
	}
	if err := g.weigh(256); err != nil {
		t.Error(err)
	}
	if err := g.limit(1); err != nil {
		t.Error(err)
	}
	stop, err := startCounting([]counter{countTimes}, map[string]*group{"one": g})
	if err != nil {
		t.Fatal(err)
	}
	before, err := g.time()
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if used, err := g.time(); err != nil || used > before+20*time.Millisecond {
			break
		}
	}
	values, err := stop()
	if err != nil || len(values["one"]) == 0 || values["one"][0].Metric != "cpu_utilisation" || !(values["one"][0].Value > 0) {
		t.Errorf("%v, %v", values, err)
	}
}

func TestParseDrops(t *testing.T) {
	const table = "entries  searched found new invalid ignore delete delete_list insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart\n" +
		"00000010  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000000 0000000a 00000001 00000000  00000000 00000000 00000000 00000000\n" +
		"00000010  00000000 00000000 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000001 00000000 00000000  00000000 00000000 00000000 00000000\n"
	if n, err := parseDrops([]byte(table)); n != 12 || err != nil {
		t.Errorf("%v, %v", n, err)
	}
	for _, wrong := range []string{"", "entries found\n1 2\n", "drop early_drop\nx 1\n", "drop early_drop\n1\n"} {
		if _, err := parseDrops([]byte(wrong)); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}
