package reflector

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// headerSize is that of struct virtio_net_hdr_v1, before each frame (virtio 1.2,
// section 5.1.6), in bytes.
const headerSize = 12

// offloads are what a guest of Linux can take: frames without a checksum, and TCP
// that is not segmented yet.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN

// queue is a descriptor of a TAP's queue.
type queue int

// openQueue opens a new queue, the last one of the TAP of the name in the current
// network namespace. It makes the TAP if there is none; with flags
// unix.IFF_TUN_EXCL there must be none.
func openQueue(name string, flags uint16) (queue, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	q := queue(fd)
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_MULTI_QUEUE | flags)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("open queue: %w", err), q.close())
	}
	return q, nil
}

// attach makes a queue that was detached the TAP's last.
func (q queue) attach() error { return q.set(unix.IFF_ATTACH_QUEUE) }

// detach has a queue get nothing, and the TAP's last queue take its number. It is
// the TAP's still, and what is written to it comes in by the number it had.
func (q queue) detach() error { return q.set(unix.IFF_DETACH_QUEUE) }

func (q queue) set(flag uint16) error {
	request, err := unix.NewIfreq("")
	if err != nil {
		return err
	}
	request.SetUint16(flag)
	return unix.IoctlIfreq(int(q), unix.TUNSETQUEUE, request)
}

// adapt sets how frames are passed between the TAP and all who hold queues of it.
func (q queue) adapt() error {
	if err := unix.IoctlSetPointerInt(int(q), unix.TUNSETVNETHDRSZ, headerSize); err != nil {
		return fmt.Errorf("set header of %d bytes: %w", headerSize, err)
	}
	if err := unix.IoctlSetInt(int(q), unix.TUNSETOFFLOAD, offloads); err != nil {
		return fmt.Errorf("set offloads: %w", err)
	}
	return nil
}

// steer has a program choose the queue of each frame that the host sends.
func (q queue) steer(program int) error {
	if err := unix.IoctlSetPointerInt(int(q), unix.TUNSETSTEERINGEBPF, program); err != nil {
		return fmt.Errorf("set steering program: %w", err)
	}
	return nil
}

// device returns the name of the queue's TAP, and whether the queue is attached; an
// error that is unix.EBADFD if it is of none.
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

// inode identifies the network namespace of the queue's TAP.
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

// file returns a descriptor of its own for somebody else.
func (q queue) file(name string) (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(q), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// close closes the descriptor. The last one of a queue ends it.
func (q queue) close() error { return unix.Close(int(q)) }
