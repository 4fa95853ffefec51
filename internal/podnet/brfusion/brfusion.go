// Package brfusion is the CNI plugin of BrFusion (Bacou et al. 2019, §3): it
// asks the host daemon for a NIC of the pod's own, waits for it in the guest,
// and makes it the pod's interface, so that no bridge and no NAT of the guest is
// in the way.
//
// How a NIC is plugged belongs to the host daemon, how one is moved and found to
// package podnet, what the configuration means to package netconf.
package brfusion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"unnest/internal/podnet/netconf"
)

// About names the plugin to who calls it by hand.
const About = "CNI plugin brfusion: gives each pod a NIC of its own, hot-plugged by the host"

// ipamTime bounds one call of the IPAM plugin.
const ipamTime = 30 * time.Second

// Funcs are the plugin's commands. When ctx ends they give up, an ADD after
// undoing what it has done. There is nothing to do for GC yet.
func Funcs(ctx context.Context) skel.CNIFuncs {
	return skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { return coded(add(ctx, args)) },
		Del:    func(args *skel.CmdArgs) error { return coded(del(ctx, args)) },
		Check:  func(args *skel.CmdArgs) error { return coded(check(ctx, args)) },
		Status: func(args *skel.CmdArgs) error { return unavailable(state(ctx, args)) },
	}
}

// parse marks a wrong configuration as such for the runtime.
func parse(args *skel.CmdArgs) (netconf.BrFusion, error) {
	c, err := netconf.ParseBrFusion(args.StdinData)
	if err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	return c, nil
}

// del gives the address and the NIC back. It does not need the pod's network
// namespace, and does both parts whatever becomes of the other.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	ipamErr := releaseAddress(ctx, c, args)
	d, err := dial(c)
	if err != nil {
		return errors.Join(ipamErr, err)
	}
	defer d.close()
	return errors.Join(ipamErr, d.detach(ctx, args))
}

func releaseAddress(ctx context.Context, c netconf.BrFusion, args *skel.CmdArgs) error {
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	if err := invoke.DelegateDel(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("release address by %s: %w", c.IPAM.Type, err)
	}
	return nil
}

// state is the command STATUS: can an ADD succeed?
func state(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.status(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	if err := invoke.DelegateStatus(ctx, c.IPAM.Type, args.StdinData, nil); err != nil {
		return fmt.Errorf("status of %s: %w", c.IPAM.Type, err)
	}
	return nil
}

// coded gives an error the code that tells the runtime whether to try again.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := types.ErrInternal
	if r := (*refusal)(nil); errors.As(err, &r) && r.passing() {
		code = types.ErrTryAgainLater
	} else if e := (*types.Error)(nil); errors.As(err, &e) {
		code = e.Code
	}
	return withCode(code, err)
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return withCode(types.ErrPluginNotAvailable, err)
}

// withCode keeps all of err's words, on one line.
func withCode(code uint, err error) error {
	return types.NewError(code, strings.ReplaceAll(err.Error(), "\n", "; "), "")
}
