package podnic

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrNameTaken is wrapped when the pod already has a link of the requested name.
var ErrNameTaken = errors.New("a link of this name exists in the pod")

// MoveIn moves nic from the calling thread's network namespace into the pod's,
// renames it to name, sets its MTU (0: unchanged) and brings it up. On an error the
// NIC is back where it was. undo undoes the move: it returns the NIC, down, to the
// namespace it came from, under its former name or, if another link has that name by
// then, under a free one that begins with "unnest".
func MoveIn(nic netlink.Link, pod ns.NetNS, name string, mtu int) (undo func() error, err error) {
	a := nic.Attrs()
	guest, err := ns.GetCurrentNS()
	if err != nil {
		return nil, fmt.Errorf("move NIC %s into the pod: %w", a.HardwareAddr, err)
	}
	undo = func() error {
		defer guest.Close()
		if err := moveOut(pod, guest, a.HardwareAddr, a.Name); err != nil {
			return fmt.Errorf("move NIC %s back as %s: %w", a.HardwareAddr, a.Name, err)
		}
		return nil
	}
	if err := moveIn(nic, pod, name, mtu); err != nil {
		err = fmt.Errorf("move NIC %s (%s) into the pod as %s: %w", a.HardwareAddr, a.Name, name, err)
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

func moveIn(nic netlink.Link, pod ns.NetNS, name string, mtu int) error {
	if err := CheckFree(pod, name); err != nil {
		return err
	}
	if err := netlink.LinkSetDown(nic); err != nil { // the guest's network daemon may have brought it up
		return fmt.Errorf("set down: %w", err)
	}
	if err := sendTo(nic, pod, name); err != nil {
		return err
	}
	return pod.Do(func(ns.NetNS) error { return bringUp(name, nic.Attrs().HardwareAddr, mtu) })
}

// CheckFree returns an error that wraps ErrNameTaken when the pod has a link of the
// given name.
func CheckFree(pod ns.NetNS, name string) error {
	return pod.Do(func(ns.NetNS) error {
		l, err := FindLink(name)
		if l != nil {
			return ErrNameTaken
		}
		return err
	})
}

// bringUp configures the link of the given name, which must have the given MAC.
func bringUp(name string, mac net.HardwareAddr, mtu int) error {
	l, err := netlinksafe.LinkByName(name)
	if err != nil {
		return err
	}
	if !hasMAC(l, mac) {
		return fmt.Errorf("%s has the MAC %s", name, l.Attrs().HardwareAddr)
	}
	if mtu > 0 {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return nil
}

// MoveOut moves the NIC with the given MAC, if the pod has it, into the calling
// thread's network namespace, down and under a free name that begins with "unnest".
func MoveOut(pod ns.NetNS, mac net.HardwareAddr) error {
	guest, err := ns.GetCurrentNS()
	if err != nil {
		return fmt.Errorf("move NIC %s out of the pod: %w", mac, err)
	}
	defer guest.Close()
	if err := moveOut(pod, guest, mac, anyName); err != nil {
		return fmt.Errorf("move NIC %s out of the pod: %w", mac, err)
	}
	return nil
}

// anyName is a pattern: the kernel puts a free number in.
const anyName = "unnest%d"

// moveOut undoes as much of a move as was done.
func moveOut(pod, guest ns.NetNS, mac net.HardwareAddr, name string) error {
	return pod.Do(func(ns.NetNS) error {
		l, err := linkByMAC(mac)
		if l == nil || err != nil {
			return err // it was not moved, or it is unplugged
		}
		if err := netlink.LinkSetDown(l); err != nil {
			return fmt.Errorf("set down: %w", err)
		}
		if errors.Is(CheckFree(guest, name), ErrNameTaken) {
			name = anyName
		}
		return sendTo(l, guest, name)
	})
}

// linkByMAC returns nil when no link has the MAC.
func linkByMAC(mac net.HardwareAddr) (netlink.Link, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	if i := slices.IndexFunc(links, func(l netlink.Link) bool { return hasMAC(l, mac) }); i >= 0 {
		return links[i], nil
	}
	return nil, nil
}

// sendTo moves a link that is down and renames it in one request: with two requests,
// a link of the same name in either namespace would be in the way. On an error the
// link may have moved without the new name.
func sendTo(l netlink.Link, to ns.NetNS, name string) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(l.Attrs().Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_NET_NS_FD, nl.Uint32Attr(uint32(to.Fd()))))
	req.AddData(nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated(name)))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("move %s to the other network namespace: %w", l.Attrs().Name, err)
	}
	return nil
}
