package hostlo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/loopback"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/segment"
)

// endpoint is what the host daemon has answered to a join.
type endpoint struct {
	fraction segment.Fraction
	mac      net.HardwareAddr // by which the NIC is found
	config   loopback.Config
}

func endpointOf(e *hostdpb.Endpoint) (endpoint, error) {
	mac, err := net.ParseMAC(e.GetMac())
	if err != nil {
		return endpoint{}, fmt.Errorf("read the host daemon's answer: %w", err)
	}
	f, members := segment.Fraction(e.GetFraction()), segment.Set(e.GetMembers())
	switch {
	case e.GetFraction() > segment.MaxFractions || !f.Valid():
		return endpoint{}, fmt.Errorf("read the host daemon's answer: fraction %d: want 1 to %d", e.GetFraction(), segment.MaxFractions)
	case !members.Valid() || !members.Has(f):
		return endpoint{}, fmt.Errorf("read the host daemon's answer: members %#x without fraction %d", e.GetMembers(), f)
	case e.GetSegmentMac() != segment.MAC(f).String():
		return endpoint{}, fmt.Errorf("read the host daemon's answer: MAC %s of fraction %d: want %s", e.GetSegmentMac(), f, segment.MAC(f))
	}
	return endpoint{f, mac, loopback.Config{Fraction: f, Members: members, Generation: e.GetGeneration()}}, nil
}

// join asks the host daemon for an endpoint.
func (a *addition) join(ctx context.Context) error {
	s := a.config.Segment
	answer, err := a.daemon.Join(ctx, &hostdpb.JoinSegmentRequest{
		Segment:     &hostdpb.SegmentSpec{Pod: s.Name, Key: s.Key, Mode: mode(s.Mode), Network: a.config.Name},
		ContainerId: a.args.ContainerID, Interface: a.args.IfName,
	})
	if err != nil {
		return explain(err)
	}
	a.endpoint, err = endpointOf(answer)
	return err
}

func mode(name string) hostdpb.SegmentMode {
	switch name {
	case netconf.Unicast:
		return hostdpb.SegmentMode_SEGMENT_MODE_UNICAST
	case netconf.Plain:
		return hostdpb.SegmentMode_SEGMENT_MODE_PLAIN
	}
	return hostdpb.SegmentMode_SEGMENT_MODE_UNSPECIFIED
}

// explain tells what only another request, or a newer daemon, can mend.
func explain(err error) error {
	r := (*failure.Refusal)(nil)
	switch {
	case failure.Unknown(err):
		return failure.TooOld("segments")
	case errors.As(err, &r) && r.Status.Code() == codes.FailedPrecondition:
		return failure.Invalid(err)
	}
	return err
}

// leave gives the endpoint back, or notes that it has to be.
func (a *addition) leave(ctx context.Context) error {
	_, err := pending(a.config).Return(ctx, a.daemon.Leave, a.args.ContainerID, a.args.IfName)
	return left(err)
}

// appear waits for the NIC and claims it.
func (a *addition) appear(ctx context.Context) error {
	late := types.NewError(types.ErrTryAgainLater, fmt.Sprintf(
		"it has not appeared after %v: does the guest's kernel have hot-plug (pciehp or acpiphp) and virtio_net?", a.config.Wait), "")
	ctx, cancel := context.WithTimeoutCause(ctx, a.config.Wait, late)
	defer cancel()
	var err error
	if a.nic, err = podnic.AwaitPlugged(ctx, a.endpoint.mac); err != nil {
		return err
	}
	want, have := alias(a.args), a.nic.Attrs().Alias
	if have != want && strings.HasPrefix(have, aliasPrefix) {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("NIC %s is still %s", a.endpoint.mac, have), "")
	}
	if err := netlink.LinkSetAlias(a.nic, want); err != nil {
		return fmt.Errorf("claim NIC %s: %w", a.endpoint.mac, err)
	}
	return nil
}

func (a *addition) move(context.Context) (err error) {
	a.moveOut, err = podnic.MoveIn(a.nic, a.pod, a.name, 0)
	return err
}

func (a *addition) undoMove(context.Context) error {
	if a.moveOut == nil {
		return nil
	}
	return a.moveOut()
}

// address gives the NIC the MAC of its fraction, which is another than the one that
// it was plugged with where the guest has many endpoints.
func (a *addition) address(context.Context) error {
	mac := segment.MAC(a.endpoint.fraction)
	return a.setMAC(mac[:])
}

// undoAddress lets the NIC be found by who moves it back, unless it is gone.
func (a *addition) undoAddress(context.Context) error {
	err := a.setMAC(a.endpoint.mac)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return err
}

func (a *addition) setMAC(mac net.HardwareAddr) error {
	return a.pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(a.name)
		if err != nil || bytes.Equal(l.Attrs().HardwareAddr, mac) {
			return err
		}
		if err := netlink.LinkSetHardwareAddr(l, mac); err != nil {
			return fmt.Errorf("set MAC %s of %s: %w", mac, a.name, err)
		}
		return nil
	})
}

// described is the endpoint as the result has it.
func (a *addition) described() (nic *types100.Interface, err error) {
	return nic, a.pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(a.name)
		if err != nil {
			return fmt.Errorf("describe %s: %w", a.name, err)
		}
		at := l.Attrs()
		nic = &types100.Interface{Name: a.name, Mac: at.HardwareAddr.String(), Mtu: at.MTU, Sandbox: a.args.Netns}
		nic.PciID, _ = podnic.PCIAddress(a.name) // only told; it is not needed
		return nil
	})
}

// aliasPrefix begins the alias of every endpoint.
const aliasPrefix = "unnest:segment:"

// alias tells whose an endpoint is. It stays with the NIC wherever that goes.
func alias(args *skel.CmdArgs) string { return aliasPrefix + args.ContainerID + "/" + args.IfName }

// find returns the attachment's endpoint in the pod, nil for none, and whether the
// pod has one of another attachment.
func find(pod ns.NetNS, args *skel.CmdArgs) (ours netlink.Link, others bool, err error) {
	err = pod.Do(func(ns.NetNS) error {
		links, err := netlinksafe.LinkList()
		if err != nil {
			return fmt.Errorf("list links: %w", err)
		}
		for _, l := range links {
			switch a := l.Attrs().Alias; {
			case a == alias(args):
				ours = l
			case strings.HasPrefix(a, aliasPrefix):
				others = true
			}
		}
		return nil
	})
	return ours, others, err
}
