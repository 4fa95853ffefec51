package bench

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is the control group of a domain on this host: one directory in version 2, or one in
// each of several hierarchies in version 1. Closing the run's work directory removes it, see
// removeWork.
type group struct {
	name   string // below the roots: unnest-LAB/hvm1
	root   string // /sys/fs/cgroup
	joined []string
}

const groupRoot = "/sys/fs/cgroup"

// The hierarchies of version 1 that a domain's group is in, and that of version 2 next to them,
// whose groups eBPF programs know.
var hierarchies = []string{"cpu", "cpuacct", "cpuset", "freezer", "unified"}

// makeGroup makes the group of a domain, whose processes use these processors only.
func makeGroup(root, name, processors string) (*group, error) {
	g := &group{name: name, root: root}
	make := g.makeV1
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		make = g.makeV2
	}
	if err := make(processors); err != nil {
		return nil, fmt.Errorf("make control group %s: %w", name, err)
	}
	return g, nil
}

func (g *group) makeV2(processors string) error {
	dir := filepath.Join(g.root, g.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, parent := range []string{g.root, filepath.Dir(dir)} {
		if err := setFile(parent, "cgroup.subtree_control", "+cpu +cpuset"); err != nil {
			return err
		}
	}
	g.joined = []string{dir}
	return setFile(dir, "cpuset.cpus", processors)
}

func (g *group) makeV1(processors string) error {
	for _, h := range hierarchies {
		top := filepath.Join(g.root, h)
		if _, err := os.Stat(filepath.Join(top, "cgroup.procs")); err != nil {
			if h == "cpuacct" || h == "freezer" || h == "unified" {
				continue
			}
			return err
		}
		dir := filepath.Join(top, g.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		g.joined = append(g.joined, dir)
		if h != "cpuset" {
			continue
		}
		nodes, err := os.ReadFile(filepath.Join(top, "cpuset.mems"))
		if err != nil {
			return err
		}
		for _, d := range []string{filepath.Dir(dir), dir} { // they are empty in a new group
			if err := errors.Join(setFile(d, "cpuset.mems", strings.TrimSpace(string(nodes))), setFile(d, "cpuset.cpus", processors)); err != nil {
				return err
			}
		}
	}
	return nil
}

func setFile(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0)
}

// dir is the group's directory in a hierarchy of version 1, or the only one; empty: none.
func (g *group) dir(hierarchy string) string {
	if len(g.joined) == 1 {
		return g.joined[0]
	}
	for _, dir := range g.joined {
		if strings.HasPrefix(dir, filepath.Join(g.root, hierarchy)+"/") {
			return dir
		}
	}
	return ""
}

// counted is the directory by which an eBPF program finds the processes of the group.
func (g *group) counted() string { return cmp.Or(g.dir("unified"), g.dir("cpu")) }

// join moves a process with its threads into the group.
func (g *group) join(pid int) error {
	for _, dir := range g.joined {
		if err := setFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d to control group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// quotaPeriod is the kernel's default, in µs.
const quotaPeriod = 100_000

// weigh sets the weight of the group's processor time, in the unit of cpu.shares.
func (g *group) weigh(shares int) error {
	dir, file, value := g.dir("cpu"), "cpu.shares", shares
	if _, err := os.Stat(filepath.Join(dir, file)); errors.Is(err, fs.ErrNotExist) {
		file, value = "cpu.weight", weightOf(shares)
	}
	return g.explain("weigh", setFile(dir, file, strconv.Itoa(value)))
}

// weightOf converts a weight of version 1, 2 to 262144, to that of version 2, 1 to 10000, as
// container engines do.
func weightOf(shares int) int { return 1 + (shares-2)*9999/262142 }

// limit lets the group use as much time as that many processors have; 0: no limit.
func (g *group) limit(processors int) error {
	quota := "-1"
	if processors > 0 {
		quota = strconv.Itoa(processors * quotaPeriod)
	}
	dir := g.dir("cpu")
	if _, err := os.Stat(filepath.Join(dir, "cpu.cfs_quota_us")); err == nil {
		return g.explain("limit", setFile(dir, "cpu.cfs_quota_us", quota))
	}
	return g.explain("limit", setFile(dir, "cpu.max", strings.Replace(quota, "-1", "max", 1)+" "+strconv.Itoa(quotaPeriod)))
}

func (g *group) explain(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s control group %s: %w", what, g.name, err)
	}
	return nil
}

// time is the CPU time that the group has used.
func (g *group) time() (time.Duration, error) {
	if content, err := os.ReadFile(filepath.Join(g.dir("cpuacct"), "cpuacct.usage")); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
		return time.Duration(n), g.explain("read CPU time of", err)
	}
	content, err := os.ReadFile(filepath.Join(g.dir("cpu"), "cpu.stat"))
	if err != nil {
		return 0, g.explain("read CPU time of", err)
	}
	for line := range strings.Lines(string(content)) {
		if text, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return time.Duration(n) * time.Microsecond, g.explain("read CPU time of", err)
		}
	}
	return 0, g.explain("read CPU time of", errors.New("cpu.stat has no usage_usec"))
}

// splitProcessors divides the processors that this process may use: the domains get all but a
// quarter, which the load generators get. Both are lists such as "0,1". With one processor, both
// have it.
func splitProcessors() (domains, generators string, n int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", "", 0, fmt.Errorf("find the processors of this process: %w", err)
	}
	var all []string
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, strconv.Itoa(i))
		}
	}
	apart := max(1, len(all)/4)
	if len(all) == 1 {
		return all[0], all[0], 1, nil
	}
	return strings.Join(all[:len(all)-apart], ","), strings.Join(all[len(all)-apart:], ","), len(all) - apart, nil
}
