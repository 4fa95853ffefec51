package brfusion

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/cni/plugin"
	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/cni/servicepath"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

type addition struct {
	*attachment.Attachment
	config netconf.BrFusion

	nic    *hostdpb.NIC
	mac    net.HardwareAddr
	link   netlink.Link // the NIC, or the trunk
	eth    types100.Interface
	result *types100.Result // addresses, routes and DNS at first, complete in the end
}

// add is the command ADD: on an error nothing is left.
func add(ctx context.Context, args *skel.CmdArgs) error {
	c, err := parse(args)
	if err != nil {
		return err
	}
	if err := plugin.ConfigError(c.ReadRequest(args.Args)); err != nil {
		return err
	}
	if _, err := findIPAM(c.IPAM, args); err != nil {
		return err
	}
	return attachment.NIC.Add(ctx, c.Base, args, args.IfName, func(at *attachment.Attachment) error {
		a := &addition{Attachment: at, config: c}
		return a.Run(ctx, a.steps(), func() slog.Attr { return slog.String("mac", a.nic.GetMac()) })
	})
}

// steps are in this order because the host daemon needs the addresses, which it
// permits the NIC to use, and refuses those of another pod. Only a DHCP client needs
// the NIC first.
func (a *addition) steps() (steps []plugin.Step) {
	if a.early() {
		steps = append(steps, plugin.Step{Name: "lease", Do: a.lease, Undo: a.unlease})
	}
	steps = append(steps,
		plugin.Step{Name: "attach", Do: a.attach, Undo: a.Release},
		plugin.Step{Name: "appear", Do: a.appear},
		plugin.Step{Name: "move", Do: a.move, Undo: a.UndoMove})
	if a.config.IPAM.Type == netconf.DHCP {
		steps = append(steps, plugin.Step{Name: "dhcp", Do: a.dhcp, Undo: a.unlease})
	}
	steps = append(steps, plugin.Step{Name: "configure", Do: a.configure}) // its settings end with the NIC
	if len(a.config.Services) > 0 {
		steps = append(steps, plugin.Step{Name: "services", Do: a.services, Undo: a.undoServices})
	}
	steps = append(steps, plugin.Step{Name: "sources", Do: a.routeBySource, Undo: a.forgetSource}) // also for the routes to services
	return append(steps, plugin.Step{Name: "announce", Do: a.announce}, plugin.Step{Name: "print", Do: a.print})
}

// early reports whether an IPAM plugin chooses addresses before there is a NIC.
func (a *addition) early() bool {
	return a.config.IPAM.Delegated() && a.config.IPAM.Type != netconf.DHCP
}

func (a *addition) lease(ctx context.Context) (err error) {
	if err := a.Leasing(); err != nil {
		return err
	}
	a.result, err = lease(ctx, a.config, a.CmdArgs)
	return err
}

func (a *addition) unlease(ctx context.Context) error { return release(ctx, a.config.IPAM, a.CmdArgs) }

// attach asks the host daemon for the NIC and, with its IPAM, for addresses.
func (a *addition) attach(ctx context.Context) error {
	// The answer to AttachNIC does not tell whether the daemon knows limits.
	if a.config.Bandwidth != (netconf.Bandwidth{}) {
		s, err := a.Daemon.Status(ctx, &hostdpb.StatusRequest{})
		if err != nil {
			return err
		}
		if err := supports(a.config, s); err != nil {
			return err
		}
	}
	r := request(a.config, a.CmdArgs)
	if a.early() {
		r.Addresses = prefixed(a.result.IPs)
	}
	answer, err := a.Daemon.AttachNIC(ctx, r)
	if err != nil {
		return err
	}
	a.nic = answer.GetNic()
	if a.mac, err = net.ParseMAC(a.nic.GetMac()); err != nil {
		return fmt.Errorf("read the host daemon's answer: %w", err)
	}
	if err := a.Given(a.nic.GetMac(), int(a.nic.GetVlan()), a.nic.GetTrunkMac()); err != nil {
		return err
	}
	switch {
	case a.config.Mode == netconf.Trunk && a.nic.GetVlan() == 0:
		return plugin.TooOld(`mode "trunk"`)
	case a.config.IPAM.Delegated():
		return nil
	case len(answer.GetAddresses()) == 0:
		return plugin.TooOld(`ipam.type "hostd"`)
	}
	if a.result, err = granted(answer.GetAddresses(), a.config.IPAM); err != nil || len(a.config.Requested) == 0 {
		return err
	}
	return a.claim(ctx)
}

