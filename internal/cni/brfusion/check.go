package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// expected is what prevResult says about the pod's interface.
type expected struct {
	mac    net.HardwareAddr
	mtu    int // 0: not given
	ips    []*types100.IPConfig
	result *types100.Result
}

// check is the command CHECK: is everything as the ADD has left it, in the pod,
// on the host, and at the IPAM plugin?
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	result, err := c.RequirePrevious()
	if err != nil {
		return err
	}
	e, err := expect(result, args)
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	inPod := func(pod ns.NetNS) error {
		err := pod.Do(func(ns.NetNS) error { return e.checkLink(args.IfName) })
		if err != nil || len(c.Services) == 0 {
			return err
		}
		return pathOf(c, args, e.ips, e.mtu).Check(pod)
	}
	onHost := func(d hostclient.Client, _ ns.NetNS) error {
		_, err := d.Check(ctx, &hostdpb.CheckRequest{
			ContainerId: args.ContainerID, Interface: args.IfName, Mac: e.mac.String(), Addresses: prefixed(e.ips),
		})
		if hostclient.Unknown(err) { // the daemon is too old
			return nil
		}
		return err
	}
	if err := attachment.Check(c.Base, args, inPod, onHost); err != nil {
		return err
	}
	return delegate(ctx, c.IPAM, args, "CHECK", "check address of")
}

// expect finds the interface by its name and the pod's namespace.
func expect(r *types100.Result, args *skel.CmdArgs) (e expected, err error) {
	i := slices.IndexFunc(r.Interfaces, func(nic *types100.Interface) bool {
		return nic.Name == args.IfName && nic.Sandbox == args.Netns
	})
	if i < 0 {
		return e, errors.New("prevResult has no such interface")
	}
	if e.mac, err = net.ParseMAC(r.Interfaces[i].Mac); err != nil {
		return e, fmt.Errorf("read prevResult: %w", err)
	}
	e.mtu, e.result = r.Interfaces[i].Mtu, r
	e.ips = slices.DeleteFunc(slices.Clone(r.IPs), func(ip *types100.IPConfig) bool { return ip.Interface == nil || *ip.Interface != i })
	return e, nil
}

func (e expected) checkLink(name string) error {
	var addrs []net.IPNet
	for _, ip := range e.ips {
		addrs = append(addrs, ip.Address)
	}
	if err := podnic.Check(name, e.mac, addrs); err != nil {
		return err
	}
	l, err := netlinksafe.LinkByName(name)
	if err != nil {
		return err
	}
	// The plugin tuning, chained after us, lowers the MTU but does not change the result.
	if e.mtu != 0 && l.Attrs().MTU > e.mtu {
		return fmt.Errorf("link %s has the MTU %d, want %d", name, l.Attrs().MTU, e.mtu)
	}
	for _, r := range e.result.Routes {
		want := kernelRoute(r, e.ips, l)
		want.LinkIndex = 0 // another plugin of the chain may have made it, on another link
		if err := podnic.CheckRoute(want); err != nil {
			return err
		}
	}
	return nil
}
