package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/vmm"
	"unnest/internal/vmm/libvirt"
	"unnest/internal/vmm/qemu"
)

// dialVMM connects to the guest's VMM. When the guest does not run the error
// wraps vmm.ErrNotRunning.
func dialVMM(ctx context.Context, r GuestRecord) (vmm.VMM, error) {
	if r.Libvirt != nil {
		return libvirt.Dial(ctx, r.Libvirt.Socket, r.Libvirt.Name)
	}
	v, err := dialQEMU(ctx, r)
	if notListening(err) {
		err = fmt.Errorf("%w: %w", vmm.ErrNotRunning, err)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// notListening reports whether an error says that no process listens on a socket.
func notListening(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}

func dialQEMU(ctx context.Context, r GuestRecord) (_ *qemu.VMM, err error) {
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

// process returns the ID of the VMM's process. If the VMM hangs and takes no further
// connection, it is the one in the record.
func (r GuestRecord) process(ctx context.Context) (pid int, err error) {
	for range processTries {
		pid, err = qemu.PID(ctx, r.QMP)
		if !errors.Is(err, unix.EAGAIN) || !wait(ctx, processInterval) {
			break
		}
	}
	switch {
	case notListening(err):
		return 0, fmt.Errorf("%w: %w", vmm.ErrNotRunning, err)
	case err != nil && r.PID > 0:
		return r.PID, nil
	}
	return pid, err
}
