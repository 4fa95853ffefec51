package bridge

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Join puts a port on a bridge. Only frames to its MAC and to groups reach the port: those
// to addresses that the bridge does not know do not, so that nobody can have each of
// its frames copied to all ports. No other port can take the MAC over.
func Join(port netlink.Link, bridge string, mac net.HardwareAddr) error {
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	if port.Attrs().MasterIndex != master.Attrs().Index {
		if err := netlink.LinkSetMaster(port, master); err != nil {
			return fmt.Errorf("plug into bridge %s: %w", bridge, err)
		}
	}
	err = netlink.NeighSet(&netlink.Neigh{
		LinkIndex: port.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER | netlink.NTF_STICKY, HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("set address on bridge %s: %w", bridge, err)
	}
	if err := netlink.LinkSetFlood(port, false); err != nil {
		return fmt.Errorf("set flood off on bridge %s: %w", bridge, err)
	}
	return nil
}
