package sched

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// identify returns the ID of the control group of each domain, 0 if it has none, and
// whether they are of version 1. IDs of different hierarchies may be equal, so all groups
// are of one.
func identify(domains []Domain) (ids []uint64, v1 bool, err error) {
	ids = make([]uint64, len(domains))
	first := ""
	for i, d := range domains {
		if d.Group == "" {
			if len(d.Processes) == 0 {
				return nil, false, fmt.Errorf("domain %s: no control group and no process: name one", d.Name)
			}
			continue
		}
		id, old, err := groupID(d.Group)
		if err != nil {
			return nil, false, fmt.Errorf("domain %s: %w", d.Name, err)
		}
		if first != "" && old != v1 {
			return nil, false, fmt.Errorf("control groups %s and %s have different versions: use one", first, d.Group)
		}
		ids[i], v1, first = id, old, d.Group
	}
	return ids, v1, nil
}

// groupID returns the ID of a control group, which is the inode of its directory, and
// whether it is of version 1.
func groupID(dir string) (id uint64, v1 bool, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, false, fmt.Errorf("find control group %s: %w", dir, err)
	}
	if fs.Type != unix.CGROUP_SUPER_MAGIC && fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return 0, false, fmt.Errorf("%s is not a control group: name a directory below /sys/fs/cgroup", dir)
	}
	v1 = fs.Type == unix.CGROUP_SUPER_MAGIC
	var weight unix.Stat_t
	if v1 && unix.Stat(dir+"/cpu.shares", &weight) != nil {
		return 0, false, fmt.Errorf("control group %s lacks controller cpu: name one below /sys/fs/cgroup/cpu", dir)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return 0, false, fmt.Errorf("find control group %s: %w", dir, err)
	}
	return st.Ino, v1, nil
}
