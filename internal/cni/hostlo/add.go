package hostlo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/segment"
)

// errInSegment is wrapped when the pod's localhost is shared already.
var errInSegment = errors.New("the pod is in a segment already; name only one segment for it, as it has one localhost")

// membersInterval is how often ADD asks a daemon that does not answer for the members.
const membersInterval = 200 * time.Millisecond

// restartTime is how long ADD waits for a daemon that restarts.
const restartTime = 30 * time.Second

type addition struct {
	*attachment.Attachment
	config netconf.Hostlo
	name   string // of the endpoint in the pod

	endpoint endpoint
	nic      netlink.Link
}

// add is the command ADD: on an error nothing is left.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if err := plugin.ConfigError(c.CheckRequest(args.Args)); err != nil {
		return err
	}
	switch {
	case c.Waits:
		return errWaits
	case c.Network != nil:
		return addByNetwork(ctx, args, c)
	case c.Segment.Name == "":
		return passOn(c)
	}
	name := nameIn(c.PrevResult != nil, c.Interface, args)
	return attachment.Endpoint.Add(ctx, c.Base, args, name, func(at *attachment.Attachment) error {
		if err := notJoined(at.Pod, args.Netns); err != nil {
			return err
		}
		a := &addition{Attachment: at, config: c, name: name}
		return a.Run(ctx, a.steps(), func() slog.Attr {
			return slog.Group("", slog.String("segment", c.Segment.Name), slog.Int("fraction", int(a.endpoint.fraction)))
		})
	})
}

// passOn prints the result of the earlier plugins for a pod without a segment.
func passOn(c netconf.Hostlo) error {
	if c.PrevResult == nil {
		return plugin.Invalid(errors.New("network configuration: segment is missing; name it in the configuration, runtimeConfig, CNI_ARGS or annotations, " +
			"or chain hostlo after the plugin that gives the pod its network"))
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

func (a *addition) steps() []plugin.Step {
	return []plugin.Step{
		{Name: "join", Do: a.join, Undo: a.Release},
		{Name: "appear", Do: a.appear},
		{Name: "move", Do: a.move, Undo: a.UndoMove},
		{Name: "address", Do: a.address, Undo: a.undoAddress},
		{Name: "connect", Do: a.connect, Undo: a.disconnect},
		{Name: "members", Do: a.members},
		{Name: "print", Do: a.print},
	}
}

// join asks the host daemon for an endpoint.
func (a *addition) join(ctx context.Context) (err error) {
	if a.endpoint, err = requestEndpoint(ctx, a.Daemon, a.config, a.CmdArgs); err != nil {
		return err
	}
	return a.Given(a.endpoint.mac.String(), 0, "")
}

// appear waits for the NIC and marks it as the attachment's.
func (a *addition) appear(ctx context.Context) (err error) {
	if a.nic, err = a.Appear(ctx, a.endpoint.mac, a.config.Wait); err != nil {
		return err
	}
	want, have := alias(a.CmdArgs), a.nic.Attrs().Alias
	if have != want && strings.HasPrefix(have, aliasPrefix) {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("NIC %s still belongs to %s", a.endpoint.mac, have), "")
	}
	if err := netlink.LinkSetAlias(a.nic, want); err != nil {
		return fmt.Errorf("set alias of NIC %s: %w", a.endpoint.mac, err)
	}
	return nil
}

func (a *addition) move(context.Context) error {
	return a.Moved(podnic.MoveIn(a.nic, a.Pod, a.name, 0))
}

// address gives the NIC the MAC of its fraction. In a guest with many endpoints the
// NIC was plugged with another MAC.
func (a *addition) address(context.Context) error {
	mac := segment.MAC(a.endpoint.fraction)
	return a.setMAC(mac[:])
}

// undoAddress restores the MAC by which UndoMove finds the NIC.
func (a *addition) undoAddress(context.Context) error {
	err := a.setMAC(a.endpoint.mac)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	return err
}

func (a *addition) setMAC(mac net.HardwareAddr) error {
	return a.Pod.Do(func(ns.NetNS) error {
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

// connect makes the pod's lo a part of the segment.
func (a *addition) connect(context.Context) error {
	if err := join(a.Pod, a.name, a.endpoint.config); err != nil {
		// The probe takes as long as joining, so it explains errors but does not run first.
		return cmp.Or(probe(), err)
	}
	return nil
}

func (a *addition) disconnect(context.Context) error { return leave(a.Pod, a.name) }

// members waits until the pod knows the current members of the segment: it has missed
// the announcements between the daemon's answer and the connection of lo. The daemon tells
// the other fractions of this one at the same time, so ADD waits also for a daemon that
// restarts.
func (a *addition) members(ctx context.Context) error {
	restarting, cancel := context.WithTimeout(ctx, min(restartTime, a.config.Wait))
	defer cancel()
	for {
		err := awaitMembers(ctx, a.Daemon, a.config, a.CmdArgs, a.Pod, a.endpoint.fraction)
		if !hostclient.Unanswered(err) {
			return err
		}
		select {
		case <-restarting.Done():
			return types.NewError(types.ErrTryAgainLater, "the other fractions do not know of this one: "+err.Error(), "")
		case <-time.After(membersInterval):
		}
	}
}

func (a *addition) print(context.Context) error { return printResult(a.config, a.Pod, a.Netns, a.name) }
