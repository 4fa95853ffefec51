package podnic

import (
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
)

// Check returns an error unless the link has the given MAC, is up, and has all
// the given addresses with their prefix lengths.
func Check(link string, mac net.HardwareAddr, addrs []net.IPNet) error {
	l, err := netlinksafe.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find link %s: %w", link, err)
	}
	if !hasMAC(l, mac) {
		return fmt.Errorf("link %s has the MAC %s, want %s", link, l.Attrs().HardwareAddr, mac)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return fmt.Errorf("link %s is down", link)
	}
	have, err := netlinksafe.AddrList(l, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link, err)
	}
	for _, want := range addrs {
		if !slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.Equal(netlink.Addr{IPNet: &want}) }) {
			return fmt.Errorf("link %s lacks the address %s", link, &want)
		}
	}
	return nil
}
