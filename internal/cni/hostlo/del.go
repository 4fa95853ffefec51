package hostlo

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
)

// del is the command DEL. It does every part whatever becomes of the others, and
// needs neither the pod's network namespace nor prevResult, nor does it matter
// whether a segment is named. That the host daemon cannot be asked is no error: the
// endpoint is noted, and given back by a later command.
func del(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	unlock, err := state.Lock(ctx, args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	defer unlock()
	pod := attachment.PodOf(args)
	if pod != nil {
		defer pod.Close()
	}
	nic, err := detach(c, args, pod)
	d, dialErr := dial(c)
	if dialErr != nil { // no credentials: they may come back
		return errors.Join(err, pending(c).Note(args.ContainerID, args.IfName), takeOut(nic, pod))
	}
	defer d.Close()
	return errors.Join(err, left(pending(c).End(ctx, d.Leave, args.ContainerID, args.IfName, func() error { return takeOut(nic, pod) })))
}

// detach makes the pod's lo its own again, unless it is part of another
// attachment's segment, and returns the endpoint, nil for none.
func detach(c netconf.Hostlo, args *skel.CmdArgs, pod ns.NetNS) (netlink.Link, error) {
	if pod == nil {
		return nil, nil
	}
	nic, others, err := find(pod, args)
	switch {
	case err != nil:
		return nil, err
	case nic != nil:
		return nic, lo.leave(pod, nic.Attrs().Name)
	case others:
		return nil, nil
	}
	return nil, lo.leave(pod, nameIn(c, args)) // the NIC may have gone before
}

// takeOut moves an endpoint that the host cannot unplug yet out of the pod, which
// has none any more after a DEL.
func takeOut(nic netlink.Link, pod ns.NetNS) error {
	if nic == nil {
		return nil
	}
	return podnic.MoveOut(pod, nic.Attrs().HardwareAddr)
}

// left is how leaving a segment has ended. A daemon that does not know segments has
// given no endpoint.
func left(err error) error {
	if failure.Unknown(err) {
		return nil
	}
	return err
}
