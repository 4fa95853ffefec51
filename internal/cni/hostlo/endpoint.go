package hostlo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
)

// endpoint is an endpoint that the host daemon has given.
type endpoint struct {
	fraction segment.Fraction
	mac      net.HardwareAddr // of the NIC when it is plugged
	config   loopback.Config
}

// requestEndpoint asks the host daemon for an endpoint.
func requestEndpoint(ctx context.Context, d hostclient.Client, c netconf.Hostlo, args *skel.CmdArgs) (endpoint, error) {
	s := &hostdpb.SegmentSpec{Pod: c.Segment.Name, Key: c.Segment.Key, Network: c.Name}
	switch c.Segment.Mode {
	case segment.Unicast:
		s.Mode = hostdpb.SegmentMode_SEGMENT_MODE_UNICAST
	case segment.Plain:
		s.Mode = hostdpb.SegmentMode_SEGMENT_MODE_PLAIN
	}
	answer, err := d.JoinSegment(ctx, &hostdpb.JoinSegmentRequest{Segment: s, ContainerId: args.ContainerID, Interface: args.IfName})
	r := (*hostclient.Refusal)(nil)
	switch {
	case hostclient.Unknown(err):
		return endpoint{}, plugin.TooOld("segments")
	case errors.As(err, &r) && r.Status.Code() == codes.FailedPrecondition: // the segment differs from the request
		return endpoint{}, plugin.Invalid(err)
	case err != nil:
		return endpoint{}, err
	}
	e, err := endpointOf(answer.GetEndpoint())
	if err != nil {
		return endpoint{}, fmt.Errorf("read the host daemon's answer: %w", err)
	}
	return e, nil
}

func endpointOf(e *hostdpb.Endpoint) (endpoint, error) {
	mac, err := net.ParseMAC(e.GetMac())
	if err != nil {
		return endpoint{}, err
	}
	f, members := segment.Fraction(e.GetFraction()), segment.Set(e.GetMembers())
	switch {
	case e.GetFraction() > segment.MaxFractions || !f.Valid():
		return endpoint{}, fmt.Errorf("fraction %d: want 1 to %d", e.GetFraction(), segment.MaxFractions)
	case !members.Valid() || !members.Has(f):
		return endpoint{}, fmt.Errorf("members %#x without fraction %d", e.GetMembers(), f)
	case e.GetSegmentMac() != segment.MAC(f).String():
		return endpoint{}, fmt.Errorf("MAC %s of fraction %d: want %s", e.GetSegmentMac(), f, segment.MAC(f))
	}
	return endpoint{f, mac, loopback.Config{Fraction: f, Members: members, Generation: e.GetGeneration()}}, nil
}

// announceTime bounds the wait for an announcement of the members, which the host
// repeats every 2 s.
const announceTime = 7 * time.Second

// awaitMembers asks the host daemon for the members of the segment, which it then also
// announces, and waits until the pod knows them, or later ones.
func awaitMembers(ctx context.Context, d hostclient.Client, c netconf.Hostlo, args *skel.CmdArgs, pod ns.NetNS, f segment.Fraction) error {
	answer, err := d.Check(ctx, &hostdpb.CheckRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Endpoint: true, Pod: c.Segment.Name,
	})
	if err != nil {
		return err
	}
	e := answer.GetEndpoint()
	if e.GetFraction() != uint32(f) {
		return fmt.Errorf("the endpoint is fraction %d: want %d", e.GetFraction(), f)
	}
	host := segment.Membership{Generation: e.GetGeneration(), Members: segment.Set(e.GetMembers())}
	late := time.NewTimer(announceTime)
	defer late.Stop()
	for {
		known, err := loopback.Membership(pod)
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
			return fmt.Errorf("the pod has the members %s (generation %d), the host %s (generation %d): the host's announcements do not arrive",
				known.Members, known.Generation, host.Members, host.Generation)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// aliasPrefix begins the alias of every endpoint.
const aliasPrefix = "unnest:segment:"

// alias names the owner of an endpoint. It stays with the NIC in every namespace.
func alias(args *skel.CmdArgs) string { return aliasPrefix + args.ContainerID + "/" + args.IfName }

// find returns the attachment's endpoint in the pod, nil for none, and whether the
// pod has one of another attachment. A tunnel with the name and without an alias is the attachment's, too: its ADD was killed before it marked it. The name "" finds none.
func find(pod ns.NetNS, args *skel.CmdArgs, name string) (ours netlink.Link, others bool, err error) {
	err = pod.Do(func(ns.NetNS) error {
		links, err := netlinksafe.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		for _, l := range links {
			tunnel, ok := l.(*netlink.Vxlan)
			switch a := l.Attrs().Alias; {
			case a == alias(args), a == "" && ok && tunnel.Name == name && tunnel.Port == loopback.TunnelPort:
				ours = l
			case strings.HasPrefix(a, aliasPrefix):
				others = true
			}
		}
		return nil
	})
	return ours, others, err
}
