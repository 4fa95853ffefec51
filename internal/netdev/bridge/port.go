package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/tc"
)

// Join puts a port on a bridge. Only frames to its MAC and to groups reach the port: those
// to addresses that the bridge does not know do not, so that nobody can have each of
// its frames copied to all ports. No other port can take the MAC over.
func Join(name, bridge string, mac net.HardwareAddr) error {
	port, master, err := find(name, bridge)
	if err != nil {
		return err
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

func find(name, bridge string) (port, master netlink.Link, err error) {
	if port, err = netlink.LinkByName(name); err != nil {
		return nil, nil, err
	}
	if master, err = netlink.LinkByName(bridge); err != nil {
		err = fmt.Errorf("find bridge %s: %w", bridge, err)
	}
	return port, master, err
}

// ErrMAC is the error of a MAC that a bridge knows elsewhere.
var ErrMAC = errors.New("MAC is taken")

// CheckMAC returns an error that wraps ErrMAC if a bridge knows a MAC at another port, or has it itself.
func CheckMAC(port, bridge string, mac net.HardwareAddr) error {
	p, b, err := find(port, bridge)
	if err != nil {
		return err
	}
	all, err := netlink.NeighList(0, unix.AF_BRIDGE)
	for tries := 0; errors.Is(err, netlink.ErrDumpInterrupted) && tries < 10; tries++ {
		all, err = netlink.NeighList(0, unix.AF_BRIDGE)
	}
	if err != nil {
		return fmt.Errorf("list MACs of bridge %s: %w", bridge, err)
	}
	elsewhere := func(n netlink.Neigh) bool {
		return n.MasterIndex == b.Attrs().Index && n.LinkIndex != p.Attrs().Index && bytes.Equal(n.HardwareAddr, mac)
	}
	if bytes.Equal(b.Attrs().HardwareAddr, mac) || slices.ContainsFunc(all, elsewhere) {
		return fmt.Errorf("%w: %s is another one's on bridge %s", ErrMAC, mac, bridge)
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
