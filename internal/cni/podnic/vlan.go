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

// ErrVLANTaken is wrapped when the parent has a link for the VLAN already: that
// of a former pod whose namespace is still there.
var ErrVLANTaken = errors.New("the VLAN is in use in this guest")

// AddVLAN makes the link of a VLAN of parent, which is in the calling thread's
// network namespace, in the pod's: with the given MAC, MTU (0: the parent's) and
// name, up. The parent is brought up, and its MTU raised to the link's, which
// does not count the tag. On an error there is no link; the parent stays as it
// is by then, which does no harm. undo removes the link; that it is gone already
// is no error.
//
// The link is never in the guest's own namespace, where a network daemon would
// take it for one of its own.
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

// createVLAN makes the link in the pod at once, but not under its name: kernels
// before 6.3 refuse a name that the namespace of the caller has, such as eth0.
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
		return fmt.Errorf("the guest's kernel has no 802.1Q, module 8021q: %w", err)
	}
	return err
}

func renameByMAC(mac net.HardwareAddr, name string) error {
	l, err := linkByMAC(mac)
	if err != nil {
		return err
	}
	if l == nil {
		return errors.New("it is gone")
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

// DeleteVLAN removes the pod's link of the given name, if it is a VLAN's; that
// there is none, or that it is another kind of link, is no error. A link whose
// pod's namespace is gone is gone with it. VLANs under the name that AddVLAN makes
// them with go, too: their maker was killed before it could name them.
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

// isAnyName reports whether the kernel has made the name of anyName.
func isAnyName(name string) bool {
	number, ok := strings.CutPrefix(name, strings.TrimSuffix(anyName, "%d"))
	_, err := strconv.ParseUint(number, 10, 31)
	return ok && err == nil
}
