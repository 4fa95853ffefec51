package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/cni/servicepath"
)

// del is the command DEL. It needs neither the pod's network namespace nor
// prevResult, and of the configuration only what netconf.Release has.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c := netconf.ReadRelease(args.StdinData)
	clean := func(pod ns.NetNS) error {
		// First the IPAM plugin: it may use the NIC to release its lease.
		err := errors.Join(releaseInstalled(ctx, c, args), servicepath.Del(owner(c.Name, args), pod))
		if pod != nil { // the NIC, or the VLAN, may end before the pod
			err = errors.Join(err, podnic.ForgetSource(pod, args.IfName), podnic.DeleteVLAN(pod, args.IfName))
		}
		return err
	}
	return attachment.NIC.Delete(ctx, c, args, clean, func(pod ns.NetNS) error { return moveOut(c, args, pod) })
}

// Clean removes what an ADD has left in the guest for a pod that ended without a DEL. It cannot give back what an IPAM plugin of the
// guest has leased: only a DEL says which.
func Clean(network, container, iface string) error {
	return servicepath.Del(servicepath.Owner{Network: network, Container: container, Interface: iface}, nil)
}

// releaseInstalled is release for an IPAM plugin that is installed. That one is not is no error of
// the DEL: no repetition could succeed, and the runtime would keep the pod.
func releaseInstalled(ctx context.Context, c netconf.Release, args *skel.CmdArgs) error {
	if c.IPAM.Delegated() {
		if _, err := findIPAM(c.IPAM); err != nil {
			fmt.Fprintf(os.Stderr, "the address of %s %s may stay leased: %v\n", args.ContainerID, args.IfName, err)
			return nil
		}
	}
	return release(ctx, c.IPAM, args)
}

// moveOut moves the attachment's NIC out of the pod: the one with prevResult's MAC or,
// without a prevResult that can be read, the link with the interface's name if it has a PCI device.
func moveOut(c netconf.Release, args *skel.CmdArgs, pod ns.NetNS) error {
	if before, err := c.Previous(); err == nil && before != nil {
		e, err := expect(before, args)
		if err != nil {
			return nil
		}
		return podnic.MoveOut(pod, e.mac)
	}
	var mac net.HardwareAddr
	err := pod.Do(func(ns.NetNS) error {
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
	c := netconf.ReadRelease(args.StdinData)
	err := plugin.ConfigError(c.ReadValid(args.StdinData))
	if spareErr := attachment.NIC.Spare(&c); spareErr != nil {
		return errors.Join(err, spareErr)
	}
	err = errors.Join(err, attachment.NIC.Collect(ctx, c), collect(ctx, c, args))
	if c.Complete {
		err = errors.Join(err, servicepath.Reap(c.Name, func(o servicepath.Owner) bool {
			return slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: o.Container, IfName: o.Interface})
		}))
	}
	return err
}
