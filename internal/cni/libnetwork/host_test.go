package libnetwork_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
)

// fakeHost is a host daemon that makes veths in place of hot-plugged NICs, on a bridge of the host.
type fakeHost struct {
	hostdpb.UnimplementedHostDaemonServer
	lab    *lab
	stop   func()
	passed func(call string) error // called when a call was served; its error is the answer

	mu   sync.Mutex
	nics map[string]*hostdpb.NIC // by owner
	made int

	endpoint *hostdpb.Endpoint // nil: the guest is in no segment

	gateways []string // of both families
}

// takenMAC is one that the host refuses.
const takenMAC = "02:42:00:00:00:01"

const gateway4, gateway6 = "10.201.0.1", "fd00:201::1"

// newHost makes the bridge, with the guest's own NIC, and serves.
func newHost(l *lab) *fakeHost {
	l.t.Helper()
	h := &fakeHost{lab: l, passed: func(string) error { return nil }, nics: map[string]*hostdpb.NIC{}, gateways: []string{gateway4, gateway6}}
	l.Must(l.Host.Do(func(ns.NetNS) error {
		a := netlink.NewLinkAttrs()
		// As the daemon's: else each port that comes or goes may change the address that containers know.
		a.Name, a.HardwareAddr = "br0", net.HardwareAddr{2, 0, 0, 0, 2, 0}
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	}))
	l.Must(link(l.Host, "br0", func(br netlink.Link) error {
		return errors.Join(netlink.LinkSetUp(br), address(br, gateway4+"/16"), address(br, gateway6+"/64"))
	}))
	l.Must(h.plug("own", "eth0", net.HardwareAddr{2, 0, 0, 0, 1, 0}))
	l.Must(link(l.Guest, "eth0", func(eth0 netlink.Link) error {
		return errors.Join(netlink.LinkSetUp(eth0), address(eth0, "10.201.0.8/16"), address(eth0, "fd00:201::8/64"))
	}))
	h.serve()
	return h
}

func (h *fakeHost) serve() { h.stop = h.lab.Serve(h) }

func address(l netlink.Link, text string) error {
	a, err := netlink.ParseAddr(text)
	if err != nil {
		return err
	}
	a.Flags = 0x2 // without duplicate address detection
	return netlink.AddrAdd(l, a)
}

// plug makes a veth of which one end is on the bridge and the other in the guest.
func (h *fakeHost) plug(tap, name string, mac net.HardwareAddr) error {
	return link(h.lab.Host, "br0", func(br netlink.Link) error {
		a := netlink.NewLinkAttrs()
		a.Name, a.MasterIndex = tap, br.Attrs().Index
		v := &netlink.Veth{LinkAttrs: a, PeerName: name, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(h.lab.Guest.Fd())}
		return errors.Join(netlink.LinkAdd(v), netlink.LinkSetUp(v))
	})
}

func (h *fakeHost) owners() (all []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for owner := range h.nics {
		all = append(all, owner)
	}
	return all
}

func (h *fakeHost) Status(context.Context, *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return &hostdpb.StatusResponse{Guest: "node1", Protocol: 3, Subnets: []*hostdpb.Subnet{
		{Prefix: "10.201.0.0/16", Gateway: h.gateways[0]}, {Prefix: "fd00:201::/64", Gateway: h.gateways[1]},
	}}, nil
}

