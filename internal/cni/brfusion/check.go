package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/hostapi/hostdpb"
)

// wanted is what prevResult says about the pod's interface.
type wanted struct {
	mac net.HardwareAddr
	mtu int // 0: not said
	ips []*types100.IPConfig
}

// check is the command CHECK: is everything as the ADD has left it, in the pod,
// on the host, and at the IPAM plugin?
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return failure.Invalid(errors.New("network configuration: prevResult is missing: CHECK compares with it"))
	}
	want, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return fmt.Errorf("read prevResult: %w", err)
	}
	a, err := find(want, args)
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	if err := checkPodSide(c, args, want, a); err != nil {
		return err
	}
	if err := checkHost(ctx, c, args, a); err != nil {
		return err
	}
	return delegate(ctx, c, args, "check address by", invoke.DelegateCheck)
}

// find looks the interface up by its name and the pod's namespace.
func find(want *types100.Result, args *skel.CmdArgs) (a wanted, err error) {
	for i, nic := range want.Interfaces {
		if nic.Name != args.IfName || nic.Sandbox != args.Netns {
			continue
		}
		if a.mac, err = net.ParseMAC(nic.Mac); err != nil {
			return a, fmt.Errorf("read prevResult: %w", err)
		}
		a.mtu = nic.Mtu
		for _, ip := range want.IPs {
			if ip.Interface != nil && *ip.Interface == i {
				a.ips = append(a.ips, ip)
			}
		}
		return a, nil
	}
	return a, errors.New("prevResult has no such interface")
}

func checkPodSide(c netconf.BrFusion, args *skel.CmdArgs, want *types100.Result, a wanted) error {
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("check %s: open network namespace: %w", args.IfName, err)
	}
	defer pod.Close()
	err = pod.Do(func(ns.NetNS) error {
		var addrs []net.IPNet
		for _, ip := range a.ips {
			addrs = append(addrs, ip.Address)
		}
		if err := podnic.Check(args.IfName, a.mac, addrs); err != nil {
			return err
		}
		l, err := netlinksafe.LinkByName(args.IfName)
		if err != nil {
			return err
		}
		// Tuning, chained after us, lowers it without a word in the result.
		if a.mtu != 0 && l.Attrs().MTU > a.mtu {
			return fmt.Errorf("link %s has the MTU %d, want %d", args.IfName, l.Attrs().MTU, a.mtu)
		}
		return checkRoutes(want, a.ips, l)
	})
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	if path, ok := pathOf(c, args, a.ips, a.mtu); ok {
		return path.Check(pod)
	}
	return nil
}

// checkRoutes wants each route that the result lists, by whichever link: a
// plugin before or after us may have made it.
func checkRoutes(want *types100.Result, ips []*types100.IPConfig, l netlink.Link) error {
	for _, r := range want.Routes {
		e := entry(r, ips, l)
		table := e.Table
		if table == 0 {
			table = unix.RT_TABLE_MAIN
		}
		family := netlink.FAMILY_V4
		if is6(r.Dst.IP) {
			family = netlink.FAMILY_V6
		}
		have, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		if !hasRoute(have, e) {
			return fmt.Errorf("the route to %s is missing", &r.Dst)
		}
	}
	return nil
}

func hasRoute(have []netlink.Route, want *netlink.Route) bool {
	for _, h := range have {
		if h.Dst == nil || h.Dst.String() != want.Dst.String() {
			continue
		}
		if h.Gw.Equal(want.Gw) {
			return true
		}
		for _, hop := range h.MultiPath {
			if hop.Gw.Equal(want.Gw) {
				return true
			}
		}
	}
	return false
}

// checkHost asks the host daemon, unless it is too old to know. One that does not
// answer is no fault of the pod, whose NIC works without; a runtime may take a
// failed CHECK for the pod's end.
func checkHost(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs, a wanted) error {
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.Check(ctx, &hostdpb.CheckRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Mac: a.mac.String(), Addresses: prefixed(a.ips),
	})
	if err != nil && !failure.Unknown(err) && !failure.Unanswered(err) {
		return fmt.Errorf("check %s on the host: %w", args.IfName, err)
	}
	return nil
}
