package hostlo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/loopback"
	"unnest/internal/cni/netconf"
	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
)

// newsTime is how long news of the segment may take to be in the pod: the host
// repeats them every 2 s.
const newsTime = 7 * time.Second

// check is the command CHECK: is everything as the ADD has left it, in the pod and
// on the host, and does the pod know who is in its segment?
func check(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.PrevResult == nil {
		return failure.Invalid(errors.New("network configuration: prevResult is missing: CHECK compares with it"))
	}
	r, err := types100.NewResultFromResult(c.PrevResult)
	if err != nil {
		return fmt.Errorf("read prevResult: %w", err)
	}
	name, f, ok := wanted(r, args)
	switch {
	case !ok && c.Segment.Name == "": // the ADD has passed it on
		return nil
	case !ok:
		return fmt.Errorf("check segment %s in %s: prevResult has no endpoint", c.Segment.Name, args.Netns)
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return fmt.Errorf("check %s: open network namespace: %w", name, err)
	}
	defer pod.Close()
	if err := checkPodSide(args, pod, name, f); err != nil {
		return fmt.Errorf("check %s in %s: %w", name, args.Netns, err)
	}
	host, err := checkHost(ctx, c, args, f)
	if err != nil {
		return fmt.Errorf("check %s on the host: %w", name, err)
	}
	if host == nil {
		return nil
	}
	if err := awaitNews(ctx, pod, *host); err != nil {
		return fmt.Errorf("check %s in %s: %w", name, args.Netns, err)
	}
	return nil
}

// wanted is the endpoint in the result: the interface in the pod that has a
// fraction's MAC.
func wanted(r *types100.Result, args *skel.CmdArgs) (name string, f segment.Fraction, ok bool) {
	for _, nic := range r.Interfaces {
		for f := segment.Fraction(1); f <= segment.MaxFractions; f++ {
			if nic.Sandbox == args.Netns && nic.Mac == segment.MAC(f).String() {
				return nic.Name, f, true
			}
		}
	}
	return "", 0, false
}

func checkPodSide(args *skel.CmdArgs, pod ns.NetNS, name string, f segment.Fraction) error {
	nic, _, err := find(pod, args)
	switch {
	case err != nil:
		return err
	case nic == nil:
		return errors.New("the pod has no endpoint of this attachment")
	case nic.Attrs().Name != name:
		return fmt.Errorf("the endpoint is %s now", nic.Attrs().Name)
	}
	err = pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName("lo")
		if err == nil && l.Attrs().Flags&net.FlagUp == 0 {
			err = errors.New("lo is down")
		}
		return err
	})
	if err != nil {
		return err
	}
	return lo.check(pod, name, loopback.Config{Fraction: f})
}

// checkHost asks the host daemon about the endpoint, and returns who is in the
// segment.
func checkHost(ctx context.Context, c netconf.Hostlo, args *skel.CmdArgs, f segment.Fraction) (*segment.Membership, error) {
	d, err := dial(c)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return membership(ctx, d, c, args, f)
}

// membership asks the host daemon who is in the segment, which then tells all of them.
// A daemon that does not answer is no fault of the pod, whose localhost works without;
// a runtime may take a failed CHECK for the pod's end.
func membership(ctx context.Context, d hostclient.Client, c netconf.Hostlo, args *skel.CmdArgs, f segment.Fraction) (*segment.Membership, error) {
	answer, err := d.Check(ctx, &hostdpb.CheckRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Endpoint: true, Pod: c.Segment.Name,
	})
	if failure.Unanswered(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := answer.GetEndpoint()
	if e.GetFraction() != uint32(f) {
		return nil, fmt.Errorf("it is fraction %d: want %d", e.GetFraction(), f)
	}
	return &segment.Membership{Generation: e.GetGeneration(), Members: segment.Set(e.GetMembers())}, nil
}

// awaitNews waits until the pod knows what the host daemon has told, or later news.
func awaitNews(ctx context.Context, pod ns.NetNS, host segment.Membership) error {
	late := time.NewTimer(newsTime)
	defer late.Stop()
	for {
		known, err := lo.membership(pod)
		if err != nil {
			return err
		}
		if known == host || segment.Older(host.Generation, known.Generation) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-late.C:
			return fmt.Errorf("it knows the members %s (generation %d), but they are %s (%d): the host's news do not arrive",
				known.Members, known.Generation, host.Members, host.Generation)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
