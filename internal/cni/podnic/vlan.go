package podnic

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrVLANTaken is wrapped when the parent already has a link for the VLAN: that of a
// former pod whose namespace still exists.
var ErrVLANTaken = errors.New("the VLAN is in use in this guest")

// AddVLAN makes a link for a VLAN of parent in the pod's network namespace, with the
// given MAC, MTU (0: the parent's) and name, and brings it up. The parent is in the
// calling thread's namespace; AddVLAN brings it up and raises its MTU to the link's,
// which does not count the tag. On an error there is no link, but the parent stays
// changed. undo removes the link, if it still exists.
//
// The link is never in the guest's own namespace, where a network daemon could
// configure it.
func AddVLAN(parent netlink.Link, vlan int, mac net.HardwareAddr, mtu int, pod ns.NetNS, name string) (undo func() error, err error) {
	describe := func(do string, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s VLAN %d of %s as %s in the pod: %w", do, vlan, parent.Attrs().Name, name, err)
	}
	if err := CheckFree(pod, name); err != nil {
		return nil, describe("add", err)
	}
	if err := prepareParent(parent, mtu); err != nil {
		return nil, describe("add", err)
	}
	if err := createVLAN(parent, vlan, mac, mtu, pod); err != nil {
		return nil, describe("add", err)
	}
	undo = func() error {
		return describe("remove", pod.Do(func(ns.NetNS) error { return deleteByMAC(mac) }))
	}
	if err := pod.Do(func(ns.NetNS) error { return renameByMAC(mac, name) }); err != nil {
		return nil, errors.Join(describe("add", err), undo())
	}
	return undo, nil
}

// prepareParent never lowers the MTU: other pods' links are on the parent.
func prepareParent(parent netlink.Link, mtu int) error {
	now, err := netlink.LinkByIndex(parent.Attrs().Index) // it may have changed since parent was read
	if err != nil {
		return err
	}
	if now.Attrs().MTU < mtu {
		if err := netlink.LinkSetMTU(now, mtu); err != nil {
			return fmt.Errorf("raise MTU of %s to %d: %w", now.Attrs().Name, mtu, err)
		}
	}
	if err := netlink.LinkSetUp(now); err != nil {
		return fmt.Errorf("bring %s up: %w", now.Attrs().Name, err)
	}
	return nil
}

// createVLAN makes the link in the pod, but under a temporary name: kernels before
// 6.3 refuse a name that exists in the caller's namespace, such as eth0.
func createVLAN(parent netlink.Link, vlan int, mac net.HardwareAddr, mtu int, pod ns.NetNS) error {
	a := netlink.NewLinkAttrs()
	a.Name = anyName
	a.ParentIndex, a.HardwareAddr, a.MTU = parent.Attrs().Index, mac, mtu
	a.Namespace = netlink.NsFd(pod.Fd())
	err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: a, VlanId: vlan})
	switch {
	case errors.Is(err, unix.EEXIST):
		return ErrVLANTaken
	case errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("the guest's kernel lacks 802.1Q: %w; install its module 8021q", err)
	}
	return err
}

func renameByMAC(mac net.HardwareAddr, name string) error {
	l, err := linkByMAC(mac)
	if err != nil {
		return err
	}
	if l == nil {
		return errors.New("the link has been removed")
	}
	if err := netlink.LinkSetName(l, name); err != nil {
		return fmt.Errorf("rename %s: %w", l.Attrs().Name, err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fmt.Errorf("bring up: %w", err)
	}
	return nil
}

func deleteByMAC(mac net.HardwareAddr) error {
	l, err := linkByMAC(mac)
	if l == nil || err != nil {
		return err
	}
	return netlink.LinkDel(l)
}

// DeleteVLAN removes the pod's link of the given name if it is a VLAN, and VLANs
// under the temporary name of AddVLAN, whose maker was killed before it renamed them.
// It is not an error when there is none. A link ends with its pod's namespace.
func DeleteVLAN(pod ns.NetNS, name string) error {
	err := pod.Do(func(ns.NetNS) error {
		links, err := netlinksafe.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if n := l.Attrs().Name; l.Type() == "vlan" && (n == name || isAnyName(n)) {
				err = errors.Join(err, netlink.LinkDel(l))
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove VLAN link %s of the pod: %w", name, err)
	}
	return nil
}

// isAnyName reports whether the kernel has made the name from anyName.
func isAnyName(name string) bool {
	number, ok := strings.CutPrefix(name, strings.TrimSuffix(anyName, "%d"))
	_, err := strconv.ParseUint(number, 10, 31)
	return ok && err == nil
}

// tooLarge is the largest MTU that Linux takes, in bytes.
const tooLarge = 65535

// HasVLAN reports whether there is a link for a VLAN of parent, in whichever network namespace. It asks for another one, with an MTU that
// no parent has: Linux refuses a VLAN that there is before an MTU that is too large (vlan_newlink in net/8021q/vlan_netlink.c). So it
// makes no link.
func HasVLAN(parent netlink.Link, vlan int) (bool, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.ParentIndex, a.MTU = fmt.Sprint("unnest-v", vlan), parent.Attrs().Index, tooLarge
	var err error
	if parent.Attrs().MTU < tooLarge {
		err = netlink.LinkAdd(&netlink.Vlan{LinkAttrs: a, VlanId: vlan})
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		return true, nil
	case errors.Is(err, unix.EINVAL):
		return false, nil
	case err == nil:
		err = fmt.Errorf("the parent has an MTU of %d bytes: want less than %d", parent.Attrs().MTU, tooLarge)
	}
	return false, fmt.Errorf("look for VLAN %d of %s: %w", vlan, parent.Attrs().Name, err)
}
