package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Export is a directory of the host that a guest mounts by 9p. QEMU has it from the
// start, since 7.2 cannot add a 9p export later; volumes are bind mounts in it. Do not
// delete its contents while volumes are mounted.
type Export struct {
	Dir string // absolute
}

// Bind mounts a volume's directory in the export, unless it is mounted already, and
// returns its path in the export.
func (e Export) Bind(id ID, dir string) (name string, err error) {
	target := e.path(id)
	bound, err := e.Bound()
	if err != nil || bound[id] {
		return id.String(), err
	}
	if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("bind volume: %w", err)
	}
	if err := unix.Mount(dir, target, "", unix.MS_BIND, ""); err != nil {
		return "", errors.Join(fmt.Errorf("bind volume %s to %s: %w", dir, target, err), os.Remove(target))
	}
	// The kernel ignores other flags of a bind mount until it is remounted.
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return "", errors.Join(fmt.Errorf("bind volume to %s: %w", target, err), e.Unbind(id))
	}
	return id.String(), nil
}

// Unbind unmounts a volume, if it is mounted, even while it is in use. It removes the
// mount point, but only if it is empty.
func (e Export) Unbind(id ID) error {
	target := e.path(id)
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // no mount, no directory
		return fmt.Errorf("unbind volume from %s: %w", target, err)
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("unbind volume: %w", err)
	}
	return nil
}

// Bound returns the volumes in the export.
func (e Export) Bound() (map[ID]bool, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find bound volumes: %w", err)
	}
	return e.bound(string(mounts)), nil
}

// bound parses proc_pid_mountinfo(5): the fifth field is the mount point. It escapes
// nothing in an ID.
func (e Export) bound(mountinfo string) map[ID]bool {
	all := map[ID]bool{}
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 || filepath.Dir(unescape.Replace(fields[4])) != filepath.Clean(e.Dir) {
			continue
		}
		if id, ok := ParseID(filepath.Base(fields[4])); ok && id.Kind == Volume {
			all[id] = true
		}
	}
	return all
}

// unescape undoes mangle in the kernel's fs/proc_namespace.c.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")

func (e Export) path(id ID) string { return filepath.Join(e.Dir, id.String()) }

// ErrNamespace is wrapped when a VMM does not see the mounts of this process.
var ErrNamespace = errors.New("VMM and daemon have different mount namespaces: run both in one for 9p, or share the guest's memory for virtiofs")

// CheckMounts returns an error that wraps ErrNamespace unless a process is in our mount
// namespace.
func CheckMounts(pid int) error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("find the VMM's mount namespace: %w", err)
	}
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err == nil && ours != theirs {
		err = ErrNamespace
	}
	return err
}
