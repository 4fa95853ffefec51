package reflector

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tap"
)

// headerSize is the size of struct virtio_net_hdr_v1, before each frame (virtio 1.2,
// section 5.1.6), in bytes.
const headerSize = 12

// offloads are those that Linux guests support: frames without a checksum, and
// unsegmented TCP.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN

// queue is the descriptor of a TAP's queue.
type queue int

// openQueue opens a queue as the last one of a TAP. It makes the TAP if there is none;
// with the flag unix.IFF_TUN_EXCL the TAP must not exist.
func openQueue(name string, flags uint16) (queue, error) {
	fd, err := tap.OpenQueue(name, unix.IFF_MULTI_QUEUE|flags)
	if err != nil {
		return -1, fmt.Errorf("open queue: %w", err)
	}
	return queue(fd), nil
}

// attach attaches a detached queue as the TAP's last.
func (q queue) attach() error { return q.set(unix.IFF_ATTACH_QUEUE) }

// detach stops a queue from receiving, and gives its number to the TAP's last queue.
// Frames written to a detached queue still come in under its former number.
func (q queue) detach() error { return q.set(unix.IFF_DETACH_QUEUE) }

func (q queue) set(flag uint16) error {
	request, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	request.SetUint16(flag)
	return unix.IoctlIfreq(int(q), unix.TUNSETQUEUE, request)
}

// setOffloads sets header size and offloads for all queues of the TAP.
func (q queue) setOffloads() error {
	if err := unix.IoctlSetPointerInt(int(q), unix.TUNSETVNETHDRSZ, headerSize); err != nil {
		return fmt.Errorf("set header of %d bytes: %w", headerSize, err)
	}
	if err := unix.IoctlSetInt(int(q), unix.TUNSETOFFLOAD, offloads); err != nil {
		return fmt.Errorf("set offloads: %w", err)
	}
	return nil
}

// steer makes a program choose the queue of each frame that the host sends.
func (q queue) steer(program int) error {
	if err := unix.IoctlSetPointerInt(int(q), unix.TUNSETSTEERINGEBPF, program); err != nil {
		return fmt.Errorf("set steering program: %w", err)
	}
	return nil
}

// device returns the name of the queue's TAP, and whether the queue is attached. The
// error is unix.EBADFD if the descriptor is not that of a TAP.
func (q queue) device() (name string, attached bool, err error) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", false, err
	}
	if err := unix.IoctlIfreq(int(q), unix.TUNGETIFF, request); err != nil {
		return "", false, err
	}
	return request.Name(), request.Uint16()&unix.IFF_DETACH_QUEUE == 0, nil
}

// inode returns the inode of the network namespace of the queue's TAP.
func (q queue) inode() (uint64, error) {
	fd, err := unix.IoctlRetInt(int(q), unix.TUNGETDEVNETNS)
	if err != nil {
		return 0, fmt.Errorf("get network namespace: %w", err)
	}
	ns := os.NewFile(uintptr(fd), "network namespace")
	defer ns.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return 0, fmt.Errorf("inspect network namespace: %w", err)
	}
	return stat.Ino, nil
}

// file returns a duplicate of the descriptor.
func (q queue) file(name string) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(q), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// close closes the descriptor. Closing the last one deletes the queue.
func (q queue) close() error { return unix.Close(int(q)) }
