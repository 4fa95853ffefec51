package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

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

// notListening reports whether an error says that nobody listens on a socket.
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

// isGone reports whether an error says that the guest does not run.
func isGone(err error) bool { return errors.Is(err, vmm.ErrNotRunning) }
