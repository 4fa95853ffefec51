package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/hostapi/hostdpb"
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
	if err == nil {
		err = checkPod(c, args, e)
	}
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	if err := checkHost(ctx, c, args, e); err != nil {
		return fmt.Errorf("check %s on the host: %w", args.IfName, err)
	}
	return delegate(ctx, c, args, "check address of", invoke.DelegateCheck)
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
	for _, ip := range r.IPs {
		if ip.Interface != nil && *ip.Interface == i {
			e.ips = append(e.ips, ip)
		}
	}
	return e, nil
}

func checkPod(c netconf.BrFusion, args *skel.CmdArgs, e expected) error {
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer pod.Close()
	if err := pod.Do(func(ns.NetNS) error { return e.checkLink(args.IfName) }); err != nil {
		return err
	}
	if path, ok := pathOf(c, args, e.ips, e.mtu); ok {
		return path.Check(pod)
	}
	return nil
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
	return e.checkRoutes(l)
}

// checkRoutes looks for each route of the result, on any link: another plugin of the
// chain may have made it.
func (e expected) checkRoutes(l netlink.Link) error {
	for _, r := range e.result.Routes {
		want := kernelRoute(r, e.ips, l)
		table, family := want.Table, netlink.FAMILY_V4
		if table == 0 {
			table = unix.RT_TABLE_MAIN
		}
		if is6(r.Dst.IP) {
			family = netlink.FAMILY_V6
		}
		have, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		viaGateway := func(hop *netlink.NexthopInfo) bool { return hop.Gw.Equal(want.Gw) }
		if !slices.ContainsFunc(have, func(h netlink.Route) bool {
			return h.Dst != nil && h.Dst.String() == want.Dst.String() &&
				(h.Gw.Equal(want.Gw) || slices.ContainsFunc(h.MultiPath, viaGateway))
		}) {
			return fmt.Errorf("the route to %s is missing", &r.Dst)
		}
	}
	return nil
}

// checkHost asks the host daemon. A daemon that does not answer, or is too old to
// check, is not an error: the pod's NIC works without it, and a runtime may kill a
// pod whose CHECK fails.
func checkHost(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs, e expected) error {
	d, err := hostclient.Dial(c.Server, c.Credentials)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.Check(ctx, &hostdpb.CheckRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Mac: e.mac.String(), Addresses: prefixed(e.ips),
	})
	if hostclient.Unknown(err) || hostclient.Unanswered(err) {
		return nil
	}
	return err
}
