package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// ipamTime bounds one call of the IPAM plugin.
const ipamTime = 30 * time.Second

// findIPAM returns the path of the IPAM plugin, "" if there is none.
func findIPAM(ipam netconf.IPAM, args *skel.CmdArgs) (string, error) {
	if !ipam.Delegated() {
		return "", nil
	}
	path, err := invoke.FindInPath(ipam.Type, filepath.SplitList(args.Path))
	if err != nil {
		return "", plugin.Invalid(fmt.Errorf("ipam.type %q: %w", ipam.Type, err))
	}
	return path, nil
}

// lease gets addresses from the IPAM plugin.
func lease(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs) (*types100.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	got, err := invoke.DelegateAdd(ctx, c.IPAM.Type, args.StdinData, nil)
	if err != nil {
		return nil, fmt.Errorf("get address from %s: %w", c.IPAM.Type, err)
	}
	r, err := types100.NewResultFromResult(got)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.IPAM.Type, err)
	}
	if len(r.IPs) == 0 {
		return nil, fmt.Errorf("get address from %s: it returned none", c.IPAM.Type)
	}
	for _, want := range c.Requested {
		if !slices.Contains(plain(r.IPs), want.Addr()) {
			return nil, plugin.Invalid(fmt.Errorf("get address %s from %s: it ignores the request and chose %s; remove the request, or use an IPAM plugin that supports it",
				want.Addr(), c.IPAM.Type, strings.Join(prefixed(r.IPs), ", ")))
		}
	}
	return r, nil
}

// exchange replaces the addresses of each family of which the runtime requests some. A
// requested address has the prefix length and the gateway of the address that it replaces.
func exchange(ips []*types100.IPConfig, requested []netip.Prefix) ([]*types100.IPConfig, error) {
	var all []*types100.IPConfig
	for _, ip := range ips {
		bits, _ := ip.Address.Mask.Size()
		kept := true
		for _, want := range requested {
			if want.Addr().Is6() != is6(ip.Address.IP) {
				continue
			}
			kept = false
			if !ip.Address.Contains(want.Addr().AsSlice()) || want.Bits() >= 0 && want.Bits() != bits {
				continue
			}
			c := ip.Copy()
			c.Address.IP = want.Addr().AsSlice()
			all = append(all, c)
		}
		if kept {
			all = append(all, ip)
		}
	}
	for _, want := range requested {
		if !slices.Contains(plain(all), want.Addr()) {
			return nil, fmt.Errorf("get address %s from the host daemon: want an address, and if any the prefix length, of %s; request another, or none",
				want.Addr(), strings.Join(subnets(ips), ", "))
		}
	}
	return all, nil
}

// subnets are those of the addresses.
func subnets(ips []*types100.IPConfig) (all []string) {
	for _, ip := range ips {
		n := net.IPNet{IP: ip.Address.IP.Mask(ip.Address.Mask), Mask: ip.Address.Mask}
		all = append(all, n.String())
	}
	return all
}

// release releases the IPAM plugin's addresses. The daemon's are released with the
// NIC.
func release(ctx context.Context, ipam netconf.IPAM, args *skel.CmdArgs) error {
	return delegate(ctx, ipam, args, "DEL", "release address of")
}

// delegate passes a command on to the IPAM plugin, if there is one.
func delegate(ctx context.Context, ipam netconf.IPAM, args *skel.CmdArgs, command, do string) error {
	path, err := findIPAM(ipam, args)
	if err != nil || path == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	env := &invoke.Args{
		Command: command, ContainerID: args.ContainerID, NetNS: args.Netns, IfName: args.IfName, PluginArgsStr: args.Args, Path: args.Path,
	}
	if err := invoke.ExecPluginWithoutResult(ctx, path, args.StdinData, env, nil); err != nil {
		return fmt.Errorf("%s %s: %w", do, ipam.Type, err)
	}
	return nil
}

// collect passes GC on to the IPAM plugin if that supports the version. A plugin
// without GC has had a DEL for every attachment.
func collect(ctx context.Context, c netconf.Release, args *skel.CmdArgs) error {
	path, err := findIPAM(c.IPAM, args)
	if err != nil || path == "" {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	info, err := invoke.GetVersionInfo(bound, path, nil)
	if err != nil {
		return fmt.Errorf("get versions of %s: %w", c.IPAM.Type, err)
	}
	if !slices.Contains(info.SupportedVersions(), c.CNIVersion) {
		return nil
	}
	spared := *args
	if spared.StdinData, err = c.WithValid(args.StdinData); err != nil {
		return err
	}
	return delegate(ctx, c.IPAM, &spared, "GC", "collect addresses of")
}

// granted is the result with the daemon's addresses and the configuration's routes.
func granted(addresses []*hostdpb.Address, ipam netconf.IPAM) (*types100.Result, error) {
	r := &types100.Result{}
	for _, a := range addresses {
		ip, err := types.ParseCIDR(a.GetAddress())
		if err != nil {
			return nil, fmt.Errorf("read the host daemon's answer: address %q: %w", a.GetAddress(), err)
		}
		c := &types100.IPConfig{Address: *ip}
		if a.GetGateway() != "" {
			if c.Gateway = net.ParseIP(a.GetGateway()); c.Gateway == nil {
				return nil, fmt.Errorf("read the host daemon's answer: gateway %q", a.GetGateway())
			}
		}
		r.IPs = append(r.IPs, c)
	}
	if len(r.IPs) == 0 {
		return nil, errors.New("read the host daemon's answer: no address")
	}
	r.Routes = routes(r.IPs, ipam)
	return r, nil
}

// routes are the configuration's or, without the key, a default route for each family
// that has a gateway.
func routes(ips []*types100.IPConfig, ipam netconf.IPAM) (all []*types.Route) {
	if ipam.Routes != nil {
		for _, r := range ipam.Routes {
			all = append(all, r.Copy())
		}
		return all
	}
	for _, anywhere := range []net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	} {
		i := slices.IndexFunc(ips, func(c *types100.IPConfig) bool {
			return is6(c.Address.IP) == is6(anywhere.IP) && c.Gateway != nil
		})
		if i >= 0 {
			all = append(all, &types.Route{Dst: anywhere, GW: ips[i].Gateway})
		}
	}
	return all
}
