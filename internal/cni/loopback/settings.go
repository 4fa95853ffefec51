package loopback

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/podnic"
)

// The kernel accepts packets that enter lo with loopback addresses, but without a
// route of their own, only if both are 1 (ip-sysctl in the kernel's documentation).
const (
	routeLocalnet = "ipv4/conf/lo/route_localnet"
	acceptLocal   = "ipv4/conf/lo/accept_local"
)

const portRange = "ipv4/ip_local_port_range"

func disableIPv6(nic string) string { return "ipv6/conf/" + nic + "/disable_ipv6" }

// readFormer reads what configure is going to change.
func readFormer(nic netlink.Link) (f loopbackFormer, err error) {
	a := nic.Attrs()
	f.Mtu, f.Up = uint32(a.MTU), flag(a.Flags&net.FlagUp != 0)
	for name, value := range map[string]*uint8{routeLocalnet: &f.RouteLocalnet, acceptLocal: &f.AcceptLocal, disableIPv6(a.Name): &f.Ipv6Off} {
		*value, err = readNumber(name)
		if err != nil && !(name == disableIPv6(a.Name) && errors.Is(err, fs.ErrNotExist)) { // a kernel without IPv6
			return f, err
		}
	}
	onLo, err := hasClsact(lo)
	if err != nil {
		return f, err
	}
	onNIC, err := hasClsact(nic)
	f.LoClsact, f.NicClsact = flag(onLo), flag(onNIC)
	return f, err
}

func flag(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// configure sets the sysctls and the NIC's MTU.
func configure(nic netlink.Link, mtu int) error {
	a := nic.Attrs()
	err := errors.Join(podnic.SetSysctl(routeLocalnet, "1"), podnic.SetSysctl(acceptLocal, "1"), setIPv6(a.Name, 1))
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(nic, mtu); err != nil {
		return fmt.Errorf("set MTU %d of %s: %w", mtu, a.Name, err)
	}
	return AddAliases()
}

// restore undoes configure. nic is nil if it has been unplugged.
func restore(nic netlink.Link, s loopbackSegment) error {
	f := s.Former
	err := errors.Join(podnic.SetSysctl(routeLocalnet, fmt.Sprint(f.RouteLocalnet)), podnic.SetSysctl(acceptLocal, fmt.Sprint(f.AcceptLocal)))
	if s.Ports != 0 { // an earlier version has joined, which also set the range of the clients' ports
		err = errors.Join(err, podnic.SetSysctl(portRange, fmt.Sprintf("%d %d", f.FirstPort, f.LastPort)))
	}
	err = errors.Join(err, removeAliases())
	if err != nil || nic == nil {
		return err
	}
	name := nic.Attrs().Name
	if f.Up == 0 {
		if err := netlink.LinkSetDown(nic); err != nil {
			return fmt.Errorf("set %s down: %w", name, err)
		}
	}
	if err := netlink.LinkSetMTU(nic, int(f.Mtu)); err != nil {
		return fmt.Errorf("set MTU %d of %s: %w", f.Mtu, name, err)
	}
	return setIPv6(name, f.Ipv6Off)
}

// setIPv6 disables IPv6 on the NIC, or enables it, if the kernel has it.
func setIPv6(nic string, off uint8) error {
	err := podnic.SetSysctl(disableIPv6(nic), fmt.Sprint(off))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func checkSettings(nic string) error {
	for _, name := range []string{routeLocalnet, acceptLocal, disableIPv6(nic)} {
		n, err := readNumber(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case n != 1:
			return fmt.Errorf("sysctl net/%s is %d: want 1", name, n)
		}
	}
	return nil
}

func readNumber(name string) (uint8, error) {
	data, err := os.ReadFile(filepath.Join("/proc/sys/net", name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 8)
	if err != nil {
		return 0, fmt.Errorf("read sysctl net/%s: %w", name, err)
	}
	return uint8(n), nil
}