// claim exchanges the addresses that the daemon has chosen for the requested ones. The
// former have the prefix lengths and gateways, which a request need not have.
func (a *addition) claim(ctx context.Context) error {
	var err error
	if a.result.IPs, err = exchange(a.result.IPs, a.config.Requested); err != nil {
		return plugin.Invalid(err)
	}
	return a.permit(ctx)
}

// permit tells the daemon the pod's addresses, which it then permits the NIC to use.
func (a *addition) permit(ctx context.Context) error {
	r := request(a.config, a.CmdArgs)
	r.Allocate, r.Addresses = false, prefixed(a.result.IPs)
	_, err := a.Daemon.AttachNIC(ctx, r)
	return err
}

// request is the request of an ADD, without addresses.
func request(c netconf.BrFusion, args *skel.CmdArgs) *hostdpb.AttachNICRequest {
	r := &hostdpb.AttachNICRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Bridge: c.Bridge, Network: c.Name,
		Allocate: !c.IPAM.Delegated(), Cold: c.Cold, Dhcp: c.IPAM.Type == netconf.DHCP, Mtu: uint32(c.MTU),
		Services: len(c.Services) > 0, Pod: podOf(args),
	}
	if c.Mode == netconf.Trunk {
		r.Mode = hostdpb.Mode_MODE_TRUNK
	}
	if b := c.Bandwidth; b != (netconf.Bandwidth{}) {
		r.Bandwidth = &hostdpb.Bandwidth{
			IngressRate: b.IngressRate, IngressBurst: b.IngressBurst, EgressRate: b.EgressRate, EgressBurst: b.EgressBurst,
		}
	}
	return r
}

// podOf returns the pod of Kubernetes whose sandbox a runtime sets up, nil if it names none.
func podOf(args *skel.CmdArgs) *hostdpb.KubernetesPod {
	named, err := netconf.ParseArgs(args.Args)
	if err != nil || named["K8S_POD_UID"] == "" { // ReadRequest has reported the error
		return nil
	}
	return &hostdpb.KubernetesPod{Namespace: named["K8S_POD_NAMESPACE"], Name: named["K8S_POD_NAME"], Uid: named["K8S_POD_UID"]}
}

// appear waits for the NIC or, in trunk mode, for the trunk.
func (a *addition) appear(ctx context.Context) error {
	mac := a.mac
	if a.config.Mode == netconf.Trunk {
		trunk, err := net.ParseMAC(a.nic.GetTrunkMac())
		if err != nil {
			return fmt.Errorf("read the host daemon's answer: MAC of the trunk: %w", err)
		}
		mac = trunk
	}
	var err error
	if a.link, err = a.Appear(ctx, mac, a.config.Wait); err != nil {
		return err
	}
	a.eth = types100.Interface{Name: a.IfName, Mac: a.mac.String(), Sandbox: a.Netns}
	if a.config.Mode == netconf.Hotplug {
		a.eth.PciID, _ = podnic.PCIAddress(a.link.Attrs().Name) // optional in the result
	}
	return nil
}

// move makes the NIC, or a VLAN of the trunk, the pod's interface.
func (a *addition) move(context.Context) error {
	mtu := cmp.Or(a.config.MTU, int(a.nic.GetMtu()))
	if a.config.Mode == netconf.Trunk {
		return a.Moved(podnic.AddVLAN(a.link, int(a.nic.GetVlan()), a.mac, mtu, a.Pod, a.IfName))
	}
	return a.Moved(podnic.MoveIn(a.link, a.Pod, a.IfName, mtu))
}

