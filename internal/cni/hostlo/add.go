package hostlo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/failure"
	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/loopback"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/cni/rollback"
)

// errInSegment is wrapped when the pod's localhost is shared already.
var errInSegment = errors.New("the pod is in a segment already, and has one localhost only: name one segment for it")

// addition is one ADD under way.
type addition struct {
	config netconf.Hostlo
	args   *skel.CmdArgs
	daemon hostclient.Client
	pod    ns.NetNS
	name   string // of the endpoint in the pod

	endpoint endpoint
	nic      netlink.Link
	moveOut  func() error
}

// add is the command ADD: all of it is done, or, on an error, nothing.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if c.Segment.Name == "" {
		return pass(c)
	}
	unlock, err := state.Lock(ctx, args.ContainerID, args.IfName)
	if err != nil {
		return err
	}
	defer unlock()
	pod, err := openPod(c, args)
	if err != nil {
		return err
	}
	defer pod.Close()
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	a := &addition{config: c, args: args, daemon: d, pod: pod, name: nameIn(c, args)}
	times, err := rollback.Run(ctx, a.steps())
	if c.Log {
		rollback.Log(os.Stderr, []slog.Attr{
			slog.String("container", args.ContainerID),
			slog.String("interface", args.IfName),
			slog.String("segment", c.Segment.Name),
			slog.Int("fraction", int(a.endpoint.fraction)),
		}, times, err)
	}
	return err
}

// pass hands a pod without a segment on.
func pass(c netconf.Hostlo) error {
	if c.PrevResult == nil {
		return failure.Invalid(errors.New("network configuration: segment is missing, and neither the runtime nor CNI_ARGS " +
			"names one: a pod can do without one only in a chain, after the plugin that gives it its network"))
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

// nameIn is the endpoint's name in the pod: the one that the runtime wants, unless
// that belongs to a plugin before us in the chain.
func nameIn(c netconf.Hostlo, args *skel.CmdArgs) string {
	if c.PrevResult == nil {
		return args.IfName
	}
	return c.Interface
}

// openPod opens the pod's network namespace, which must have room for the endpoint.
func openPod(c netconf.Hostlo, args *skel.CmdArgs) (ns.NetNS, error) {
	pod, err := attachment.OpenPod(args)
	if err != nil {
		return nil, err
	}
	if err = podnic.CheckFree(pod, nameIn(c, args)); err == nil {
		if _, err = lo.membership(pod); err == nil {
			err = errInSegment
		} else if errors.Is(err, loopback.ErrNotJoined) {
			return pod, nil
		}
	}
	_ = pod.Close()
	return nil, fmt.Errorf("check interface %s in %s: %w", nameIn(c, args), args.Netns, err)
}

func (a *addition) steps() []rollback.Step {
	return []rollback.Step{
		{Name: "settle", Do: a.settle},
		{Name: "join", Do: a.join, Undo: a.leave},
		{Name: "appear", Do: a.appear},
		{Name: "move", Do: a.move, Undo: a.undoMove},
		{Name: "address", Do: a.address, Undo: a.undoAddress},
		{Name: "glue", Do: a.glue, Undo: a.unglue},
		{Name: "hear", Do: a.hear},
		{Name: "print", Do: a.print},
	}
}

func (a *addition) settle(ctx context.Context) error {
	return pending(a.config).Settle(ctx, a.daemon.Leave, a.args.ContainerID, a.args.IfName)
}

// glue makes the pod's lo a part of the segment. It brings lo up: a runtime may
// leave that to plugins.
func (a *addition) glue(context.Context) error {
	err := a.pod.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(l)
	})
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := lo.join(a.pod, a.name, a.endpoint.config); err != nil {
		// To ask first what the kernel lacks, as STATUS does, would take each ADD as long
		// as the joining.
		return cmp.Or(lo.probe(), err)
	}
	return nil
}

// hear waits until the pod knows who is in the segment by now: what the host daemon
// has told between its answer and the glue was lost. A daemon that does not answer
// says it to the pod when it is back.
func (a *addition) hear(ctx context.Context) error {
	host, err := membership(ctx, a.daemon, a.config, a.args, a.endpoint.fraction)
	if err != nil || host == nil {
		return err
	}
	return awaitNews(ctx, a.pod, *host)
}

func (a *addition) unglue(context.Context) error { return lo.leave(a.pod, a.name) }

// print ends the ADD: the endpoint is the last interface of the result of the
// plugins before us, or the only one.
func (a *addition) print(context.Context) error {
	r := &types100.Result{}
	if a.config.PrevResult != nil {
		before, err := types100.NewResultFromResult(a.config.PrevResult)
		if err != nil {
			return fmt.Errorf("read prevResult: %w", err)
		}
		r = before
	}
	if r.DNS.IsEmpty() {
		r.DNS = a.config.DNS
	}
	nic, err := a.described()
	if err != nil {
		return err
	}
	r.Interfaces = append(r.Interfaces, nic)
	return types.PrintResult(r, a.config.CNIVersion)
}
