package cgroup

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
		"cpuacct/lab/hvm1/cgroup.procs": "", "cpuset/lab/hvm1/cgroup.procs": "", "unified/lab/hvm1/cgroup.procs": "", "unified/lab/hvm1/cgroup.freeze": "0",
	}
	v2 := map[string]string{
		"cgroup.controllers": "cpu cpuset", "cgroup.subtree_control": "", "lab/cgroup.subtree_control": "", "lab/hvm1/cpu.weight": "100",
		"lab/hvm1/cpu.max": "max 100000", "lab/hvm1/cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "lab/hvm1/cpuset.cpus": "", "lab/hvm1/cgroup.procs": "", "lab/hvm1/cgroup.freeze": "0",
	}
	for _, tt := range []struct {
		files         map[string]string
		counted, want string
	}{
		{v1, "unified/lab/hvm1", "unified/lab/hvm1/cgroup.freeze=1 cpu/lab/hvm1/cpu.shares=256 cpu/lab/hvm1/cpu.cfs_quota_us=200000 cpuset/lab/hvm1/cpuset.cpus=0,1 cpuset/lab/cpuset.mems=0 cpuset/lab/hvm1/cgroup.procs=77 unified/lab/hvm1/cgroup.procs=77"},
		{v2, "lab/hvm1", "lab/hvm1/cgroup.freeze=1 lab/hvm1/cpu.weight=10 lab/hvm1/cpu.max=200000_100000 lab/hvm1/cpuset.cpus=0,1 lab/hvm1/cgroup.procs=77 lab/cgroup.subtree_control=+cpu_+cpuset"},
	} {
		root := hierarchy(t, tt.files)
		g, err := New(root, "lab/hvm1", "0,1")
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []func() error{func() error { return g.Weigh(256) }, func() error { return g.Limit(2) }, func() error { return g.Join(77) }, func() error { return g.Pause(t.Context()) }} {
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
		if used, err := g.Time(); err != nil || used != 1500*time.Millisecond {
			t.Errorf("time %v, %v", used, err)
		}
		if got := strings.TrimPrefix(g.Counted(), root+"/"); got != tt.counted {
			t.Errorf("counted by %s, want %s", got, tt.counted)
		}
	}
	g, err := New(hierarchy(t, map[string]string{"cgroup.controllers": "cpu cpuset", "cgroup.subtree_control": "", "lab/cgroup.subtree_control": ""}), "lab/hvm1", "0")
	if err != nil {
		t.Fatal(err)
	}
	if err = g.Pause(t.Context()); err != nil { // before Linux 5.2
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(g.Counted(), "cgroup.freeze")); err == nil {
		t.Error("made cgroup.freeze")
	}
	if low, high := weightOf(2), weightOf(262144); low != 1 || high != 10000 || weightOf(1024) != 39 {
		t.Errorf("weights %d, %d, %d", low, weightOf(1024), high)
	}
}
