package brfusion

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ipam"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/hostd/hostdpb"
	"unnest/internal/podnet"
	"unnest/internal/podnet/netconf"
)

// addition is one ADD under way.
type addition struct {
	config netconf.BrFusion
	args   *skel.CmdArgs
	daemon daemon
	pod    ns.NetNS

	nic     *hostdpb.NIC
	mac     net.HardwareAddr
	link    netlink.Link
	moveOut func() error
	result  *types100.Result
}

// add is the command ADD: all of it is done, or, on an error, nothing.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	pod, err := openPod(args)
	if err != nil {
		return err
	}
	defer pod.Close()
	d, err := dial(c)
	if err != nil {
		return err
	}
	defer d.close()
	a := &addition{config: c, args: args, daemon: d, pod: pod}
	times, err := run(ctx, a.steps())
	if c.Log {
		a.log(times, err)
	}
	return err
}

// openPod opens the pod's network namespace. An interface of the wanted name in
// it is a pod that has its NIC: an ADD that went on and failed would take it away.
func openPod(args *skel.CmdArgs) (ns.NetNS, error) {
	own, cniErr := cnins.CheckNetNS(args.Netns)
	if cniErr != nil {
		return nil, cniErr
	}
	if own {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("network namespace %s is the guest's own, not a pod's", args.Netns), "")
	}
	pod, err := ns.GetNS(args.Netns)
	if err != nil {
		return nil, types.NewError(types.ErrInvalidNetNS, fmt.Sprintf("open network namespace: %v", err), "")
	}
	if err := podnet.CheckFree(pod, args.IfName); err != nil {
		_ = pod.Close()
		return nil, fmt.Errorf("check interface %s in %s: %w", args.IfName, args.Netns, err)
	}
	return pod, nil
}

func (a *addition) steps() []step {
	return []step{
		{"attach", a.attach, func(ctx context.Context) error { return a.daemon.detach(ctx, a.args) }},
		{"appear", a.appear, nil},
		{"move", a.moveIn, a.undoMove},
		{"ipam", a.takeAddress, func(ctx context.Context) error { return releaseAddress(ctx, a.config, a.args) }},
		{"configure", a.configure, nil}, // what it sets goes with the NIC
		{"announce", a.announce, nil},
		{"print", a.print, nil},
	}
}

func (a *addition) attach(ctx context.Context) (err error) {
	if a.nic, err = a.daemon.attach(ctx, a.args, a.config.Bridge); err != nil {
		return err
	}
	if a.mac, err = net.ParseMAC(a.nic.GetMac()); err != nil {
		return fmt.Errorf("read the host daemon's answer: %w", err)
	}
	return nil
}

func (a *addition) appear(ctx context.Context) (err error) {
	late := fmt.Errorf("it has not appeared after %v: does the guest's kernel have hot-plug (pciehp or acpiphp) and virtio_net?", a.config.Wait)
	ctx, cancel := context.WithTimeoutCause(ctx, a.config.Wait, late)
	defer cancel()
	a.link, err = podnet.Await(ctx, a.mac)
	return err
}

func (a *addition) moveIn(context.Context) (err error) {
	a.moveOut, err = podnet.MoveIn(a.link, a.pod, a.args.IfName, a.mtu())
	return err
}

func (a *addition) undoMove(context.Context) error {
	if a.moveOut == nil {
		return nil
	}
	return a.moveOut()
}

func (a *addition) mtu() int {
	if a.config.MTU != 0 {
		return a.config.MTU
	}
	return int(a.nic.GetMtu())
}

func (a *addition) takeAddress(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ipamTime)
	defer cancel()
	got, err := invoke.DelegateAdd(ctx, a.config.IPAM.Type, a.args.StdinData, nil)
	if err != nil {
		return fmt.Errorf("take address by %s: %w", a.config.IPAM.Type, err)
	}
	if a.result, err = types100.NewResultFromResult(got); err != nil {
		return fmt.Errorf("read the answer of %s: %w", a.config.IPAM.Type, err)
	}
	if len(a.result.IPs) == 0 {
		return fmt.Errorf("%s gave no address", a.config.IPAM.Type)
	}
	return nil
}

// configure sets addresses and routes, and completes the result.
func (a *addition) configure(context.Context) error {
	a.result.Interfaces = []*types100.Interface{{Name: a.args.IfName, Mac: a.mac.String(), Sandbox: a.args.Netns}}
	for _, ip := range a.result.IPs {
		ip.Interface = types100.Int(0)
	}
	if a.result.DNS.IsEmpty() {
		a.result.DNS = a.config.DNS
	}
	return a.pod.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(a.args.IfName)
		if err != nil {
			return err
		}
		a.result.Interfaces[0].Mtu = l.Attrs().MTU
		return ipam.ConfigureIface(a.args.IfName, a.result)
	})
}

func (a *addition) announce(ctx context.Context) error {
	var addrs []netip.Addr
	for _, ip := range a.result.IPs {
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return podnet.Announce(ctx, a.pod, a.args.IfName, addrs)
}

func (a *addition) print(context.Context) error {
	return types.PrintResult(a.result, a.config.CNIVersion)
}

// log writes one line with how long each step took.
func (a *addition) log(times []took, err error) {
	attrs := []slog.Attr{
		slog.String("container", a.args.ContainerID),
		slog.String("interface", a.args.IfName),
		slog.String("mac", a.nic.GetMac()),
	}
	for _, t := range times {
		attrs = append(attrs, slog.Duration(t.step, t.time))
	}
	l := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err != nil {
		l.LogAttrs(context.Background(), slog.LevelError, "add", append(attrs, slog.Any("error", err))...)
		return
	}
	l.LogAttrs(context.Background(), slog.LevelInfo, "add", attrs...)
}
