// Package volume puts a pod's volumes and shared memory into the file system of its
// guest, from where containers get them by bind mounts. It is also the binary
// unnest-volume, which does that by hand.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// exportDir is where the guest mounts the 9p file system that has all its volumes.
const exportDir = "/run/unnest/volumes"

// A device may take some time after it has been plugged: the guest's kernel may have
// to load a driver.
const (
	deviceTime = 10 * time.Second
	devicePoll = 20 * time.Millisecond
)

// Mount mounts a volume on the directory dir, which it makes if necessary, without
// setuid and device files.
func Mount(ctx context.Context, v *hostdpb.Volume, dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		switch v.GetTransport() {
		case hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS:
			err = mountDevice(ctx, v.GetTag(), dir, "virtiofs", "")
		case hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P:
			err = bindFrom9P(ctx, v, dir)
		default:
			err = fmt.Errorf("transport %s: unnest-volume is too old; update it", v.GetTransport())
		}
	}
	if err != nil {
		return fmt.Errorf("mount volume %s on %s: %w", v.GetName(), dir, err)
	}
	return nil
}

// mountDevice mounts the file system with a tag, and waits for the device.
func mountDevice(ctx context.Context, tag, dir, kind, options string) error {
	return await(ctx, func() error {
		err := unix.Mount(tag, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%w: file system with the tag %s: %w", errNotYet, tag, err)
		}
		return err
	})
}

// bindFrom9P mounts the volume's part of the 9p file system.
func bindFrom9P(ctx context.Context, v *hostdpb.Volume, dir string) error {
	if err := os.MkdirAll(exportDir, 0o700); err != nil {
		return err
	}
	mounted, err := Mounted(exportDir)
	if err == nil && !mounted {
		err = mountDevice(ctx, v.GetTag(), exportDir, "9p", "trans=virtio,version=9p2000.L,msize=524288")
	}
	if err != nil {
		return err
	}
	return unix.Mount(filepath.Join(exportDir, v.GetPath()), dir, "", unix.MS_BIND, "")
}

// BindMemory binds the pod's memory to the file at path, which it makes if necessary.
// Processes can only map the file, not read or write it.
func BindMemory(ctx context.Context, m *hostdpb.SharedMemory, path string) error {
	device, err := memoryDevice(ctx, m)
	if err == nil {
		// The device has no driver that would enable it.
		err = os.WriteFile(filepath.Join(device, "enable"), []byte("1"), 0)
	}
	if err == nil {
		err = touch(path)
	}
	if err == nil {
		err = unix.Mount(filepath.Join(device, "resource2"), path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("bind shared memory %s to %s: %w", m.GetName(), path, err)
	}
	return nil
}

// memoryDevice waits for the device with the memory, the only one behind its port.
func memoryDevice(ctx context.Context, m *hostdpb.SharedMemory) (device string, err error) {
	err = await(ctx, func() error {
		found, err := filepath.Glob("/sys/bus/pci/devices/" + m.GetPort() + "/*/resource2")
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%w: %d devices with memory behind port %s", errNotYet, len(found), m.GetPort())
		}
		info, err := os.Stat(found[0])
		if err == nil && info.Size() != int64(m.GetSize()) {
			err = fmt.Errorf("the device has %d bytes, want %d", info.Size(), m.GetSize())
		}
		device = filepath.Dir(found[0])
		return err
	})
	return device, err
}

func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Unmount undoes Mount and BindMemory. It is not an error when nothing is mounted, but
// it is when the mount is in use.
func Unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// errNotYet is wrapped by errors that a retry may clear.
var errNotYet = errors.New("device not found yet")

// await calls f until it returns another error than errNotYet.
func await(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, deviceTime)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(devicePoll):
		}
	}
}

// Mounted reports whether something is mounted on a directory, whose path must not
// have characters that mountinfo escapes.
func Mounted(dir string) (bool, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == dir {
			return true, nil
		}
	}
	return false, nil
}

// initialPIDs is the PID namespace in which a kernel starts (PROC_PID_INIT_INO).
const initialPIDs = "pid:[4026531836]"

// Use is why a volume counts as used.
type Use struct {
	Why     string // a mount namespace and the directory in it, or why nobody can tell; "": the volume is not used
	Process string // ID of one that has the mount namespace
}

// Uses returns which volumes processes of the guest have mounted, in whichever mount namespace, by one look at all processes. A volume of a
// daemon that does not say where it is counts as used, and so do all if nobody can tell. This process must see those of the guest.
//
// It does not see files that are open in a file system that was unmounted lazily, a mount namespace that no process has, file systems on top
// of a volume's files, and threads that have left their process's namespace or outlive its first thread.
func Uses(volumes []*hostdpb.Volume) []Use {
	uses := make([]Use, len(volumes))
	pids, err := os.Readlink("/proc/self/ns/pid")
	if err == nil && pids != initialPIDs {
		err = errors.New("the processes of the node are not visible: run this program with hostPID: true")
	}
	if err == nil && len(volumes) > 0 {
		err = eachMount(func(process, namespace, mount string) {
			for i, v := range volumes {
				if uses[i].Why == "" && isOf(v, mount) {
					uses[i] = Use{namespace + " " + strings.Fields(mount)[4], process}
				}
			}
		})
	}
	for i, v := range volumes {
		switch {
		case err != nil:
			uses[i] = Use{Why: err.Error()}
		case v.GetTag() == "":
			uses[i] = Use{Why: "the host daemon does not say where it is: update it"}
		}
	}
	return uses
}

// isOf reports whether a line of mountinfo is a mount of a volume, or of a directory in it.
func isOf(v *hostdpb.Volume, mount string) bool {
	within, source, _ := strings.Cut(mount, " - ")
	kind, source, _ := strings.Cut(source, " ")
	tag, _, _ := strings.Cut(source, " ")
	fields := strings.Fields(within)
	switch {
	case tag != v.GetTag() || len(fields) < 5:
		return false
	case v.GetTransport() == hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P:
		return kind == "9p" && strings.HasPrefix(fields[3]+"/", "/"+v.GetPath()+"/")
	}
	return kind == "virtiofs"
}

// eachMount calls f with each line of mountinfo in each mount namespace that a process has.
func eachMount(f func(process, namespace, mount string)) error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	seen := map[string]bool{}
	for _, process := range processes {
		namespace, err := os.Readlink(process + "/ns/mnt")
		root, rootErr := os.Readlink(process + "/root") // mountinfo has what is below it
		view, known := namespace+root, err == nil && rootErr == nil
		if known && seen[view] {
			continue
		}
		mounts, err := os.ReadFile(process + "/mountinfo")
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL): // it has ended
			continue
		case err != nil:
			return err
		}
		seen[view] = known
		for line := range strings.Lines(string(mounts)) {
			f(filepath.Base(process), namespace, line)
		}
	}
	return err
}
