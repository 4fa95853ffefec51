package hostlo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/segment"
)

// tunnelOf returns the pod's tunnel. With the encryption WireGuard it is between addresses inside WireGuard only.
func tunnelOf(h netconf.Hostlo) (loopback.Tunnel, error) {
	n := h.Network
	if n.Fraction < 0 || n.Fraction > segment.MaxFractions {
		return loopback.Tunnel{}, plugin.Invalid(fmt.Errorf("network.fraction %d: want 1 to %d", n.Fraction, segment.MaxFractions))
	}
	c := loopback.Tunnel{VNI: n.VNI, Fraction: segment.Fraction(n.Fraction), Nodes: n.Nodes}
	if h.Encryption == netconf.WireGuard {
		if c.Nodes = nil; len(n.Names) == 0 {
			return c, plugin.Invalid(errors.New("network.names: want the name of each node for encryption: delete the pod, which was split before encryption was switched on"))
		}
		for _, name := range n.Names {
			c.Nodes = append(c.Nodes, loopback.WireGuardAddress(name))
		}
	}
	if err := c.Check(); err != nil {
		return c, plugin.Invalid(fmt.Errorf("network.%w", err))
	}
	return c, nil
}

// guardOf names the packet filter of an attachment, and begins with guardsOf its network. None of the three has a '/'.
func guardOf(network, container, ifname string) string {
	return guardsOf(network) + container + "/" + ifname
}

func guardsOf(network string) string { return network + "/" }

// addByNetwork is ADD for a segment with span network.
func addByNetwork(ctx context.Context, args *skel.CmdArgs, c netconf.Hostlo) error {
	t, err := tunnelOf(c)
	if err != nil {
		return err
	}
	name := nameIn(c.PrevResult != nil, c.Interface, args)
	return attachment.Endpoint.InPod(ctx, c.Name, args, name, func(pod ns.NetNS) error {
		if err := notJoined(pod, args.Netns); err != nil {
			return err
		}
		id := guardOf(c.Name, args.ContainerID, args.IfName)
		steps := []plugin.Step{
			{Name: "tunnel", Do: func(context.Context) error { return loopback.MakeTunnel(pod, name, id, t) },
				Undo: func(context.Context) error { return loopback.RemoveTunnel(pod, name, id) }},
			{Name: "mark", Do: func(context.Context) error {
				return pod.Do(func(ns.NetNS) error {
					l, err := netlinksafe.LinkByName(name)
					if err == nil {
						err = netlink.LinkSetAlias(l, alias(args))
					}
					return err
				})
			}},
			{Name: "connect", Do: func(context.Context) error {
				if err := join(pod, name, loopback.Config{Fraction: t.Fraction, Members: t.Members(), MTU: t.MTU()}); err != nil {
					return errors.Join(probe(), err)
				}
				return nil
			}, Undo: func(context.Context) error { return leave(pod, name) }},
			{Name: "print", Do: func(context.Context) error { return printResult(c, pod, args.Netns, name) }},
		}
		log := io.Writer(nil)
		if c.Log {
			log = os.Stderr
		}
		return plugin.RunSteps(ctx, steps, log, func() []slog.Attr {
			return []slog.Attr{slog.String("container", args.ContainerID), slog.Int("vni", int(t.VNI)), slog.Int("fraction", int(t.Fraction))}
		})
	})
}

// delByNetwork is DEL for a segment with span network. The device ends with a pod that is gone.
func delByNetwork(ctx context.Context, args *skel.CmdArgs, c netconf.Release) error {
	id := guardOf(c.Name, args.ContainerID, args.IfName)
	err := attachment.Endpoint.IfPod(ctx, args, func(pod ns.NetNS) error {
		nic, err := disconnect(pod, args, nameIn(c.Chained, c.Interface, args))
		if nic != nil && err == nil {
			err = loopback.RemoveTunnel(pod, nic.Attrs().Name, id)
		}
		return err
	})
	if err != nil {
		return err
	}
	return loopback.ReleaseTunnel(id)
}

// checkByNetwork is CHECK for a segment with span network.
func checkByNetwork(args *skel.CmdArgs, c netconf.Hostlo, name string, f segment.Fraction) error {
	t, err := tunnelOf(c)
	if err != nil {
		return err
	}
	pod, err := ns.GetNS(args.Netns)
	if err == nil {
		defer pod.Close()
		err = checkPod(args, pod, name, loopback.Config{Fraction: f, MTU: t.MTU()})
	}
	if err != nil {
		return fmt.Errorf("check %s in %s: %w", args.IfName, args.Netns, err)
	}
	return nil
}

// gcByNetwork is GC for a segment with span network.
func gcByNetwork(c netconf.Release) error {
	if !c.Complete {
		return nil
	}
	keep := map[string]bool{}
	for _, a := range c.ValidAttachments {
		keep[guardOf(c.Name, a.ContainerID, a.IfName)] = true
	}
	err := loopback.CollectTunnels(func(id string) bool { return strings.HasPrefix(id, guardsOf(c.Name)) && !keep[id] })
	if err != nil {
		return err
	}
	return attachment.Endpoint.ForgetCollected(c)
}

// errWaits tells the runtime to call again: the kubelet then passes what the controller has noted meanwhile.
var errWaits = types.NewError(types.ErrTryAgainLater, "the nodes of the pod's other fractions are not known yet: the controller of split pods notes them in the annotation unnest.io/segment-network", "")

// notJoined returns an error if the pod's localhost is shared already.
func notJoined(pod ns.NetNS, path string) error {
	if _, err := loopback.Membership(pod); err == nil {
		return fmt.Errorf("check lo in %s: %w", path, errInSegment)
	} else if !errors.Is(err, loopback.ErrNotJoined) {
		return fmt.Errorf("check lo in %s: %w", path, err)
	}
	return nil
}

// printResult prints the result: the endpoint is the last interface after those of the earlier plugins, or
// the only one.
func printResult(c netconf.Hostlo, pod ns.NetNS, path, name string) error {
	r, err := c.Previous()
	if err != nil {
		return err
	}
	if r == nil {
		r = &types100.Result{}
	}
	if r.DNS.IsEmpty() {
		r.DNS = c.DNS
	}
	err = pod.Do(func(ns.NetNS) error {
		l, err := netlinksafe.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}
		nic := &types100.Interface{Name: name, Mac: l.Attrs().HardwareAddr.String(), Mtu: l.Attrs().MTU, Sandbox: path}
		nic.PciID, _ = podnic.PCIAddress(name) // optional in the result
		r.Interfaces = append(r.Interfaces, nic)
		return nil
	})
	if err != nil {
		return err
	}
	return types.PrintResult(r, c.CNIVersion)
}
