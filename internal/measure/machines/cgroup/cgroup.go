// Package cgroup makes the control groups of a run on this host, in both versions: it confines, weighs,
// limits and counts what runs in them, and removes them.
package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// Group is the control group of a domain on this host: one directory in version 2, or one in
// each of several hierarchies in version 1. Closing the run's work directory removes it, see
// thishost.CleanWork.
type Group struct {
	name   string // below the roots: unnest-LAB/hvm1
	root   string // /sys/fs/cgroup
	joined []string
}

// Root is where the file systems of control groups are mounted.
const Root = "/sys/fs/cgroup"

// The hierarchies of version 1 that a domain's group is in, and that of version 2 next to them,
// whose groups eBPF programs know.
var hierarchies = []string{"cpu", "cpuacct", "cpuset", "freezer", "unified"}

// New makes the group of a domain, whose processes use these processors only.
func New(root, name, processors string) (*Group, error) {
	g := &Group{name: name, root: root}
	make := g.makeV1
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		make = g.makeV2
	}
	if err := make(processors); err != nil {
		return nil, fmt.Errorf("make control group %s: %w", name, err)
	}
	return g, nil
}

func (g *Group) makeV2(processors string) error {
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

func (g *Group) makeV1(processors string) error {
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
func (g *Group) dir(hierarchy string) string {
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

// Counted is the directory by which an eBPF program finds the processes of the group.
func (g *Group) Counted() string { return cmp.Or(g.dir("unified"), g.dir("cpu")) }

// Join moves a process with its threads into the group.
func (g *Group) Join(pid int) error {
	for _, dir := range g.joined {
		if err := setFile(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("move process %d to control group %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// quotaPeriod is the kernel's default, in µs.
const quotaPeriod = 100_000

// Weigh sets the weight of the group's processor time, in the unit of cpu.shares.
func (g *Group) Weigh(shares int) error {
	dir, file, value := g.dir("cpu"), "cpu.shares", shares
	if _, err := os.Stat(filepath.Join(dir, file)); errors.Is(err, fs.ErrNotExist) {
		file, value = "cpu.weight", weightOf(shares)
	}
	return g.explain("weigh", setFile(dir, file, strconv.Itoa(value)))
}

// weightOf converts a weight of version 1, 2 to 262144, to that of version 2, 1 to 10000, as
// container engines do.
func weightOf(shares int) int { return 1 + (shares-2)*9999/262142 }

// Limit lets the group use as much time as that many processors have; 0: no limit.
func (g *Group) Limit(processors int) error {
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

// Pause freezes the processes of the group until Resume. Without the freezer of version 2 (Linux 5.2) it does nothing:
// processes that the freezer of version 1 holds do not end when they are killed.
func (g *Group) Pause(context.Context) error { return g.freeze("1") }

// Resume lets the processes of the group run again.
func (g *Group) Resume(context.Context) error { return g.freeze("0") }

func (g *Group) freeze(frozen string) error {
	dir := g.dir("unified")
	if dir == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.freeze")); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return g.explain("freeze", setFile(dir, "cgroup.freeze", frozen))
}

func (g *Group) explain(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s control group %s: %w", what, g.name, err)
	}
	return nil
}

// Time is the CPU time that the group has used.
func (g *Group) Time() (time.Duration, error) {
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

// Within returns p with all its commands in the group.
func (g *Group) Within(p place.Place) place.Place {
	const join = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"`
	return place.Within{Place: p, Enter: slices.Concat([]string{"sh", "-c", join, "join"}, g.joined, []string{"--"}), Name: p.String()}
}

// OfLab is the control group of the containers of the lab with an ID.
func OfLab(lab string) string { return "unnest-" + lab }

// groupPatience is how long processes may take to leave their control group after they
// are killed.
const groupPatience = 2 * time.Second

// Remove removes a control group with its subgroups from all hierarchies: one in
// version 2, several in version 1.
func Remove(name string) error {
	var err error
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		found, globErr := filepath.Glob(pattern + name)
		err = errors.Join(err, globErr)
		for _, group := range found {
			err = errors.Join(err, removeGroup(group))
		}
	}
	return err
}

func removeGroup(path string) error {
	below, err := os.ReadDir(path)
	for _, e := range below {
		if e.IsDir() {
			err = errors.Join(err, removeGroup(filepath.Join(path, e.Name())))
		}
	}
	if err != nil {
		return err
	}
	for end := time.Now().Add(groupPatience); ; time.Sleep(20 * time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return fmt.Errorf("remove control group %s: %w", path, err)
		}
	}
}
