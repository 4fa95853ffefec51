package hostlo

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/hostapi/segment"
)

// check is the command CHECK: is everything as the ADD has left it, in the pod and on
// the host, and does the pod know the members of its segment?
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	r, err := c.RequirePrevious()
	if err != nil {
		return err
	}
	name, f, ok := expect(r, args)
	switch {
	case !ok && c.Segment.Name == "" && c.Network == nil: // the ADD left the pod unchanged
		return nil
	case !ok:
		return fmt.Errorf("check segment %s in %s: prevResult has no endpoint", c.Segment.Name, args.Netns)
	}
	if c.Network != nil {
		return checkByNetwork(args, c, name, f)
	}
	inPod := func(pod ns.NetNS) error { return checkPod(args, pod, name, loopback.Config{Fraction: f}) }
	return attachment.Check(c.Base, args, inPod, func(d hostclient.Client, pod ns.NetNS) error {
		return awaitMembers(ctx, d, c, args, pod, f)
	})
}

// expect finds the endpoint in the result: the pod's interface with a fraction's MAC.
func expect(r *types100.Result, args *skel.CmdArgs) (name string, f segment.Fraction, ok bool) {
	for _, nic := range r.Interfaces {
		for f := segment.Fraction(1); f <= segment.MaxFractions; f++ {
			if nic.Sandbox == args.Netns && nic.Mac == segment.MAC(f).String() {
				return nic.Name, f, true
			}
		}
	}
	return "", 0, false
}

func checkPod(args *skel.CmdArgs, pod ns.NetNS, name string, c loopback.Config) error {
	nic, _, err := find(pod, args)
	switch {
	case err != nil:
		return err
	case nic == nil:
		return errors.New("the pod has no endpoint of this attachment")
	case nic.Attrs().Name != name:
		return fmt.Errorf("the endpoint has been renamed to %s", nic.Attrs().Name)
	}
	return loopback.Check(pod, name, c)
}
