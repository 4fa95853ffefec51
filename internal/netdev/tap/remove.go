package tap

import (
	"errors"
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Remove takes a TAP off the network: down and on no bridge, it passes no frame in either
// direction, whatever the process does that has its descriptor. Then Remove deletes the TAP,
// unless a process has it; left says that one has. A TAP that does not exist is not an error.
//
// Such a process can be a QEMU whose guest does not give its NIC up: QEMU 10 keeps the
// descriptor after netdev_del. If the TAP were deleted, QEMU's main loop would spin, because
// poll(2) reports an error, and QEMU would exit when the guest resets the NIC ("TUNSETVNETHDRSZ
// ioctl() failed"). The TAP disappears with the descriptor, unless it is persistent.
func Remove(name string) (left bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("remove TAP %s: %w", name, err)
		}
	}()
	link, err := netlinksafe.LinkByName(name)
	if _, is := link.(*netlink.Tuntap); err == nil && !is {
		return false, fmt.Errorf("its type is %s", link.Type())
	}
	if err == nil {
		err = errors.Join(netlink.LinkSetDown(link), netlink.LinkSetNoMaster(link))
	}
	if err == nil {
		left, err = inUse(link.(*netlink.Tuntap))
	}
	if err == nil && !left {
		err = netlink.LinkDel(link)
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) { // its process has closed it
		return false, nil
	}
	return left, err
}

// Retire renames a TAP that Remove has left, so that another can have its name. A TAP that does
// not exist is not an error.
func Retire(name string) error {
	link, err := netlinksafe.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetName(link, RetiredName(link.Attrs().Index))
	}
	if errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// RetiredName is the name of a retired link of an index. No TAP of a guest has it.
func RetiredName(index int) string { return fmt.Sprintf("unnest-%d", index) }

// inUse reports whether a process has a queue of a TAP.
func inUse(link *netlink.Tuntap) (bool, error) {
	if link.Flags&netlink.TUNTAP_MULTI_QUEUE != 0 { // one more could be opened
		return link.Queues+link.DisabledQueues > 0, nil
	}
	fd, err := OpenQueue(link.Name, 0)
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, unix.Close(fd)
}
