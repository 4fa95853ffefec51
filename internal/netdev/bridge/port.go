package bridge

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tc"
)

// Join puts a port on a bridge. Only frames to its MAC and to groups reach the port: those
// to addresses that the bridge does not know do not, so that nobody can have each of
// its frames copied to all ports. No other port can take the MAC over.
func Join(name, bridge string, mac net.HardwareAddr) error {
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
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

// Leave takes a port off its bridge, with the programs that see its frames. It does as much
// as it can.
func Leave(name string) error {
	port, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	// Down first: on no bridge its frames would go to the host's own IP stack.
	// A program of the port would drop the frames of whoever has it next.
	return errors.Join(netlink.LinkSetDown(port), netlink.LinkSetNoMaster(port), tc.Detach(port))
}