func (h *fakeHost) AttachNIC(_ context.Context, r *hostdpb.AttachNICRequest) (_ *hostdpb.AttachNICResponse, err error) {
	defer func() { err = errors.Join(err, h.passed("AttachNIC")) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	for owner, n := range h.nics {
		for _, a := range r.GetAddresses() {
			if owner != r.GetContainerId() && slices.Contains(n.GetAddresses(), a) {
				return nil, status.Errorf(codes.PermissionDenied, "address %s is held by %s", a, owner)
			}
		}
	}
	n := h.nics[r.GetContainerId()]
	if n != nil {
		if !r.GetAllocate() {
			n.Addresses = r.GetAddresses()
		}
		if n.PodMac = r.GetMac(); n.PodMac == takenMAC {
			return nil, status.Error(codes.PermissionDenied, "MAC is taken")
		}
		return h.answer(n), nil
	}
	h.made++
	n = &hostdpb.NIC{
		ContainerId: r.GetContainerId(), Interface: r.GetInterface(), Network: r.GetNetwork(), Mtu: 1400,
		Mac: fmt.Sprintf("02:00:00:00:00:%02x", h.made), Slot: uint32(h.made), State: hostdpb.NICState_NIC_STATE_ATTACHED,
		Addresses: []string{fmt.Sprintf("10.201.1.%d/16", h.made), fmt.Sprintf("fd00:201::1:%x/64", h.made)},
	}
	h.nics[r.GetContainerId()] = n
	mac, err := net.ParseMAC(n.GetMac())
	if err == nil {
		err = h.plug(fmt.Sprintf("tap%d", h.made), fmt.Sprintf("ens%d", h.made), mac)
	}
	return h.answer(n), err
}

func (h *fakeHost) answer(n *hostdpb.NIC) *hostdpb.AttachNICResponse {
	answer := &hostdpb.AttachNICResponse{Nic: n}
	for i, a := range n.GetAddresses() {
		answer.Addresses = append(answer.Addresses, &hostdpb.Address{Address: a, Gateway: h.gateways[i]})
	}
	return answer
}

func (h *fakeHost) DetachNIC(_ context.Context, r *hostdpb.DetachNICRequest) (_ *hostdpb.DetachNICResponse, err error) {
	defer func() { err = errors.Join(err, h.passed("DetachNIC")) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nics[r.GetContainerId()]
	if n == nil || n.GetInterface() != r.GetInterface() {
		return &hostdpb.DetachNICResponse{}, nil
	}
	delete(h.nics, r.GetContainerId())
	return &hostdpb.DetachNICResponse{}, link(h.lab.Host, fmt.Sprintf("tap%d", n.GetSlot()), netlink.LinkDel)
}

func (h *fakeHost) ListNICs(context.Context, *hostdpb.ListNICsRequest) (*hostdpb.ListNICsResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	answer := &hostdpb.ListNICsResponse{}
	for _, n := range h.nics {
		answer.Nics = append(answer.Nics, n)
	}
	return answer, nil
}

// has reports whether a NIC has an address.
func (h *fakeHost) has(a string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := netip.MustParseAddr(a)
	for _, n := range h.nics {
		if slices.ContainsFunc(n.GetAddresses(), func(s string) bool { return strings.HasPrefix(s, want.String()+"/") }) {
			return true
		}
	}
	return false
}

// attachOther attaches the NIC of a runtime that is not Docker.
func (h *fakeHost) attachOther() {
	h.lab.t.Helper()
	_, err := h.AttachNIC(context.Background(), &hostdpb.AttachNICRequest{ContainerId: "pod", Interface: "eth0", Network: "pods"})
	h.lab.Must(err)
}

func (h *fakeHost) remove(owner string) {
	h.lab.t.Helper()
	_, err := h.DetachNIC(context.Background(), &hostdpb.DetachNICRequest{ContainerId: owner, Interface: "eth0"})
	h.lab.Must(err)
}

// JoinSegment gives the endpoint of the only fraction.
func (h *fakeHost) JoinSegment(_ context.Context, r *hostdpb.JoinSegmentRequest) (_ *hostdpb.JoinSegmentResponse, err error) {
	defer func() { err = errors.Join(err, h.passed("JoinSegment")) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.GetSegment().GetKey() != segmentKey {
		return nil, status.Error(codes.PermissionDenied, "wrong key")
	}
	mac := segment.MAC(1)
	h.endpoint = &hostdpb.Endpoint{
		ContainerId: r.GetContainerId(), Interface: r.GetInterface(), Mac: mac.String(), SegmentMac: mac.String(), Mtu: segment.MTU,
		Pod: r.GetSegment().GetPod(), Fraction: 1, Members: uint32(segment.Set(0).With(1)), Generation: 1,
	}
	return &hostdpb.JoinSegmentResponse{Endpoint: h.endpoint}, h.plug("endpoint", "ens99", mac[:])
}

func (h *fakeHost) Check(context.Context, *hostdpb.CheckRequest) (_ *hostdpb.CheckResponse, err error) {
	defer func() { err = errors.Join(err, h.passed("Check")) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	return &hostdpb.CheckResponse{Endpoint: h.endpoint}, nil
}

func (h *fakeHost) LeaveSegment(_ context.Context, r *hostdpb.LeaveSegmentRequest) (_ *hostdpb.LeaveSegmentResponse, err error) {
	defer func() { err = errors.Join(err, h.passed("LeaveSegment")) }()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.endpoint.GetContainerId() != r.GetContainerId() || h.endpoint.GetInterface() != r.GetInterface() {
		return &hostdpb.LeaveSegmentResponse{}, nil
	}
	h.endpoint = nil
	err = link(h.lab.Host, "endpoint", netlink.LinkDel)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		err = nil // it ended with the container's network namespace
	}
	return &hostdpb.LeaveSegmentResponse{}, err
}

// inSegment reports whether the guest has an endpoint.
func (h *fakeHost) inSegment() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.endpoint != nil
}

const segmentKey = "0123456789abcdef"
