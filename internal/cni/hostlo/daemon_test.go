package hostlo_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/reflector"
)

// fakeDaemon gives endpoints of real segments: the host's side is the reflector's. In
// place of the VMM, goroutines copy frames between the reflector's queue and a TAP in
// the guest.
type fakeDaemon struct {
	hostdpb.UnimplementedHostDaemonServer
	lab  *lab
	stop func()

	protocol uint32 // 2: it does not support segments

	mu        sync.Mutex
	segments  map[string]*fakeSegment
	endpoints map[string]*fakeEndpoint // by container and interface
	made      int
	requests  []*hostdpb.JoinSegmentRequest
	leaves    int
	delay     time.Duration                           // until the NIC appears
	onJoin    func(*hostdpb.JoinSegmentRequest) error // replaces the NIC, when set
	onAnswer  func(*hostdpb.Endpoint)                 // changes an answer
	onCheck   func() error
	onLeave   error
	onStatus  error
	limited   string
	noModes   bool
	capacity  int  // endpoints; 0: any number
	single    bool // a guest has one endpoint in a segment
	otherMAC  bool // NICs are plugged with another MAC than the fraction's
	silent    bool // announces nothing
	terse     bool // announces nothing without a request
}

type fakeSegment struct {
	key, network string
	mode         hostdpb.SegmentMode
	reflector    *reflector.Segment
	members      segment.Set
	generation   uint32
}

type fakeEndpoint struct {
	*hostdpb.Endpoint
	segment *fakeSegment
	unplug  func()
}

// start serves, at the same address as before, and announces members.
func (d *fakeDaemon) start() {
	stop, ended := d.lab.Serve(d), make(chan struct{})
	var repeats sync.WaitGroup
	repeats.Go(func() { d.repeat(ended) })
	d.stop = sync.OnceFunc(func() {
		close(ended)
		stop()
		repeats.Wait()
	})
	d.lab.t.Cleanup(d.stop)
}

// repeat announces periodically, as the daemon does.
func (d *fakeDaemon) repeat(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(100 * time.Millisecond):
		}
		d.mu.Lock()
		for _, s := range d.segments {
			if !d.terse {
				d.announce(s)
			}
		}
		d.mu.Unlock()
	}
}

func (d *fakeDaemon) announce(s *fakeSegment) {
	if d.silent {
		return
	}
	if err := s.reflector.Announce(segment.Membership{Generation: s.generation, Members: s.members}); err != nil {
		d.lab.t.Error(err)
	}
}

// change changes fields while the daemon runs.
func (d *fakeDaemon) change(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// all are the attachments that have endpoints.
func (d *fakeDaemon) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.endpoints))
}

func (d *fakeDaemon) Status(context.Context, *hostdpb.StatusRequest) (*hostdpb.StatusResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onStatus != nil {
		return nil, d.onStatus
	}
	r := &hostdpb.StatusResponse{Guest: "node1", SlotsFree: 1, SlotsTotal: 1, Protocol: d.protocol, Limited: d.limited}
	if d.capacity > 0 && len(d.endpoints) == d.capacity {
		r.Limited = "no slot is free"
	}
	if d.protocol > 2 && !d.noModes {
		r.SegmentModes = []hostdpb.SegmentMode{hostdpb.SegmentMode_SEGMENT_MODE_UNICAST, hostdpb.SegmentMode_SEGMENT_MODE_PLAIN}
	}
	return r, nil
}

func (d *fakeDaemon) JoinSegment(ctx context.Context, r *hostdpb.JoinSegmentRequest) (*hostdpb.JoinSegmentResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.protocol < 3 {
		return d.UnimplementedHostDaemonServer.JoinSegment(ctx, r)
	}
	d.requests = append(d.requests, r)
	key := r.GetContainerId() + " " + r.GetInterface()
	if e := d.endpoints[key]; e != nil {
		return &hostdpb.JoinSegmentResponse{Endpoint: e.Endpoint}, nil
	}
	if d.capacity > 0 && len(d.endpoints) == d.capacity {
		return nil, status.Error(codes.ResourceExhausted, "no slot is free")
	}
	s, err := d.segmentOf(r.GetSegment())
	if err != nil {
		return nil, err
	}
	if d.single && s.members != 0 {
		return nil, status.Error(codes.Aborted, "the guest has an endpoint in it")
	}
	f := segment.Fraction(1)
	for s.members.Has(f) {
		f++
	}
	d.made++
	s.members, s.generation = s.members.With(f), s.generation+1
	e := &fakeEndpoint{segment: s, unplug: func() {}, Endpoint: &hostdpb.Endpoint{
		ContainerId: r.GetContainerId(), Interface: r.GetInterface(), Mac: segment.MAC(f).String(), SegmentMac: segment.MAC(f).String(),
		Mtu: segment.MTU, Slot: uint32(d.made), Pod: r.GetSegment().GetPod(), Network: r.GetSegment().GetNetwork(),
		Fraction: uint32(f), Members: uint32(s.members), Generation: s.generation,
	}}
	if d.otherMAC {
		e.Mac = fmt.Sprintf("02:00:00:00:01:%02x", d.made)
	}
	d.endpoints[key] = e
	answer := &hostdpb.JoinSegmentResponse{Endpoint: proto.Clone(e.Endpoint).(*hostdpb.Endpoint)}
	if d.onAnswer != nil {
		d.onAnswer(answer.Endpoint)
	}
	switch {
	case d.onJoin != nil:
		return answer, d.onJoin(r)
	case d.delay > 0:
		time.AfterFunc(d.delay, func() { // without the NIC the test fails
			d.mu.Lock()
			defer d.mu.Unlock()
			_ = d.plug(e)
		})
		return answer, nil
	}
	return answer, d.plug(e)
}

