package brfusion

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"

	"unnest/internal/podnet"
	"unnest/internal/podnet/netconf"
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
	answer, err := a.daemon.attach(ctx, r)
	if err != nil {
		return err
	}
	a.nic = answer.GetNic()
	if a.mac, err = net.ParseMAC(a.nic.GetMac()); err != nil {
		return fmt.Errorf("read the host daemon's answer: %w", err)
	}
	if a.config.Mode == netconf.Trunk && a.nic.GetVlan() == 0 {
		return tooOld(`mode "trunk"`)
	}
	if a.config.IPAM.Delegated() {
		return nil
	}
	if len(answer.GetAddresses()) == 0 {
		return tooOld(`ipam.type "hostd"`)
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
	s, err := a.daemon.status(ctx, false)
	if err != nil {
		return err
	}
	return serves(a.config, s)
}

func (a *addition) detach(ctx context.Context) error {
	_, err := giveBack(ctx, a.daemon, a.config, a.args)
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
	if a.link, err = awaitNIC(ctx, mac); err != nil {
		return err
	}
	a.eth = types100.Interface{Name: a.args.IfName, Mac: a.mac.String(), Sandbox: a.args.Netns}
	if a.config.Mode == netconf.Hotplug {
		a.eth.PciID, _ = podnet.PCIAddress(a.link.Attrs().Name) // only told; it is not needed
	}
	return nil
}

// rescanTime is after how long the guest's kernel is asked to look by itself. It
// misses a NIC at times when many come and go at once; as a rule it finds one
// within 0.1 s.
const rescanTime = 3 * time.Second

func awaitNIC(ctx context.Context, mac net.HardwareAddr) (netlink.Link, error) {
	soon, cancel := context.WithTimeout(ctx, rescanTime)
	defer cancel()
	l, err := podnet.Await(soon, mac)
	if err == nil || ctx.Err() != nil {
		return l, err
	}
	if err := podnet.RescanPCI(); err != nil {
		return nil, err
	}
	return podnet.Await(ctx, mac)
}

// move makes the NIC, or a VLAN of the trunk, the pod's.
func (a *addition) move(context.Context) (err error) {
	if a.config.Mode == netconf.Trunk {
		a.moveOut, err = podnet.AddVLAN(a.link, int(a.nic.GetVlan()), a.mac, a.mtu(), a.pod, a.args.IfName)
		return err
	}
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
