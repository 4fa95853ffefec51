// Package tap opens TAP devices for VMMs. A TAP lives as long as somebody holds
// its descriptor: QEMU gets the only one, so that the device goes with the NIC
// or the process, however that ends, and none can be left behind. Only for a VMM
// that opens a TAP by its name it is made to stay.
package tap

import (
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device says what a TAP shall be.
type Device struct {
	Name string // at most 15 bytes
	// Bridge is what it is plugged into, in the same namespace. Without one the
	// device stays down: up, it would hand frames to the host's own IP stack.
	Bridge string
	MTU    int    // bytes
	Alias  string // note of the owner, kept by the kernel; may be empty
	// Persistent has the device stay when its descriptor is closed.
	Persistent bool
}

// Open makes the TAP in the current network namespace, up and on its bridge if it
// has one, and returns its descriptor for QEMU (vnet_hdr on, single queue). The caller
// stays locked to its thread while in the namespace. When a step fails there is
// no TAP.
func Open(d Device) (_ *os.File, err error) {
	f, err := attach(d.Name)
	if err != nil {
		return nil, fmt.Errorf("open TAP %s: %w", d.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := configure(d); err != nil {
		return nil, fmt.Errorf("configure TAP %s: %w", d.Name, err)
	}
	if d.Persistent {
		if err := unix.IoctlSetInt(int(f.Fd()), unix.TUNSETPERSIST, 1); err != nil {
			return nil, fmt.Errorf("keep TAP %s: %w", d.Name, err)
		}
	}
	return f, nil
}

func attach(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "tap "+name), nil
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
		return fmt.Errorf("plug into bridge %s: %w", d.Bridge, err)
	}
	return netlink.LinkSetUp(link)
}

// VHost reports whether the kernel can move frames between a TAP and a guest in
// QEMU's stead, which runs as the same user as we do. All NICs of a guest ask
// here, so that those that are compared have the same backend.
func VHost() bool {
	f, err := os.OpenFile("/dev/vhost-net", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}
