// Package volume puts what a pod shares beside its loopback, volumes and memory,
// into the file system of its guest, from where containers get it by bind mounts.
//
// Asking the host daemon for it belongs to package daemon.
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

	"unnest/internal/hostapi/hostdpb"
)

// exportDir is where the guest mounts the file system that has all its volumes by
// 9p, once.
const exportDir = "/run/unnest/volumes"

// patience is how long a device may take that has been plugged: the guest's kernel
// may have a driver to load.
const (
	patience = 10 * time.Second
	pause    = 20 * time.Millisecond
)

// Mount mounts a volume on the directory dir, which is made when missing. Setuid
// programs and device nodes are of no effect there.
func Mount(ctx context.Context, v *hostdpb.Volume, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("mount volume %s: %w", v.GetName(), err)
	}
	switch v.GetTransport() {
	case hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS:
		err = mountDevice(ctx, v.GetTag(), dir, "virtiofs", "")
	case hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P:
		err = bindFrom9P(ctx, v, dir)
	default:
		err = fmt.Errorf("the host daemon gives it by %s: this program is too old", v.GetTransport())
	}
	if err != nil {
		return fmt.Errorf("mount volume %s on %s: %w", v.GetName(), dir, err)
	}
	return nil
}

// mountDevice mounts the file system of a tag, which may be about to come.
func mountDevice(ctx context.Context, tag, dir, kind, options string) error {
	return await(ctx, func() error {
		err := unix.Mount(tag, dir, kind, unix.MS_NOSUID|unix.MS_NODEV, options)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // no such tag
			return fmt.Errorf("%w: no file system has the tag %s: %w", errNotYet, tag, err)
		}
		return err
	})
}

// bindFrom9P mounts a part of the file system that has all volumes.
func bindFrom9P(ctx context.Context, v *hostdpb.Volume, dir string) error {
	if err := os.MkdirAll(exportDir, 0o700); err != nil {
		return err
	}
	if there, err := isMounted(exportDir); err != nil {
		return err
	} else if !there {
		if err := mountDevice(ctx, v.GetTag(), exportDir, "9p", "trans=virtio,version=9p2000.L,msize=524288"); err != nil {
			return err
		}
	}
	return unix.Mount(filepath.Join(exportDir, v.GetPath()), dir, "", unix.MS_BIND, "")
}

// BindMemory makes the file at path the pod's memory, to be mapped and no more: a
// program cannot read or write it otherwise. The file is made when missing.
func BindMemory(ctx context.Context, m *hostdpb.SharedMemory, path string) error {
	device, err := memoryDevice(ctx, m)
	if err == nil {
		// Its memory answers once the device is enabled. It has no driver that would.
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

// Unmount undoes Mount and BindMemory. That nothing is mounted is no error; what is
// in use is.
func Unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// errNotYet is wrapped by what may come true in a moment.
var errNotYet = errors.New("it has not come")

// await calls f until it returns something else than errNotYet.
func await(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f()
		if !errors.Is(err, errNotYet) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// isMounted reports whether something is mounted on a directory, whose path has
// nothing that mountinfo escapes.
func isMounted(dir string) (bool, error) {
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
