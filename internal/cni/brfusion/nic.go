package brfusion

import (
	"context"
	"fmt"
	"net"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest/internal/cni/failure"
	"unnest/internal/cni/netconf"
	"unnest/internal/cni/podnic"
	"unnest/internal/hostapi/hostdpb"
)

// attach asks the host daemon for the NIC, and, with its IPAM, for addresses.
func (a *addition) attach(ctx context.Context) error {
	if err := a.checkBandwidth(ctx); err != nil {
		return err
	}
	r := request(a.config, a.args)
	if a.early() {
		r.Addresses = prefixed(a.result.IPs)
	}
	answer, err := a.daemon.Attach(ctx, r)
	if err != nil {
		return err
	}
	a.nic = answer.GetNic()
	if a.mac, err = net.ParseMAC(a.nic.GetMac()); err != nil {
		return fmt.Errorf("read the host daemon's answer: %w", err)
	}
	if a.config.Mode == netconf.Trunk && a.nic.GetVlan() == 0 {
		return failure.TooOld(`mode "trunk"`)
	}
	if a.config.IPAM.Delegated() {
		return nil
	}
	if len(answer.GetAddresses()) == 0 {
		return failure.TooOld(`ipam.type "hostd"`)
	}
	a.result, err = granted(answer.GetAddresses(), a.config.IPAM)
	return err
}

// checkBandwidth asks a daemon that is to limit the NIC whether it can: its
// answer to the attachment does not tell.
func (a *addition) checkBandwidth(ctx context.Context) error {
	if a.config.Bandwidth == (netconf.Bandwidth{}) {
		return nil
	}
	s, err := a.daemon.Status(ctx, false)
	if err != nil {
		return err
	}
	return serves(a.config, s)
}

func (a *addition) detach(ctx context.Context) error {
	_, err := pending(a.config).Return(ctx, a.daemon.Detach, a.args.ContainerID, a.args.IfName)
	return err
}

// appear waits for the NIC, or, in trunk mode, for the trunk.
func (a *addition) appear(ctx context.Context) error {
	late := types.NewError(types.ErrTryAgainLater, fmt.Sprintf(
		"it has not appeared after %v: does the guest's kernel have hot-plug (pciehp or acpiphp) and virtio_net?", a.config.Wait), "")
	ctx, cancel := context.WithTimeoutCause(ctx, a.config.Wait, late)
	defer cancel()
	mac := a.mac
	if a.config.Mode == netconf.Trunk {
		trunk, err := net.ParseMAC(a.nic.GetTrunkMac())
		if err != nil {
			return fmt.Errorf("read the host daemon's answer: MAC of the trunk: %w", err)
		}
		mac = trunk
	}
	var err error
	if a.link, err = podnic.AwaitPlugged(ctx, mac); err != nil {
		return err
	}
	a.eth = types100.Interface{Name: a.args.IfName, Mac: a.mac.String(), Sandbox: a.args.Netns}
	if a.config.Mode == netconf.Hotplug {
		a.eth.PciID, _ = podnic.PCIAddress(a.link.Attrs().Name) // only told; it is not needed
	}
	return nil
}

// move makes the NIC, or a VLAN of the trunk, the pod's.
func (a *addition) move(context.Context) (err error) {
	if a.config.Mode == netconf.Trunk {
		a.moveOut, err = podnic.AddVLAN(a.link, int(a.nic.GetVlan()), a.mac, a.mtu(), a.pod, a.args.IfName)
		return err
	}
	a.moveOut, err = podnic.MoveIn(a.link, a.pod, a.args.IfName, a.mtu())
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

// request is what an ADD asks for, but for the addresses.
func request(c netconf.BrFusion, args *skel.CmdArgs) *hostdpb.AttachNICRequest {
	r := &hostdpb.AttachNICRequest{
		ContainerId: args.ContainerID, Interface: args.IfName, Bridge: c.Bridge, Network: c.Name,
		Allocate: !c.IPAM.Delegated(), Cold: c.Cold, Dhcp: c.IPAM.Type == netconf.DHCP, Mtu: uint32(c.MTU),
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
