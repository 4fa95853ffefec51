// Package brfusion is the CNI plugin of BrFusion (Bacou et al. 2019, §3): it
// asks the host daemon for a NIC of the pod's own, waits for it in the guest,
// and makes it the pod's interface, so that no bridge and no NAT of the guest is
// in the way. It follows the CNI specification 1.1.0, and answers in the
// versions from 0.3.1 on as well.
//
// Chained after it, portmap works if the configuration has "services": a host
// port's connections come by the service path, as portmap's rules are in the
// guest. Tuning works, except that the host drops what a changed MAC sends. The
// plugin bandwidth cannot: it shapes the host's end of a veth, which a NIC of
// this kind does not have, and refuses, naming the missing peer, a pod that has a
// limit; the service path's veth does not mislead it. The key and the capability
// "bandwidth" of this plugin take its place: the host limits the NIC where it cannot
// be got round. Declare the capability here and leave the plugin out.
//
// How a NIC is plugged belongs to the host daemon, how one is moved and found to
// package podnet, the way through the guest to package servicepath, what the
// configuration means to package netconf.
package brfusion

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/failure"
	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/servicepath"
)

// About names the plugin to who calls it by hand.
const About = "CNI plugin brfusion: gives each pod a NIC of its own, hot-plugged by the host"

// Funcs are the plugin's commands. When ctx ends they give up, an ADD after
// undoing what it has done.
func Funcs(ctx context.Context) skel.CNIFuncs {
	return failure.Commands{Add: add, Del: del, Check: check, GC: gc, Status: status}.Funcs(ctx)
}

// parse marks a wrong configuration as such for the runtime.
func parse(args *skel.CmdArgs) (netconf.BrFusion, error) {
	c, err := netconf.ParseBrFusion(args.StdinData)
	switch {
	case errors.Is(err, netconf.ErrDecode):
		return c, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	case err != nil:
		return c, failure.Invalid(err)
	}
	return c, nil
}

// state is where the guest keeps what it knows of attachments.
var state = attachment.Run

func lock(ctx context.Context, args *skel.CmdArgs) (unlock func(), err error) {
	return state.Lock(ctx, args.ContainerID, args.IfName)
}

// pending are the notes of NICs that a DEL could not give back.
func pending(c netconf.BrFusion) attachment.Pending {
	return attachment.Pending{State: state, Dir: "pending", What: "the NIC", Server: c.Server.String()}
}

func dial(c netconf.BrFusion) (hostclient.Client, error) {
	return hostclient.Dial(c.Server, c.Credentials)
}

func owner(c netconf.BrFusion, args *skel.CmdArgs) servicepath.Owner {
	return servicepath.Owner{Network: c.Name, Container: args.ContainerID, Interface: args.IfName}
}
