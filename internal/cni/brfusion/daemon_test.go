package brfusion_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// fakeDaemon makes veths in place of hot-plugged NICs: one end appears in the guest,
// the other on the host.
type fakeDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	lab  *lab
	stop func()

	protocol uint32 // 1: it supports only the four old methods and their fields

	mu        sync.Mutex
	nics      map[string]*hostdpb.NIC
	requests  []*hostdpb.AttachNICRequest
	made      int
	delay     time.Duration                         // until the NIC appears
	onAttach  func(*hostdpb.AttachNICRequest) error // replaces the NIC, when set
	onAgain   error                                 // of a repeated AttachNIC
	onDetach  error
	detached  func() // called before DetachNIC answers, when set
	collects  func() // called before GC, when set
	onStatus  error
	limited   string
	noCarrier bool // the host's end of the NIC stays down
	detaches  int
	services  []string // the service addresses that it gives
	onlyOne   bool     // DetachNIC removes one NIC, not all
}

func (d *fakeDaemon) setMAC(key, mac string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nics[key].Mac = mac
}

// start serves, at the same address as before.
func (d *fakeDaemon) start() { d.stop = d.lab.Serve(d) }

// all returns a copy: Podman's cleanup runs while a test looks.
func (d *fakeDaemon) all() map[string]*hostdpb.NIC {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.nics)
}

func (d *fakeDaemon) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	return d.lab.Renew(ctx, r)
}

func (d *fakeDaemon) Status(context.Context, *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onStatus != nil {
		return nil, d.onStatus
	}
	r := &hostdpb.StatusResponse{
		Guest: "node1", SlotsFree: 1, SlotsTotal: 1, Subnets: []*hostdpb.Subnet{{Prefix: "10.201.0.0/16", Gateway: "10.201.0.1"}},
	}
	if d.protocol > 1 {
		r.Protocol, r.Limited = d.protocol, d.limited
	}
	return r, nil
}

func (d *fakeDaemon) AttachNIC(_ context.Context, r *hostdpb.AttachNICRequest) (*hostdpb.AttachNICResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.requests = append(d.requests, r)
	key := r.GetContainerId() + " " + r.GetInterface()
	if nic := d.nics[key]; nic != nil {
		nic.Addresses = r.GetAddresses()
		return &hostdpb.AttachNICResponse{Nic: nic}, d.onAgain
	}
	d.made++
	nic := &hostdpb.NIC{
		ContainerId: r.GetContainerId(), Interface: r.GetInterface(), Bridge: "br0", Mtu: 1400,
		Mac: fmt.Sprintf("02:00:00:00:00:%02x", d.made),
	}
	answer := &hostdpb.AttachNICResponse{Nic: nic}
	if d.protocol > 1 {
		d.grant(r, answer)
	}
	d.nics[key] = nic
	appear := func() error { return d.plug(nic) }
	if d.onAttach != nil {
		appear = func() error { return d.onAttach(r) }
	}
	if d.delay > 0 {
		time.AfterFunc(d.delay, func() { _ = appear() }) // without the NIC the test fails
		return answer, nil
	}
	return answer, appear()
}

// grant answers the newer fields.
func (d *fakeDaemon) grant(r *hostdpb.AttachNICRequest, answer *hostdpb.AttachNICResponse) {
	nic := answer.GetNic()
	nic.Network, nic.Addresses = r.GetNetwork(), r.GetAddresses()
	if r.GetMode() == hostdpb.Mode_MODE_TRUNK {
		nic.Mode, nic.Vlan, nic.TrunkMac, nic.Mac = r.GetMode(), 100, nic.GetMac(), "02:00:00:00:01:00"
	}
	if r.GetServices() {
		nic.ServiceAddresses = d.services
	}
	if r.GetAllocate() {
		nic.Addresses = []string{fmt.Sprintf("10.201.0.%d/16", d.firstHost()), fmt.Sprintf("fd00:201::%d/64", d.firstHost())}
		answer.Addresses = []*hostdpb.Address{
			{Address: nic.Addresses[0], Gateway: "10.201.0.1"}, {Address: nic.Addresses[1], Gateway: "fd00:201::1"},
		}
	}
}

