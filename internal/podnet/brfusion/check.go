package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/podnet"
)

// check is the command CHECK: is the pod's interface as the ADD has left it?
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return types.NewError(types.ErrInvalidNetworkConfig, "network configuration: prevResult is missing: CHECK compares with it", "")
	}
	want, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return fmt.Errorf("read prevResult: %w", err)
	}
	if err := checkLink(args, want); err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	if err := invoke.DelegateCheck(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("check address by %s: %w", c.IPAM.Type, err)
	}
	return nil
}

func checkLink(args *skel.CmdArgs, want *types100.Result) error {
	for i, nic := range want.Interfaces {
		if nic.Name != args.IfName || nic.Sandbox != args.Netns {
			continue
		}
		mac, err := net.ParseMAC(nic.Mac)
		if err != nil {
			return fmt.Errorf("read prevResult: %w", err)
		}
		var addrs []net.IPNet
		for _, ip := range want.IPs {
			if ip.Interface != nil && *ip.Interface == i {
				addrs = append(addrs, ip.Address)
			}
		}
		return ns.WithNetNSPath(args.Netns, func(ns.NetNS) error { return podnet.Check(args.IfName, mac, addrs) })
	}
	return errors.New("prevResult has no such interface")
}