// segmentOf returns the segment, and makes it at the first request.
func (d *fakeDaemon) segmentOf(r *hostdpb.SegmentSpec) (*fakeSegment, error) {
	if s := d.segments[r.GetPod()]; s != nil {
		switch {
		case s.key != r.GetKey():
			return nil, status.Error(codes.PermissionDenied, "wrong key")
		case s.network != r.GetNetwork() || r.GetMode() != 0 && r.GetMode() != s.mode:
			return nil, status.Error(codes.FailedPrecondition, "the segment has another mode or network")
		}
		return s, nil
	}
	s := &fakeSegment{key: r.GetKey(), network: r.GetNetwork(), mode: r.GetMode(), generation: 100}
	o := reflector.Options{Name: fmt.Sprintf("hl%d", d.made), Mode: reflector.Unicast}
	if s.mode == hostdpb.SegmentMode_SEGMENT_MODE_PLAIN {
		o.Mode = reflector.Plain
	}
	err := d.lab.Host.Do(func(ns.NetNS) (err error) {
		s.reflector, err = reflector.Create(o)
		return err
	})
	if err != nil {
		return nil, err
	}
	d.segments[r.GetPod()] = s
	return s, nil
}

// plug makes the endpoint's NIC in the guest.
func (d *fakeDaemon) plug(e *fakeEndpoint) error {
	var queue, nic *os.File
	err := d.lab.Host.Do(func(ns.NetNS) (err error) {
		queue, err = e.segment.reflector.Join(segment.Fraction(e.GetFraction()))
		return err
	})
	if err != nil {
		return err
	}
	err = d.lab.Guest.Do(func(ns.NetNS) (err error) {
		nic, err = openTAP(fmt.Sprint("ens", e.GetSlot()), e.GetMac())
		return err
	})
	if err != nil {
		return errors.Join(err, queue.Close())
	}
	var copies sync.WaitGroup
	copies.Go(func() { pump(queue, nic) })
	copies.Go(func() { pump(nic, queue) })
	e.unplug = func() {
		_, _ = nic.Close(), queue.Close()
		copies.Wait()
	}
	return nil
}

// openTAP makes a TAP in place of a virtio NIC. Close unplugs it, in any namespace.
func openTAP(name, address string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(address)
	var request *unix.Ifreq
	if err == nil {
		request, err = unix.NewIfreq(name)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	const header = 12 // of struct virtio_net_hdr_v1, as QEMU has it
	err = errors.Join(
		unix.IoctlIfreq(fd, unix.TUNSETIFF, request),
		unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, header),
		unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN))
	if err == nil {
		err = netlink.LinkSetHardwareAddr(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}}, mac)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pump copies frames until one of the files is closed.
func pump(to, from *os.File) {
	for b := make([]byte, 1<<17); ; {
		n, err := from.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // the device is down
			time.Sleep(time.Millisecond)
			continue
		}
		if _, err := to.Write(b[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

func (d *fakeDaemon) LeaveSegment(ctx context.Context, r *hostdpb.LeaveSegmentRequest) (*hostdpb.LeaveSegmentResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaves++
	if d.protocol < 3 {
		return d.UnimplementedHostDaemonServer.LeaveSegment(ctx, r)
	}
	if d.onLeave != nil {
		return nil, d.onLeave
	}
	return &hostdpb.LeaveSegmentResponse{}, d.leave(r.GetContainerId() + " " + r.GetInterface())
}

func (d *fakeDaemon) leave(key string) error {
	e := d.endpoints[key]
	if e == nil {
		return nil
	}
	delete(d.endpoints, key)
	e.unplug()
	f := segment.Fraction(e.GetFraction())
	e.segment.members, e.segment.generation = e.segment.members.Without(f), e.segment.generation+1
	if e.segment.members == 0 {
		delete(d.segments, e.GetPod())
		return e.segment.reflector.Close()
	}
	err := d.lab.Host.Do(func(ns.NetNS) error { return e.segment.reflector.Leave(f) })
	d.announce(e.segment)
	return err
}

func (d *fakeDaemon) Check(_ context.Context, r *hostdpb.CheckRequest) (*hostdpb.CheckResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.onCheck != nil {
		if err := d.onCheck(); err != nil {
			return nil, err
		}
	}
	e := d.endpoints[r.GetContainerId()+" "+r.GetInterface()]
	switch {
	case e == nil || !r.GetEndpoint():
		return nil, status.Error(codes.NotFound, "no such endpoint")
	case r.GetPod() != "" && r.GetPod() != e.GetPod():
		return nil, status.Errorf(codes.FailedPrecondition, "it is in segment %s", e.GetPod())
	}
	e.Members, e.Generation = uint32(e.segment.members), e.segment.generation
	d.announce(e.segment)
	return &hostdpb.CheckResponse{Endpoint: e.Endpoint}, nil
}

func (d *fakeDaemon) GC(_ context.Context, r *hostdpb.GCRequest) (*hostdpb.GCResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	for key, e := range d.endpoints {
		valid := slices.ContainsFunc(r.GetValid(), func(a *hostdpb.Attachment) bool {
			return a.GetContainerId()+" "+a.GetInterface() == key
		})
		if e.GetNetwork() == r.GetNetwork() && !valid {
			err = errors.Join(err, d.leave(key))
		}
	}
	return &hostdpb.GCResponse{}, err
}

// refuse makes every join fail.
func refuse(c codes.Code, message string) func(*hostdpb.JoinSegmentRequest) error {
	return func(*hostdpb.JoinSegmentRequest) error { return status.Error(c, message) }
}