// firstHost is the last part of the addresses of the NIC: 50 if the pod has no other.
func (d *fakeDaemon) firstHost() int { return 50 + len(d.nics) }

func (d *fakeDaemon) plug(nic *hostdpb.NIC) error {
	mac, err := net.ParseMAC(nic.GetMac())
	if err == nil && nic.GetTrunkMac() != "" {
		mac, err = net.ParseMAC(nic.GetTrunkMac())
	}
	if err != nil {
		return err
	}
	return d.lab.Host.Do(func(ns.NetNS) error {
		a := netlink.NewLinkAttrs()
		a.Name = fmt.Sprintf("tap%d", d.made)
		v := &netlink.Veth{
			LinkAttrs: a, PeerName: fmt.Sprintf("ens%d", d.made), PeerHardwareAddr: mac,
			PeerNamespace: netlink.NsFd(d.lab.Guest.Fd()),
		}
		if err := netlink.LinkAdd(v); err != nil || d.noCarrier {
			return err
		}
		return netlink.LinkSetUp(v)
	})
}

func (d *fakeDaemon) DetachNIC(_ context.Context, r *hostdpb.DetachNICRequest) (*hostdpb.DetachNICResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detaches++
	if d.onDetach != nil {
		return nil, d.onDetach
	}
	key := r.GetContainerId() + " " + r.GetInterface()
	if nic := d.nics[key]; nic != nil {
		if r.GetMac() != "" && r.GetMac() != nic.GetMac() {
			return nil, status.Errorf(codes.FailedPrecondition, "it has %s", nic.GetMac())
		}
		delete(d.nics, key)
		if d.onlyOne {
			d.unplugOne(nic)
		} else {
			d.unplug()
		}
	}
	if d.detached != nil {
		d.detached()
	}
	return &hostdpb.DetachNICResponse{}, nil
}

func (d *fakeDaemon) Check(ctx context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.protocol < 2 {
		return d.UnimplementedHostDaemonServer.Check(ctx, r)
	}
	nic := d.nics[r.GetContainerId()+" "+r.GetInterface()]
	switch {
	case nic == nil:
		return nil, status.Error(codes.NotFound, "no such attachment")
	case nic.GetMac() != r.GetMac() || !slices.Equal(nic.GetAddresses(), r.GetAddresses()):
		return nil, status.Errorf(codes.FailedPrecondition, "it has %s %v", nic.GetMac(), nic.GetAddresses())
	}
	return &hostdpb.CheckResponse{Nic: nic}, nil
}

func (d *fakeDaemon) GC(ctx context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
	if d.collects != nil {
		d.collects()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.protocol < 2 {
		return d.UnimplementedHostDaemonServer.GC(ctx, r)
	}
	for key, nic := range d.nics {
		valid := slices.ContainsFunc(r.GetValid(), func(a *hostdpb.Attachment) bool {
			return a.GetContainerId()+" "+a.GetInterface() == key
		})
		if nic.GetNetwork() == r.GetNetwork() && !valid {
			delete(d.nics, key)
			d.unplug()
		}
	}
	return &hostdpb.GCResponse{}, nil
}

// unplugOne removes one NIC.
func (d *fakeDaemon) unplugOne(nic *hostdpb.NIC) {
	_ = d.lab.Host.Do(func(ns.NetNS) error {
		tap, err := netlink.LinkByName("tap" + nic.GetMac()[len(nic.GetMac())-1:])
		if err == nil {
			err = netlink.LinkDel(tap)
		}
		return err
	})
}

// unplug removes all NICs.
func (d *fakeDaemon) unplug() {
	_ = d.lab.Host.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if strings.HasPrefix(l.Attrs().Name, "tap") {
				_ = netlink.LinkDel(l) // it may be gone with its pod
			}
		}
		return err
	})
}

// refuse makes every AttachNIC fail.
func refuse(c codes.Code, message string) func(*hostdpb.AttachNICRequest) error {
	return func(*hostdpb.AttachNICRequest) error { return status.Error(c, message) }
}
