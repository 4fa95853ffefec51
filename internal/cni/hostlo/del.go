package hostlo

import (
	"context"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/podnic"
)

// del is the command DEL. It needs neither the pod's network namespace nor prevResult
// nor the segment's name, and of the configuration only what netconf.Release has.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c := netconf.ReadRelease(args.StdinData)
	if c.RawSpan == netconf.SpanNetwork {
		return delByNetwork(ctx, args, c)
	}
	name := nameIn(c.Chained, c.Interface, args)
	var nic netlink.Link
	clean := func(pod ns.NetNS) (err error) {
		if pod != nil {
			nic, err = disconnect(pod, args, name)
		}
		return err
	}
	return attachment.Endpoint.Delete(ctx, c, args, clean, func(pod ns.NetNS) error {
		if nic == nil {
			return nil
		}
		return podnic.MoveOut(pod, nic.Attrs().HardwareAddr)
	})
}

// disconnect takes the pod's lo out of the segment, unless that is another
// attachment's, and returns the endpoint, nil for none. name is the endpoint's if it
// has been unplugged.
func disconnect(pod ns.NetNS, args *skel.CmdArgs, name string) (netlink.Link, error) {
	nic, others, err := find(pod, args)
	switch {
	case err != nil:
		return nil, err
	case nic != nil:
		return nic, leave(pod, nic.Attrs().Name)
	case others:
		return nil, nil
	}
	return nil, leave(pod, name)
}
