package podnic

import (
	"errors"
	"fmt"
	"os"
	"regexp"

	"golang.org/x/sys/unix"
)

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// PCIAddress returns the address of a link's PCI device, such as "0000:05:00.0",
// and "" for a link that has none of its own, such as a VLAN's. It works in any
// network namespace, with no sysfs mounted for that.
func PCIAddress(link string) (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("find PCI address of %s: open socket: %w", link, err)
	}
	defer func() { _ = unix.Close(fd) }()
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, link)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find PCI address of %s: read its driver: %w", link, err)
	}
	address := unix.ByteSliceToString(info.Bus_info[:])
	if !pciAddress.MatchString(address) {
		return "", nil // another bus, or the driver's word for none
	}
	return address, nil
}

// RescanPCI has the kernel look for devices whose plug it has missed.
func RescanPCI() error {
	if err := os.WriteFile("/sys/bus/pci/rescan", []byte("1"), 0); err != nil {
		return fmt.Errorf("look for new PCI devices: %w", err)
	}
	return nil
}
