// Package tap opens TAP devices for VMMs. A TAP exists as long as a process holds
// its descriptor. QEMU gets the only descriptor, so the TAP disappears with the NIC
// or with QEMU. A VMM that opens a TAP by its name needs a persistent one.
package tap

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device describes a TAP.
type Device struct {
	Name string // at most 15 bytes
	// Bridge is a bridge in the same namespace. Without one the device stays down:
	// up, it would pass frames to the host's own IP stack.
	Bridge string
	MTU    int    // bytes
	Alias  string // names the owner, and is kept by the kernel; may be empty
	// Persistent keeps the device when its descriptors are closed.
	Persistent bool
}

// Open makes the TAP in the network namespace of the calling thread and returns its
// descriptor for QEMU (vnet_hdr on, single queue). With a bridge the TAP is up. The
// caller stays locked to its thread. When a step fails, no TAP is left.
func Open(d Device) (*os.File, error) {
	queues, err := OpenMultiQueue(d, 1)
	if err != nil {
		return nil, err
	}
	return queues[0], nil
}

// OpenMultiQueue is Open for a TAP with count queues, of which each has a descriptor. The TAP is deleted when
// all are closed.
func OpenMultiQueue(d Device, count int) (queues []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range queues {
				err = errors.Join(err, f.Close())
			}
			queues = nil
		}
	}()
	flags := uint16(0)
	if count > 1 {
		flags = unix.IFF_MULTI_QUEUE
	}
	for i := range count {
		exclusive := uint16(0)
		if i == 0 && count > 1 { // or it would be a further queue of a TAP that is in use
			exclusive = unix.IFF_TUN_EXCL
		}
		fd, err := OpenQueue(d.Name, flags|exclusive)
		if err != nil {
			return queues, fmt.Errorf("open TAP %s: %w", d.Name, err)
		}
		queues = append(queues, os.NewFile(uintptr(fd), "tap "+d.Name))
	}
	if count > 1 {
		if err := singleQdisc(d.Name); err != nil {
			return queues, fmt.Errorf("set qdisc of TAP %s: %w", d.Name, err)
		}
	}
	if err := configure(d); err != nil {
		return queues, fmt.Errorf("configure TAP %s: %w", d.Name, err)
	}
	if d.Persistent {
		if err := unix.IoctlSetInt(int(queues[0].Fd()), unix.TUNSETPERSIST, 1); err != nil {
			return queues, fmt.Errorf("make TAP %s persistent: %w", d.Name, err)
		}
	}
	return queues, nil
}

// OpenQueue opens a queue of the TAP called name in the network namespace of the
// calling thread, and makes the TAP if it does not exist. flags are added to those
// of every TAP. The descriptor does not block.
func OpenQueue(name string, flags uint16) (fd int, err error) {
	fd, err = unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	if err := setInterface(fd, name, flags); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

func setInterface(fd int, name string, flags uint16) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | flags)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
}

// singleQdisc gives a TAP that is not up yet the qdisc of one queue. The kernel makes such a TAP for 256 queues, and would give each of
// them a qdisc when it goes up, of 6 MB in all.
func singleQdisc(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscReplace(&netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(2, 0), Parent: netlink.HANDLE_ROOT},
		QdiscType:  "pfifo_fast",
	})
}

func configure(d Device) error {
	link, err := netlink.LinkByName(d.Name)
	if err != nil {
		return err
	}
	if d.Alias != "" {
		if err := netlink.LinkSetAlias(link, d.Alias); err != nil {
			return fmt.Errorf("set alias: %w", err)
		}
	}
	if err := netlink.LinkSetMTU(link, d.MTU); err != nil {
		return fmt.Errorf("set MTU %d: %w", d.MTU, err)
	}
	if d.Bridge == "" {
		return nil
	}
	bridge, err := netlink.LinkByName(d.Bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", d.Bridge, err)
	}
	if err := netlink.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("add to bridge %s: %w", d.Bridge, err)
	}
	return netlink.LinkSetUp(link)
}

// OpenVHost opens /dev/vhost-net, by which the kernel moves the frames of one queue
// between its TAP and a guest in place of QEMU. It returns nil if this process cannot
// open it. Call it for every NIC, so that all NICs that are compared have the same
// backend.
func OpenVHost() *os.File {
	f, err := openVHost()
	if err != nil {
		return nil
	}
	return f
}

func openVHost() (*os.File, error) { return os.OpenFile("/dev/vhost-net", os.O_RDWR, 0) }

// CheckPoll returns an error if vhost-net is to poll, but this process cannot open it. QEMU
// itself would not poll, and say nothing.
func CheckPoll(poll time.Duration) error {
	if poll == 0 {
		return nil
	}
	f, err := openVHost()
	if err != nil {
		return fmt.Errorf("poll by vhost-net for %v: %w; modprobe vhost_net, or do without polling", poll, err)
	}
	return f.Close()
}

// VHost reports whether OpenVHost succeeds.
func VHost() bool {
	f := OpenVHost()
	return f != nil && f.Close() == nil
}
