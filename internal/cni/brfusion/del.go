package brfusion

import (
	"bytes"
	"context"
	"errors"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/cni/servicepath"
)

// del is the command DEL. It does every part whatever becomes of the others, and
// needs neither the pod's network namespace nor prevResult. That the host daemon
// cannot be asked is no error: the NIC is noted, and given back by a later
// command.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, args)
	if err != nil {
		return err
	}
	defer unlock()
	pod := attachment.PodOf(args)
	if pod != nil {
		defer pod.Close()
	}
	// An IPAM plugin may want to use the NIC for its farewell.
	err = errors.Join(release(ctx, c, args), servicepath.Del(owner(c, args), pod), removeVLAN(c, args, pod))
	d, dialErr := dial(c)
	if dialErr != nil { // no credentials: they may come back
		return errors.Join(err, pending(c).Note(args.ContainerID, args.IfName), takeOut(c, args, pod))
	}
	defer d.Close()
	return errors.Join(err, pending(c).End(ctx, d.Detach, args.ContainerID, args.IfName, func() error { return takeOut(c, args, pod) }))
}

// removeVLAN removes a VLAN's link, which would outlive the VLAN in a pod that goes
// on.
func removeVLAN(c netconf.BrFusion, args *skel.CmdArgs, pod ns.NetNS) error {
	if pod == nil || c.Mode != netconf.Trunk {
		return nil
	}
	return podnic.DeleteVLAN(pod, args.IfName)
}

// takeOut moves a NIC that the host cannot unplug yet out of the pod, which has no
// interface any more after a DEL. It knows the NIC by prevResult's MAC, or else by
// its name: a link that has a PCI device and this name is ours.
func takeOut(c netconf.BrFusion, args *skel.CmdArgs, pod ns.NetNS) error {
	if pod == nil || c.Mode == netconf.Trunk {
		return nil
	}
	var mac net.HardwareAddr
	err := pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(args.IfName)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err == nil && isOurs(c, args, l) {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	if err != nil || mac == nil {
		return err
	}
	return podnic.MoveOut(pod, mac)
}

// isOurs works in the pod's namespace.
func isOurs(c netconf.BrFusion, args *skel.CmdArgs, l netlink.Link) bool {
	if c.PrevResult != nil {
		before, err := types100.NewResultFromResult(c.PrevResult)
		if err != nil {
			return false
		}
		a, err := find(before, args)
		return err == nil && bytes.Equal(l.Attrs().HardwareAddr, a.mac)
	}
	pci, err := podnic.PCIAddress(args.IfName)
	return err == nil && pci != ""
}
