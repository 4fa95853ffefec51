package share

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Export is a directory of the host that a guest mounts by 9p. QEMU has it from the
// start, since 7.2 cannot add a 9p export later; volumes are bind mounts in it. Its own
// mount is read-only, so that a guest, whose root writes as the host's root does, can put
// nothing next to the volumes. Do not delete its contents while volumes are mounted.
type Export struct {
	Dir string // absolute; belongs to root, as does each directory above
	// Owner is the state directory of the daemon or lab that prepares the export. It marks
	// the mount for CloseOwned.
	Owner string
}

// Errors of an export.
var (
	ErrWritable = errors.New("the guest could write in the export itself: stop the guest, and start it again when the daemon runs")
	// ErrNamespace is wrapped when a VMM does not see the mounts of this process.
	ErrNamespace = errors.New("the VMM is not in the mount namespace of the exports: run it in the host's for 9p, or share the guest's memory for virtiofs")
)

// The attributes of all mounts: nothing of a guest is a device, runs, or is followed on
// the host. The guest itself may run its programs.
const restricted = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSYMFOLLOW

// Prepare mounts an empty file system on the export, unless its mount is read-only
// already, and removes the mount points that a killed daemon has left. A VMM has to start
// after that. Volumes of an earlier version must be unbound first.
func (e Export) Prepare() error {
	dir, err := openTrusted(e.Dir)
	if err != nil {
		return fmt.Errorf("prepare export: %w", err)
	}
	defer dir.Close()
	if isReadOnly(dir) {
		return e.removeUnused(dir)
	}
	bound, err := e.Bound()
	if err == nil && len(bound) > 0 {
		err = ErrWritable
	}
	if err == nil {
		err = mountEmpty(dir, e.source())
	}
	if err != nil {
		return fmt.Errorf("prepare export %s: %w", e.Dir, err)
	}
	return nil
}

// Check returns an error that wraps ErrWritable unless the export is prepared.
func (e Export) Check() error {
	dir, err := e.open()
	if err != nil {
		return err
	}
	return dir.Close()
}

// open opens an export that is prepared.
func (e Export) open() (*os.File, error) {
	dir, err := openTrusted(e.Dir)
	if err == nil && !isReadOnly(dir) {
		err = errors.Join(fmt.Errorf("export %s: %w", e.Dir, ErrWritable), dir.Close())
	}
	if err != nil {
		return nil, err
	}
	return dir, nil
}

// Bind mounts a volume's directory in the export, unless it is mounted already, and
// returns its path in the export. The mount appears at once with all its attributes, and
// does not appear in other mount namespaces.
func (e Export) Bind(id ID, volume *os.File) (name string, err error) {
	dir, err := e.open()
	if err != nil {
		return "", fmt.Errorf("bind volume: %w", err)
	}
	defer dir.Close()
	writable, err := cloneMount(dir, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return "", fmt.Errorf("bind volume in %s: %w", e.Dir, err)
	}
	defer writable.Close()
	if err := unix.Mkdirat(int(writable.Fd()), id.String(), 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return "", fmt.Errorf("bind volume in %s: %w", e.Dir, err)
	}
	err = mountAt(dir, id.String(), volume)
	if err != nil && !errors.Is(err, unix.EXDEV) { // something is mounted there
		_ = unix.Unlinkat(int(writable.Fd()), id.String(), unix.AT_REMOVEDIR)
		return "", fmt.Errorf("bind volume %s to %s in %s: %w", volume.Name(), id, e.Dir, err)
	}
	return id.String(), nil
}

// Unbind unmounts a volume, if it is mounted, even while it is in use. It removes the
// mount point, but only if it is empty.
func (e Export) Unbind(id ID) error {
	dir, err := openTrusted(e.Dir)
	if err != nil {
		return fmt.Errorf("unbind volume: %w", err)
	}
	defer dir.Close()
	target, err := openDirectory(dir, id.String(), beneath)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil // no volume is mounted on what is not a directory
	}
	if err == nil {
		err = unmount(target)
	}
	if err != nil {
		return fmt.Errorf("unbind volume: %w", err)
	}
	return e.removeUnused(dir)
}

// UnbindAll unbinds all volumes.
func (e Export) UnbindAll() error {
	bound, err := e.Bound()
	for id := range bound {
		err = errors.Join(err, e.Unbind(id))
	}
	return err
}

// Close unbinds all volumes and unmounts what Prepare has mounted.
func (e Export) Close() error {
	err := e.UnbindAll()
	dir, openErr := openTrusted(e.Dir)
	switch {
	case errors.Is(openErr, unix.ENOENT):
		return err
	case openErr != nil:
		return errors.Join(err, openErr)
	}
	if m, ok := mountOf(dir); ok {
		if _, ours := m.owner(); ours {
			return errors.Join(err, unmount(dir))
		}
	}
	return errors.Join(err, dir.Close())
}

// removeUnused removes the mount points without a mount. Those of an earlier version are
// the guest's.
func (e Export) removeUnused(dir *os.File) error {
	if !isReadOnly(dir) {
		return nil
	}
	names, err := dir.Readdirnames(-1)
	bound, boundErr := e.Bound()
	if err = errors.Join(err, boundErr); err != nil || len(names) == len(bound) {
		return err
	}
	writable, err := cloneMount(dir, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("remove mount points in %s: %w", e.Dir, err)
	}
	defer writable.Close()
	for _, name := range names {
		if id, ok := ParseID(name); ok && !bound[id] {
			rmErr := unix.Unlinkat(int(writable.Fd()), name, unix.AT_REMOVEDIR)
			if !errors.Is(rmErr, unix.ENOTEMPTY) && !errors.Is(rmErr, unix.EBUSY) { // not ours
				err = errors.Join(err, rmErr)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("remove mount points in %s: %w", e.Dir, err)
	}
	return nil
}

// Bound returns the volumes in the export.
func (e Export) Bound() (map[ID]bool, error) {
	all, err := mounts()
	if err != nil {
		return nil, fmt.Errorf("find bound volumes: %w", err)
	}
	dir, err := filepath.EvalSymlinks(e.Dir)
	if err != nil {
		dir = filepath.Clean(e.Dir)
	}
	return boundIn(dir, all), nil
}

func boundIn(dir string, all []mounted) map[ID]bool {
	bound := map[ID]bool{}
	for _, m := range all {
		if id, ok := ParseID(filepath.Base(m.point)); ok && id.Kind == Volume && filepath.Dir(m.point) == dir {
			bound[id] = true
		}
	}
	return bound
}

// CheckVMM returns an error that wraps ErrNamespace unless a process is in our mount
// namespace, and one that wraps ErrWritable unless it has the export's read-only mount.
func (e Export) CheckVMM(pid int) error {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	theirs, err := os.Readlink(process + "/ns/mnt")
	if err != nil {
		return fmt.Errorf("find the VMM's mount namespace: %w", err)
	}
	if ours, err := os.Readlink("/proc/thread-self/ns/mnt"); err != nil || ours != theirs {
		return errors.Join(err, ErrNamespace)
	}
	dir, err := e.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	wanted, err := mountID(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return err
	}
	descriptors, err := os.ReadDir(process + "/fd")
	if err != nil {
		return fmt.Errorf("find the VMM's export: %w", err)
	}
	for _, d := range descriptors {
		if id, err := mountID(filepath.Join(process, "fd", d.Name())); err == nil && id == wanted {
			return nil
		}
	}
	return fmt.Errorf("export %s: %w", e.Dir, ErrWritable)
}
