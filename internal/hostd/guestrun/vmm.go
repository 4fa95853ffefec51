package guestrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/libvirt"
	"unnest.io/unnest/internal/vmm/qemu"
)

// Dialer returns a function that connects to a guest's VMM. When the guest does not run its error
// wraps vmm.ErrNotRunning. libvirt gets media in the directory media.
func Dialer(media string) func(context.Context, record.Guest) (vmm.VMM, error) {
	return func(ctx context.Context, r record.Guest) (vmm.VMM, error) {
		if r.Libvirt != nil {
			return libvirt.Dial(ctx, r.Libvirt.Socket, r.Libvirt.Name, media)
		}
		v, err := dialQEMU(ctx, r)
		if err != nil {
			return nil, NotRunning(r.QMP, err)
		}
		return v, nil
	}
}

// MediaDir returns the directory of media for libvirt. That of systemd's RuntimeDirectory= is in
// memory, and QEMU's user can reach it, unlike the state directory of the unit.
func MediaDir(stateDir string) (string, error) {
	if dirs := os.Getenv("RUNTIME_DIRECTORY"); dirs != "" {
		first, _, _ := strings.Cut(dirs, ":")
		return filepath.Join(first, "media"), nil
	}
	return filepath.Abs(filepath.Join(stateDir, "media"))
}

// NotRunning wraps vmm.ErrNotRunning around the error of a dial if no process has the socket. A missing file does not
// prove that: it may be hidden or deleted.
func NotRunning(path string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	sockets, unread := os.ReadFile("/proc/thread-self/net/unix")
	switch {
	case unread != nil:
		return errors.Join(err, unread)
	case bytes.Contains(sockets, []byte(" "+path+"\n")), bytes.Contains(sockets, []byte(" "+filepath.Clean(path)+"\n")):
		return fmt.Errorf("%w, but a process has this socket, so what the guest has is left as it is: if the file was deleted, start the guest again; else put it where the daemon sees it, such as in /run", err)
	}
	return fmt.Errorf("%w: %w", vmm.ErrNotRunning, err)
}

func dialQEMU(ctx context.Context, r record.Guest) (_ *qemu.VMM, err error) {
	ports := r.Ports
	if len(ports) == 0 {
		if ports, err = qemu.Discover(ctx, r.QMP); err != nil {
			return nil, err
		}
	}
	return qemu.Dial(ctx, r.QMP, ports)
}

// How often, and at which interval, to ask for the process of a VMM that has not yet
// noticed the end of the earlier daemon's connections.
const (
	processTries    = 20
	processInterval = 50 * time.Millisecond
)

// Process returns the ID of the VMM's process. If the VMM hangs and takes no further
// connection, it is the one in the record. The error wraps vmm.ErrNotRunning when the VMM has ended.
func Process(ctx context.Context, r record.Guest) (pid int, err error) {
	for range processTries {
		pid, err = qemu.PID(ctx, r.QMP)
		if !errors.Is(err, unix.EAGAIN) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(processInterval):
		}
	}
	if err = NotRunning(r.QMP, err); err != nil && r.PID > 0 && !errors.Is(err, vmm.ErrNotRunning) {
		return r.PID, nil
	}
	return pid, err
}
