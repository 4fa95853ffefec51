// Package brfusion is the CNI plugin of BrFusion (Bacou et al. 2019, §3): it asks the
// host daemon for a NIC of the pod's own, waits for it in the guest, and makes it the
// pod's interface, which bypasses the guest's bridge and NAT. It follows the CNI
// specification 1.1.0 and supports versions from 0.3.1 on.
//
// What the runtime requests for a pod by CNI_ARGS, args.cni or runtimeConfig is met or
// refused: package netconf says which.
//
// Plugins chained after it: portmap works if the configuration has "services", as
// connections to a host port then come through the guest, where portmap has its
// rules. Without "services" the pod's answers bypass the guest, and have an address that
// the client did not call; only portmap's masqAll helps. Tuning works, but the host drops frames with a changed MAC. Bandwidth cannot
// work, because it shapes the host's end of a veth; it refuses a pod that has a
// limit, with an error about the missing peer. Use this plugin's key and capability
// "bandwidth" in its place: the host then limits the NIC, where the guest cannot
// change the limit.
//
// Plugging belongs to the host daemon, finding and moving a NIC to package podnic,
// the path through the guest to package servicepath, the configuration to package
// netconf.
package brfusion

import (
	"cmp"
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
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// Plugin is the plugin brfusion.
var Plugin = plugin.Plugin{
	Name:  "brfusion",
	About: "CNI plugin brfusion: gives each pod a NIC of its own, hot-plugged by the host",
	Add:   add, Del: del, Check: check, GC: gc, Status: status,
}

func parse(args *skel.CmdArgs) (netconf.BrFusion, error) {
	c, err := netconf.ParseBrFusion(args.StdinData)
	return c, plugin.ConfigError(err)
}

func owner(network string, args *skel.CmdArgs) servicepath.Owner {
	return servicepath.Owner{Network: network, Container: args.ContainerID, Interface: args.IfName}
}

// protocol is the version of the host daemon's protocol that the newer keys of the
// configuration need.
const protocol = 2

// status is the command STATUS: can an ADD succeed? It retries pending releases also if the
// configuration has a mistake.
func status(ctx context.Context, args *skel.CmdArgs) error {
	s, err := attachment.NIC.Status(ctx, args.StdinData)
	c, configErr := parse(args)
	if configErr == nil {
		configErr = plugin.ConfigError(c.CheckKeys())
	}
	if err := cmp.Or(configErr, err); err != nil {
		return err
	}
	if s.GetLimited() != "" {
		return fmt.Errorf("host daemon: %s", s.GetLimited())
	}
	if err := supports(c, s); err != nil {
		return err
	}
	return delegate(ctx, c.IPAM, args, "STATUS", "get status of")
}

// supports reports keys of the configuration that a daemon with an older protocol
// does not know.
func supports(c netconf.BrFusion, s *hostdpb.StatusResponse) error {
	switch {
	case s.GetProtocol() >= protocol:
		return nil
	case !c.IPAM.Delegated():
		return plugin.TooOld(`ipam.type "hostd"`)
	case c.Mode == netconf.Trunk:
		return plugin.TooOld(`mode "trunk"`)
	case c.Bandwidth != netconf.Bandwidth{}:
		return plugin.TooOld("bandwidth")
	}
	return nil
}

// del is the command DEL. It needs neither the pod's network namespace nor
// prevResult, and of the configuration only what netconf.Release has.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c := netconf.ReadRelease(args.StdinData)
	clean := func(pod ns.NetNS) error {
		// First the IPAM plugin: it may use the NIC to release its lease.
		err := errors.Join(releaseLeased(ctx, c, args), servicepath.Del(owner(c.Name, args), pod))
		if pod != nil { // the NIC, or the VLAN, may end before the pod
			err = errors.Join(err, podnic.ForgetSource(pod, args.IfName), podnic.DeleteVLAN(pod, args.IfName))
		}
		return err
	}
	return attachment.NIC.Delete(ctx, c, args, clean, func(pod ns.NetNS) error { return moveOut(c, args, pod) })
}

// Clean removes what an ADD has left in the guest for a pod that ended without a DEL: services, and
// what the IPAM plugin that the arguments name has leased.
func Clean(ctx context.Context, network string, args *skel.CmdArgs) error {
	c := netconf.ReadRelease(args.StdinData)
	err := servicepath.Del(servicepath.Owner{Network: network, Container: args.ContainerID, Interface: args.IfName}, nil)
	if len(args.StdinData) > 0 && c.IPAM.Delegated() {
		err = errors.Join(err, releaseLeased(ctx, c, args))
	}
	return err
}

// releaseLeased releases the IPAM plugin's addresses. If the DEL's configuration fails, or has another plugin, it tries that of the ADD. If the
// plugin calls the configuration wrong, the DEL succeeds nevertheless, because repeating it would not help.
func releaseLeased(ctx context.Context, c netconf.Release, args *skel.CmdArgs) error {
	err := release(ctx, c.IPAM, args)
	leased, ok := attachment.NIC.Leased(args.ContainerID, args.IfName)
	ipam := netconf.ReadRelease(leased.StdinData).IPAM
	if ok && (ipam.Type != c.IPAM.Type || err != nil && !netconf.Same(leased.StdinData, args.StdinData)) {
		fmt.Fprintf(os.Stderr, "release by the DEL's configuration: %v; trying that of the ADD\n", err)
		leased.Netns, leased.Args = args.Netns, args.Args
		if again := release(ctx, ipam, leased); again == nil || err == nil || mistake(err) {
			err = again
		}
	}
	if mistake(err) {
		fmt.Fprintf(os.Stderr, "the address of %s %s may stay leased: %v\n", args.ContainerID, args.IfName, err)
		return nil
	}
	return err
}

// mistake reports whether the error calls the configuration wrong.
func mistake(err error) bool {
	codes := []uint{types.ErrIncompatibleCNIVersion, types.ErrUnsupportedField, types.ErrDecodingFailure, types.ErrInvalidNetworkConfig}
	e := (*types.Error)(nil)
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
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
	return attachment.NIC.GC(ctx, args, func(c netconf.Release) error {
		err := errors.Join(attachment.NIC.Collect(ctx, c), collect(ctx, c, args))
		if c.Complete {
			err = errors.Join(err, servicepath.Reap(c.Name, func(o servicepath.Owner) bool {
				return slices.Contains(c.ValidAttachments, types.GCAttachment{ContainerID: o.Container, IfName: o.Interface})
			}))
		}
		return err
	})
}
