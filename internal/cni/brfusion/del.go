package brfusion

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/cni/servicepath"
)

// del is the command DEL. It needs neither the pod's network namespace nor
// prevResult.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	clean := func(pod ns.NetNS) error {
		// First the IPAM plugin: it may use the NIC to release its lease.
		err := errors.Join(release(ctx, c, args), servicepath.Del(owner(c, args), pod))
		if pod != nil && c.Mode == netconf.Trunk { // the VLAN may end before the pod
			err = errors.Join(err, podnic.DeleteVLAN(pod, args.IfName))
		}
		return err
	}
	return attachment.NIC.Delete(ctx, c.Base, args, clean, func(pod ns.NetNS) error { return moveOut(c, args, pod) })
}

// moveOut moves the attachment's NIC out of the pod: the one with prevResult's MAC or,
// without prevResult, the link with the interface's name if it has a PCI device.
func moveOut(c netconf.BrFusion, args *skel.CmdArgs, pod ns.NetNS) error {
	before, err := c.Previous()
	if err != nil || c.Mode == netconf.Trunk {
		return nil
	}
	if before != nil {
		e, err := expect(before, args)
		if err != nil {
			return nil
		}
		return podnic.MoveOut(pod, e.mac)
	}
	var mac net.HardwareAddr
	err = pod.Do(func(ns.NetNS) error {
		l, err := podnic.FindLink(args.IfName)
		if l == nil || err != nil {
			return err
		}
		if pci, err := podnic.PCIAddress(args.IfName); err == nil && pci != "" {
			mac = l.Attrs().HardwareAddr
		}
		return nil
	})
	if err != nil || mac == nil {
		return err
	}
	return podnic.MoveOut(pod, mac)
}

// gc is the command GC: it removes what belongs to attachments of the network that
// are not valid. If the runtime does not say which are valid, it only retries pending
// releases.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	err = errors.Join(attachment.NIC.Collect(ctx, c.Base), collect(ctx, c, args))
	if c.Complete {
		err = errors.Join(err, servicepath.Reap(c.Name, func(o servicepath.Owner) bool {
			return slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: o.Container, IfName: o.Interface})
		}))
	}
	return err
}
