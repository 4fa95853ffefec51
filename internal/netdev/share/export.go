package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Export is a directory of the host that a guest has by 9p from its start. Volumes
// come and go in it as mounts: QEMU cannot be given a 9p export later (7.2 has
// neither fsdev_add nor anything like it). Nobody must delete what is in it while
// there are mounts.
type Export struct {
	Dir string // absolute
}

// Bind puts a volume's directory into the export and returns its path in there. One
// that is there already is no error.
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
	// A bind mount takes further flags only when it is mounted again.
	if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return "", errors.Join(fmt.Errorf("bind volume to %s: %w", target, err), e.Unbind(id))
	}
	return id.String(), nil
}

// Unbind takes a volume out of the export, also one in use. That it is not there is
// no error. The directory in which it was is removed if it is empty, and never more.
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

// Bound are the volumes in the export.
func (e Export) Bound() (map[ID]bool, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("look for bound volumes: %w", err)
	}
	return e.bound(string(mounts)), nil
}

// bound reads proc_pid_mountinfo(5), whose fifth field is the mount point. An ID has
// nothing that is escaped there.
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

// ErrNamespace is wrapped when a VMM sees other mounts than this process.
var ErrNamespace = errors.New("the VMM has another mount namespace than the daemon, which thus cannot give it volumes by 9p: run both in one, or give the guest memory that is shared, for virtiofs")

// CheckMounts returns an error, which wraps ErrNamespace, unless a process sees the
// mounts that we make.
func CheckMounts(pid int) error {
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return fmt.Errorf("look at the VMM's mounts: %w", err)
	}
	ours, err := os.Readlink("/proc/self/ns/mnt")
	if err == nil && ours != theirs {
		err = ErrNamespace
	}
	return err
}
