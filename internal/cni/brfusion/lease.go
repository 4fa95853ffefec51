package brfusion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/hostapi/hostdpb"
)

// ipamTime bounds one call of the IPAM plugin.
const ipamTime = 30 * time.Second

// findIPAM refuses an IPAM plugin that is not there before anything is done.
func findIPAM(c netconf.BrFusion) error {
	if !c.IPAM.Delegated() {
		return nil
	}
	if _, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(os.Getenv("CNI_PATH"))); err != nil {
		return failure.Invalid(fmt.Errorf("ipam.type %q: %w", c.IPAM.Type, err))
	}
	return nil
}

// lease asks the IPAM plugin for addresses.
func lease(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs) (*types100.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	got, err := invoke.DelegateAdd(ctx, c.IPAM.Type, args.StdinData, nil)
	if err != nil {
		return nil, fmt.Errorf("take address by %s: %w", c.IPAM.Type, err)
	}
	r, err := types100.NewResultFromResult(got)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.IPAM.Type, err)
	}
	if len(r.IPs) == 0 {
		return nil, fmt.Errorf("%s gave no address", c.IPAM.Type)
	}
	return r, nil
}

// release gives the addresses back. The daemon's go with the NIC.
func release(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs) error {
	return delegate(ctx, c, args, "release address by", invoke.DelegateDel)
}

// delegate hands a command on to the IPAM plugin, if there is one.
func delegate(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs, do string,
	call func(context.Context, string, []byte, invoke.Exec) error,
) error {
	if err := findIPAM(c); err != nil || !c.IPAM.Delegated() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	if err := call(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("%s %s: %w", do, c.IPAM.Type, err)
	}
	return nil
}

// knowsGC reports whether the IPAM plugin speaks a version that has GC. Another
// cannot be asked, and has had a DEL for every attachment.
func knowsGC(ctx context.Context, c netconf.BrFusion) (bool, error) {
	path, err := invoke.FindInPath(c.IPAM.Type, filepath.SplitList(os.Getenv("CNI_PATH")))
	if err != nil {
		return false, failure.Invalid(fmt.Errorf("ipam.type %q: %w", c.IPAM.Type, err))
	}
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	info, err := invoke.GetVersionInfo(ctx, path, nil)
	if err != nil {
		return false, fmt.Errorf("ask %s for its versions: %w", c.IPAM.Type, err)
	}
	return slices.Contains(info.SupportedVersions(), c.CNIVersion), nil
}

// granted makes a result of the addresses that the daemon has chosen, with the
// configuration's routes, or, if it has none, a default route for each family
// that has a gateway.
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
		return nil, errors.New("the host daemon gave no address")
	}
	r.Routes = routes(r.IPs, ipam)
	return r, nil
}

func routes(ips []*types100.IPConfig, ipam netconf.IPAM) (all []*types.Route) {
	if ipam.Routes != nil {
		for _, r := range ipam.Routes {
			all = append(all, r.Copy())
		}
		return all
	}
	for _, v6 := range []bool{false, true} {
		for _, c := range ips {
			if is6(c.Address.IP) == v6 && c.Gateway != nil {
				all = append(all, &types.Route{Dst: anywhere(v6), GW: c.Gateway})
				break
			}
		}
	}
	return all
}

func is6(ip net.IP) bool { return ip.To4() == nil }

func anywhere(v6 bool) net.IPNet {
	if v6 {
		return net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
}
