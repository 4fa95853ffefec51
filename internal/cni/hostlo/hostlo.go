// Package hostlo is the CNI plugin of Hostlo (Bacou et al. 2019, §4): it makes a
// pod a fraction of a segment, so that its localhost is the one of the pod's
// fractions on other VMs as well. It asks the host daemon for an endpoint of the
// segment, waits for that NIC in the guest, moves it into the pod, and glues the
// pod's lo to it. It follows the CNI specification 1.1.0, and answers in the
// versions from 0.3.1 on as well.
//
// It works alone, when the endpoint is the pod's interface, or in a chain after
// what gives the pod its network, brfusion or bridge, when the endpoint comes
// beside that. In a chain a pod for which no segment is named is passed on as it
// is, so that one network serves pods that are split and pods that are not. An
// endpoint has no addresses: the pod's are those of its lo.
//
// # How a runtime names the segment
//
// Nerdctl (1.7) has no way to give a plugin anything of ours: it passes on ports and
// addresses. There the network's configuration names the segment; so there is a
// network for each segment, of brfusion or bridge with hostlo after it, or of hostlo
// alone, which a container can have beside another: --network pods --network shop.
//
// Containerd's CRI plugin (1.5) and CRI-O pass on a pod's annotations to who
// declares "capabilities": {"io.kubernetes.cri.pod-annotations": true}. So one
// network serves all pods of a Kubernetes node. Who may read the pod reads the key
// there; that is enough to join from a guest of the tenant.
//
// Who calls plugins himself, by libcni or cnitool (CNI_ARGS, CAP_ARGS), can give the
// capability "segment" or CNI_ARGS. Plugins that read CNI_ARGS by libcni's LoadArgs
// refuse a value that has an equals sign, such as a key with base64's padding.
//
// # What belongs to whom
//
// A pod has one localhost, so it can be in one segment only. A DEL knows what is
// an attachment's by the alias of the endpoint, "unnest:segment:" with container
// and interface, and needs neither the pod nor prevResult.
//
// Where the segment's name and key come from, and what the configuration means,
// belongs to package netconf; what is done to lo to package loopback; how the NIC
// is plugged, and who may join, to the host daemon.
package hostlo

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/failure"
	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/loopback"
	"unnest/internal/cni/netconf"
	"unnest/internal/hostapi/segment"
)

// About names the plugin to who calls it by hand.
const About = "CNI plugin hostlo: makes a pod's localhost one with that of the pod's fractions on other VMs"

// Funcs are the plugin's commands. When ctx ends they give up, an ADD after
// undoing what it has done.
func Funcs(ctx context.Context) skel.CNIFuncs {
	return failure.Commands{Add: add, Del: del, Check: check, GC: gc, Status: status}.Funcs(ctx)
}

// localhost is what package loopback does to a pod's lo.
type localhost struct {
	probe      func() error
	join       func(pod ns.NetNS, nic string, c loopback.Config) error
	check      func(pod ns.NetNS, nic string, c loopback.Config) error
	leave      func(pod ns.NetNS, nic string) error
	membership func(pod ns.NetNS) (segment.Membership, error)
}

var lo = localhost{loopback.Probe, loopback.Join, loopback.Check, loopback.Leave, loopback.Membership}

// state is where the guest keeps what it knows of attachments.
var state = attachment.Run

// pending are the notes of endpoints that a DEL could not give back.
func pending(c netconf.Hostlo) attachment.Pending {
	return attachment.Pending{State: state, Dir: "pending-endpoints", What: "the endpoint", Server: c.Server.String()}
}

func dial(c netconf.Hostlo) (hostclient.Client, error) {
	return hostclient.Dial(c.Server, c.Credentials)
}

// parse marks a wrong configuration, and wrong arguments, as such for the runtime.
func parse(args *skel.CmdArgs) (netconf.Hostlo, error) {
	c, err := netconf.ParseHostlo(args.StdinData, args.Args)
	switch {
	case errors.Is(err, netconf.ErrDecode):
		return c, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	case errors.Is(err, netconf.ErrArgs):
		return c, types.NewError(types.ErrInvalidEnvironmentVariables, err.Error(), "")
	case err != nil:
		return c, failure.Invalid(err)
	}
	return c, nil
}
