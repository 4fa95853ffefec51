package brfusion

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/cni/attachment"
	"unnest/internal/cni/hostclient"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/cni/rollback"
	"unnest/internal/hostapi/hostdpb"
)

// addition is one ADD under way.
type addition struct {
	config netconf.BrFusion
	args   *skel.CmdArgs
	daemon hostclient.Client
	pod    ns.NetNS

	nic     *hostdpb.NIC
	mac     net.HardwareAddr
	link    netlink.Link // the NIC, or the trunk
	moveOut func() error
	eth     types100.Interface
	result  *types100.Result // addresses, routes and DNS; then all of it
}

// add is the command ADD: all of it is done, or, on an error, nothing.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if err := findIPAM(c); err != nil {
		return err
	}
	unlock, err := lock(ctx, args)
	if err != nil {
		return err
	}
	defer unlock()
	pod, err := openPod(args)
	if err != nil {
		return err
	}
	defer pod.Close()
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.Close()
	a := &addition{config: c, args: args, daemon: d, pod: pod}
	times, err := rollback.Run(ctx, a.steps())
	if c.Log {
		a.log(times, err)
	}
	return err
}

// openPod opens the pod's network namespace. An interface of the wanted name in
// it is a pod that has its NIC: an ADD that went on and failed would take it away.
func openPod(args *skel.CmdArgs) (ns.NetNS, error) {
	pod, err := attachment.OpenPod(args)
	if err != nil {
		return nil, err
	}
	if err := podnic.CheckFree(pod, args.IfName); err != nil {
		_ = pod.Close()
		return nil, fmt.Errorf("check interface %s in %s: %w", args.IfName, args.Netns, err)
	}
	return pod, nil
}

// steps are in the order of who has to know what: the host daemon is told the
// addresses that the NIC may use, and refuses those of another pod; only a DHCP
// client needs the NIC first.
func (a *addition) steps() []rollback.Step {
	return []rollback.Step{
		{Name: "settle", Do: a.settle},
		{Name: "lease", Do: a.lease, Undo: a.release},
		{Name: "attach", Do: a.attach, Undo: a.detach},
		{Name: "appear", Do: a.appear},
		{Name: "move", Do: a.move, Undo: a.undoMove},
		{Name: "dhcp", Do: a.dhcp, Undo: a.undoDHCP},
		{Name: "configure", Do: a.configure}, // what it sets goes with the NIC
		{Name: "services", Do: a.services, Undo: a.undoServices},
		{Name: "announce", Do: a.announce},
		{Name: "print", Do: a.print},
	}
}

func (a *addition) settle(ctx context.Context) error {
	return pending(a.config).Settle(ctx, a.daemon.Detach, a.args.ContainerID, a.args.IfName)
}

// early reports whether addresses are chosen before there is a NIC.
func (a *addition) early() bool {
	return a.config.IPAM.Delegated() && a.config.IPAM.Type != netconf.DHCP
}

func (a *addition) lease(ctx context.Context) (err error) {
	if a.early() {
		a.result, err = lease(ctx, a.config, a.args)
	}
	return err
}

func (a *addition) release(ctx context.Context) error {
	if !a.early() {
		return nil
	}
	return release(ctx, a.config, a.args)
}

// dhcp takes an address over the NIC, and tells the host daemon, which until now
// has let the NIC do nothing else.
func (a *addition) dhcp(ctx context.Context) (err error) {
	if a.config.IPAM.Type != netconf.DHCP {
		return nil
	}
	if a.result, err = lease(ctx, a.config, a.args); err != nil {
		return err
	}
	r := request(a.config, a.args)
	r.Addresses = prefixed(a.result.IPs)
	_, err = a.daemon.Attach(ctx, r)
	return err
}

func (a *addition) undoDHCP(ctx context.Context) error {
	if a.config.IPAM.Type != netconf.DHCP {
		return nil
	}
	return release(ctx, a.config, a.args)
}

// configure sets addresses and routes.
func (a *addition) configure(context.Context) error {
	return a.pod.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(a.args.IfName)
		if err != nil {
			return err
		}
		a.eth.Mtu = l.Attrs().MTU
		return address(a.args.IfName, a.result)
	})
}

func (a *addition) announce(ctx context.Context) error {
	return podnic.Announce(ctx, a.pod, a.args.IfName, plain(a.result.IPs))
}

// log writes one line with how long each step took.
func (a *addition) log(times []rollback.Took, err error) {
	rollback.Log(os.Stderr, []slog.Attr{
		slog.String("container", a.args.ContainerID),
		slog.String("interface", a.args.IfName),
		slog.String("mac", a.nic.GetMac()),
	}, times, err)
}