// dhcp leases an address over the NIC, and tells it to the host daemon, which has
// permitted the NIC only DHCP until then.
func (a *addition) dhcp(ctx context.Context) error {
	if err := a.lease(ctx); err != nil {
		return err
	}
	return a.permit(ctx)
}

// configure sets addresses and routes, and adds the interface to the result.
func (a *addition) configure(context.Context) error {
	a.result.Interfaces = []*types100.Interface{&a.eth}
	for _, ip := range a.result.IPs {
		ip.Interface = types100.Int(0)
	}
	if !a.config.DNS.IsEmpty() {
		a.result.DNS = a.config.DNS
	}
	return a.Pod.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(a.IfName)
		if err != nil {
			return err
		}
		a.eth.Mtu = l.Attrs().MTU
		if err := podnic.CheckAddresses(a.IfName, plain(a.result.IPs)); err != nil {
			return plugin.Invalid(err)
		}
		return configure(l, a.result)
	})
}

// routeBySource makes the pod answer by the NIC that has the address, also if it has others.
func (a *addition) routeBySource(context.Context) error {
	var gateways []netip.Addr
	for _, ip := range a.result.IPs {
		if gw, ok := netip.AddrFromSlice(ip.Gateway); ok {
			gateways = append(gateways, gw.Unmap())
		}
	}
	return a.Pod.Do(func(ns.NetNS) error { return podnic.RouteBySource(a.IfName, gateways) })
}

func (a *addition) forgetSource(context.Context) error { return podnic.ForgetSource(a.Pod, a.IfName) }

func pathOf(c netconf.BrFusion, args *skel.CmdArgs, ips []*types100.IPConfig, mtu int) servicepath.Path {
	return servicepath.Path{Owner: owner(c.Name, args), Addresses: plain(ips), Ranges: c.Services, MTU: mtu}
}

// services makes the service path, and adds its ends to the result, which does not
// list their addresses.
func (a *addition) services(context.Context) error {
	path := pathOf(a.config, a.CmdArgs, a.result.IPs, a.eth.Mtu)
	for _, s := range a.nic.GetServiceAddresses() { // an earlier daemon gives none
		source, err := netip.ParseAddr(s)
		if err != nil {
			return fmt.Errorf("read the host daemon's answer: service address: %w", err)
		}
		path.Sources = append(path.Sources, source)
	}
	ends, err := path.Add(a.Pod)
	if err != nil {
		return err
	}
	a.result.Interfaces = append(a.result.Interfaces, interfaceOf(ends.Guest, ""), interfaceOf(ends.Pod, a.Netns))
	return nil
}

func interfaceOf(a *netlink.LinkAttrs, sandbox string) *types100.Interface {
	return &types100.Interface{Name: a.Name, Mac: a.HardwareAddr.String(), Mtu: a.MTU, Sandbox: sandbox}
}

func (a *addition) undoServices(context.Context) error {
	return servicepath.Del(owner(a.config.Name, a.CmdArgs), a.Pod)
}

func (a *addition) announce(ctx context.Context) error {
	return podnic.Announce(ctx, a.Pod, a.IfName, plain(a.result.IPs))
}

// print prints the result. The result of an earlier plugin in the chain is its first
// part (CNI specification, section 2, ADD).
func (a *addition) print(context.Context) error {
	before, err := a.config.Previous()
	if err != nil {
		return err
	}
	if before == nil {
		before = &types100.Result{}
	}
	for _, ip := range a.result.IPs {
		ip.Interface = types100.Int(*ip.Interface + len(before.Interfaces))
	}
	r := &types100.Result{
		Interfaces: append(before.Interfaces, a.result.Interfaces...),
		IPs:        append(before.IPs, a.result.IPs...),
		Routes:     append(before.Routes, a.result.Routes...),
		DNS:        a.result.DNS,
	}
	if r.DNS.IsEmpty() {
		r.DNS = before.DNS
	}
	return types.PrintResult(r, a.config.CNIVersion)
}
