package share

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountEmpty mounts an empty file system on a directory, with its mode, and read-only.
// source names it in /proc/mounts.
func mountEmpty(dir *os.File, source string) error {
	s, err := status(dir)
	if err != nil {
		return err
	}
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return fmt.Errorf("open file system: %w", err)
	}
	fs := os.NewFile(uintptr(fd), source)
	defer fs.Close()
	for _, option := range [][2]string{{"source", source}, {"mode", strconv.FormatUint(uint64(s.Mode&0o755), 8)}, {"gid", strconv.Itoa(int(s.Gid))}} {
		err = errors.Join(err, unix.FsconfigSetString(fd, option[0], option[1]))
	}
	if err = errors.Join(err, unix.FsconfigCreate(fd)); err != nil {
		return fmt.Errorf("make file system: %w", err)
	}
	made, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, restricted|unix.MOUNT_ATTR_RDONLY)
	if err != nil {
		return fmt.Errorf("mount file system: %w", err)
	}
	mount := os.NewFile(uintptr(made), source)
	defer mount.Close()
	if err := unix.MountSetattr(made, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
		return fmt.Errorf("mount file system: %w", err)
	}
	return attach(mount, dir)
}

// mountAt mounts a directory on the entry of another. The error wraps EXDEV if something
// is mounted there.
func mountAt(dir *os.File, name string, volume *os.File) error {
	target, err := openDirectory(dir, name, beneath|unix.RESOLVE_NO_XDEV)
	if err != nil {
		return err
	}
	defer target.Close()
	tree, err := cloneMount(volume, &unix.MountAttr{Attr_set: restricted, Propagation: unix.MS_PRIVATE})
	if err != nil {
		return err
	}
	defer tree.Close()
	return attach(tree, target)
}

// cloneMount returns a mount of a directory, with other attributes, that is nowhere until
// it is attached.
func cloneMount(dir *os.File, attributes *unix.MountAttr) (*os.File, error) {
	fd, err := unix.OpenTree(int(dir.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return nil, fmt.Errorf("clone mount of %s: %w", dir.Name(), err)
	}
	clone := os.NewFile(uintptr(fd), dir.Name())
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, attributes); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict mount of %s: %w", dir.Name(), err), clone.Close())
	}
	return clone, nil
}

func attach(mount, target *os.File) error {
	if err := unix.MoveMount(int(mount.Fd()), "", int(target.Fd()), "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount on %s: %w", target.Name(), err)
	}
	return nil
}

// unmount unmounts the mount whose root is dir, if it is one, even while it is in use.
// It closes dir.
func unmount(dir *os.File) error {
	defer dir.Close()
	if x, err := attributes(dir); err != nil || x.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 {
		return err
	}
	if err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()), unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", dir.Name(), err)
	}
	return nil
}

// isReadOnly reports whether a directory is the root of a mount that is read-only, and
// without devices and setuid programs.
func isReadOnly(dir *os.File) bool {
	const want = unix.ST_RDONLY | unix.ST_NOSUID | unix.ST_NODEV
	var s unix.Statfs_t
	x, err := attributes(dir)
	return err == nil && x.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 &&
		unix.Fstatfs(int(dir.Fd()), &s) == nil && s.Flags&want == want
}

func attributes(f *os.File) (x unix.Statx_t, err error) {
	return x, unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &x)
}

// mountID returns the mount of a descriptor, which is a path in /proc.
func mountID(descriptor string) (uint64, error) {
	var x unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, descriptor, 0, unix.STATX_MNT_ID, &x); err != nil {
		return 0, fmt.Errorf("find mount of %s: %w", descriptor, err)
	}
	return x.Mnt_id, nil
}

// mounted is a line of proc_pid_mountinfo(5).
type mounted struct {
	id                  uint64
	point, kind, source string
}

func mounts() ([]mounted, error) {
	content, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseMounts(string(content)), nil
}

// parseMounts skips what is not a line of mountinfo.
func parseMounts(mountinfo string) (all []mounted) {
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 2 {
			continue
		}
		if id, err := strconv.ParseUint(left[0], 10, 64); err == nil {
			all = append(all, mounted{id: id, point: unescape.Replace(left[4]), kind: right[0], source: unescape.Replace(right[1])})
		}
	}
	return all
}

// unescape undoes mangle in the kernel's fs/proc_namespace.c.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

// mountOf returns the mount of an open file.
func mountOf(f *os.File) (m mounted, ok bool) {
	x, err := attributes(f)
	all, mountsErr := mounts()
	if err != nil || mountsErr != nil {
		return m, false
	}
	for _, m := range all {
		if m.id == x.Mnt_id {
			return m, true
		}
	}
	return m, false
}
