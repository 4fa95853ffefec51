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

	"unnest/internal/hostapi/segment"
)

// The kernel takes what comes into lo with loopback addresses but without a route
// of its own only if both are 1 (ip-sysctl in the kernel's documentation).
const (
	routeLocalnet = "ipv4/conf/lo/route_localnet"
	acceptLocal   = "ipv4/conf/lo/accept_local"
)

const portRange = "ipv4/ip_local_port_range"

func disableIPv6(nic string) string { return filepath.Join("ipv6/conf", nic, "disable_ipv6") }

// remember reads what adapt is going to change.
func remember(nic netlink.Link) (loopbackFormer, error) {
	a := nic.Attrs()
	f := loopbackFormer{Mtu: uint32(a.MTU), Up: flag(a.Flags&net.FlagUp != 0)}
	var errs [6]error
	f.FirstPort, f.LastPort, errs[0] = readPorts()
	f.RouteLocalnet, errs[1] = readNumber(routeLocalnet)
	f.AcceptLocal, errs[2] = readNumber(acceptLocal)
	f.Ipv6Off, errs[3] = readNumber(disableIPv6(a.Name))
	if errors.Is(errs[3], fs.ErrNotExist) { // a kernel without IPv6
		errs[3] = nil
	}
	clsact, err := hasClsact(lo)
	f.LoClsact, errs[4] = flag(clsact), err
	clsact, err = hasClsact(nic)
	f.NicClsact, errs[5] = flag(clsact), err
	return f, errors.Join(errs[:]...)
}

func flag(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// adapt leaves the NIC down if it is.
func adapt(nic netlink.Link, f segment.Fraction) error {
	a := nic.Attrs()
	low, high := segment.Ports(f)
	err := errors.Join(
		write(routeLocalnet, "1"), write(acceptLocal, "1"),
		write(portRange, fmt.Sprintf("%d %d", low, high)),
		writeIPv6(a.Name, "1"),
	)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(nic, segment.MTU); err != nil {
		return fmt.Errorf("set MTU %d of %s: %w", segment.MTU, a.Name, err)
	}
	return nil
}

// restore takes adapt back. nic is nil if it is gone.
func restore(nic netlink.Link, f loopbackFormer) error {
	err := errors.Join(
		write(routeLocalnet, strconv.Itoa(int(f.RouteLocalnet))), write(acceptLocal, strconv.Itoa(int(f.AcceptLocal))),
		write(portRange, fmt.Sprintf("%d %d", f.FirstPort, f.LastPort)),
	)
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
	return writeIPv6(name, strconv.Itoa(int(f.Ipv6Off)))
}

func checkSettings(nic string, f segment.Fraction) error {
	wantLow, wantHigh := segment.Ports(f)
	low, high, err := readPorts()
	if err == nil && (low != wantLow || high != wantHigh) {
		err = fmt.Errorf("clients' ports are %d to %d: want %d to %d", low, high, wantLow, wantHigh)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{routeLocalnet, acceptLocal, disableIPv6(nic)} {
		n, err := readNumber(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && n != 1 {
			err = fmt.Errorf("net/%s is %d: want 1", name, n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// What a name below /proc/sys/net means depends on the network namespace of the
// calling thread.
func path(name string) string { return filepath.Join("/proc/sys/net", name) }

func write(name, value string) error {
	if err := os.WriteFile(path(name), []byte(value), 0); err != nil {
		return fmt.Errorf("set to %s: %w", value, err)
	}
	return nil
}

// writeIPv6 does nothing on a kernel without IPv6.
func writeIPv6(nic, value string) error {
	err := write(disableIPv6(nic), value)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func readNumber(name string) (uint8, error) {
	data, err := os.ReadFile(path(name))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 8)
	if err != nil {
		return 0, fmt.Errorf("read net/%s: %w", name, err)
	}
	return uint8(n), nil
}

func readPorts() (low, high uint16, err error) {
	data, err := os.ReadFile(path(portRange))
	if err == nil {
		_, err = fmt.Sscan(string(data), &low, &high)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read net/%s: %w", portRange, err)
	}
	return low, high, nil
}
