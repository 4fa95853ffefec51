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
	"fmt"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
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
	return delegate(ctx, c.IPAM, args, "get status of", invoke.DelegateStatus)
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
