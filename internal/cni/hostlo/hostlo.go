// Package hostlo is the CNI plugin of Hostlo (Bacou et al. 2019, §4): it makes a pod a
// fraction of a segment, which shares its localhost with the pod's fractions on other
// VMs. It asks the host daemon for an endpoint of the segment, waits for that NIC in
// the guest, moves it into the pod, and connects the pod's lo to it. It follows the
// CNI specification 1.1.0 and supports versions from 0.3.1 on.
//
// Alone, the endpoint is the pod's interface. In a chain after the plugin that gives
// the pod its network, such as brfusion or bridge, the endpoint is an additional
// interface, and a pod for which no segment is named is left unchanged: so one network
// serves split pods and others. An endpoint has no addresses; the pod uses those of
// its lo.
//
// netconf.Hostlo says how a runtime names the segment.
//
// A pod has one localhost, so it can be in one segment only. A DEL finds the
// attachment's endpoint by its alias, "unnest:segment:" with container and interface,
// and needs neither the pod nor prevResult.
//
// The configuration belongs to package netconf, changes to lo to package loopback,
// plugging and access control to the host daemon.
package hostlo

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/segment"
)

// Plugin is the plugin hostlo.
var Plugin = plugin.Plugin{
	Name:  "hostlo",
	About: "CNI plugin hostlo: lets a pod share its localhost with the pod's fractions on other VMs",
	Add:   add, Del: del, Check: check, GC: gc, Status: status,
}

// Tests replace these functions of package loopback.
var (
	probe = loopback.Probe
	join  = loopback.Join
	leave = loopback.Leave
)

func parse(args *skel.CmdArgs) (netconf.Hostlo, error) {
	c, err := netconf.ParseHostlo(args.StdinData, args.Args)
	return c, plugin.ConfigError(err)
}

// CheckConfiguration returns an error unless stdin configures a segment.
func CheckConfiguration(stdin []byte) error {
	c, err := parse(&skel.CmdArgs{StdinData: stdin})
	if err == nil {
		err = plugin.ConfigError(c.CheckKeys())
	}
	return err
}

// nameIn is the endpoint's name in the pod: the requested one, unless an earlier
// plugin of the chain has made that interface: then name, the configuration's.
func nameIn(chained bool, name string, args *skel.CmdArgs) string {
	if !chained {
		return args.IfName
	}
	return name
}

// gc is the command GC.
func gc(ctx context.Context, args *skel.CmdArgs) error {
	return attachment.Endpoint.GC(ctx, args, func(c netconf.Release) error {
		if c.RawSpan == netconf.SpanNetwork {
			return gcByNetwork(c)
		}
		return attachment.Endpoint.Collect(ctx, c)
	})
}

// protocol is the version of the host daemon's protocol that has segments.
const protocol = 3

// status is the command STATUS: can a pod become a fraction of a segment? That no slot
// is free is an error only for a network in which every pod needs one.
func status(ctx context.Context, args *skel.CmdArgs) error {
	c, configErr := parse(args)
	if configErr == nil {
		configErr = cmp.Or(plugin.ConfigError(c.CheckKeys()), probe())
	}
	if c.RawSpan == netconf.SpanNetwork {
		return cmp.Or(configErr, loopback.ProbeTunnel())
	}
	s, err := attachment.Endpoint.Status(ctx, args.StdinData)
	switch {
	case configErr != nil:
		return configErr
	case err != nil:
		return err
	case s.GetProtocol() < protocol:
		return plugin.TooOld("segments")
	case len(s.GetSegmentModes()) == 0:
		return errors.New("host daemon: the guest's tenant may not have segments; allow a segment mode for it in the host daemon's configuration")
	case c.Segment.Name != "" && s.GetLimited() != "":
		return fmt.Errorf("host daemon: %s", s.GetLimited())
	}
	return nil
}

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
	nic, _, err := find(pod, args, "")
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
	nic, others, err := find(pod, args, name)
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
