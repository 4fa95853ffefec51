package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/api"
	"unnest.io/unnest/internal/hostd/contain"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

// fuzzedDaemon is a daemon in a network namespace of its own, with one guest whose VMM is
// in memory. The TAPs, filters and segments are the kernel's.
type fuzzedDaemon struct {
	*daemon
	netns  ns.NetNS
	caller api.Client
	peer   *peer.Peer
}

func newFuzzedDaemon(f *testing.F) *fuzzedDaemon {
	f.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		f.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	host, err := ns.TempNetNS()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { host.Close() })
	p := testQuotas()
	p.Trunk = true
	d, err := newDaemon(Config{
		StateDir: f.TempDir(), Quotas: p, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), UnplugTimeout: time.Second,
	})
	if err != nil {
		f.Fatal(err)
	}
	useQuotas(f, d)
	authority, err := identity.OpenAuthority(d.config.StateDir)
	if err != nil {
		f.Fatal(err)
	}
	issued, err := authority.Issue("node1")
	if err != nil {
		f.Fatal(err)
	}
	block, _ := pem.Decode(issued.CertificatePEM)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.Fatal(err)
	}
	r := goodRecord()
	r.QMP, r.CertificateSHA256 = f.TempDir()+"/qmp", issued.Fingerprint
	if err := record.Write(d.config.StateDir, r); err != nil {
		f.Fatal(err)
	}
	z := &fuzzedDaemon{daemon: d, netns: host, caller: api.Client{Record: r, Tenant: d.tenants[r.Tenant]}}
	z.peer = &peer.Peer{
		Addr:     &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)},
		AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}},
	}
	err = host.Do(func(ns.NetNS) error {
		var err error
		for _, name := range []string{"br0", "br1"} {
			a := netlink.NewLinkAttrs()
			a.Name = name
			err = errors.Join(err, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}))
		}
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return z
}

// call has a handler serve a request, as gRPC does. It returns only the errors that no
// request may cause.
func (z *fuzzedDaemon) call(ctx context.Context, method grpc.MethodDesc, request []byte) error {
	ctx = peer.NewContext(api.WithCaller(ctx, z.caller), z.peer)
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := method.Handler(z.daemon.api, ctx, func(m any) error { return proto.Unmarshal(request, m.(proto.Message)) }, nil)
	if err != nil && strings.Contains(err.Error(), contain.ErrPanic.Error()) {
		return err
	}
	return nil
}

// serveAll serves the requests for the life of one guest, which it removes afterwards.
func (z *fuzzedDaemon) serveAll(t *testing.T, requests []byte) error {
	v := newFakeVMM(4)
	z.host.Dial = func(context.Context, record.Guest) (vmm.VMM, error) { return v, nil }
	var running sync.WaitGroup
	life, end := context.WithCancelCause(t.Context())
	z.launch = func(g *guestrun.Guest) {
		var own context.Context
		own, g.Stop = context.WithCancelCause(life)
		running.Go(func() { _ = z.netns.Do(func(ns.NetNS) error { g.Run(own); return nil }) })
	}
	methods := hostdpb.HostDaemon_ServiceDesc.Methods
	var err error
	for n := 0; len(requests) >= 3 && n < 16 && err == nil; n++ {
		method := methods[int(requests[0])%len(methods)]
		size := min(int(binary.LittleEndian.Uint16(requests[1:])), len(requests)-3)
		err = z.call(life, method, requests[3:3+size])
		requests = requests[3+size:]
	}
	end(guestrun.ErrRemoved)
	running.Wait()
	v.end()
	z.forget(z.caller.Record.Name)
	return errors.Join(err, z.daemon.remove(z.caller.Record), z.host.Segments.Close())
}

// leftovers lists what no guest may leave behind.
func (z *fuzzedDaemon) leftovers() (left []string, err error) {
	links, err := netlink.LinkList()
	for _, l := range links {
		if l.Type() == "tuntap" {
			left = append(left, l.Attrs().Name)
		}
	}
	for name, t := range z.tenants {
		if _, owned := t.Stats(); owned > 0 {
			left = append(left, "attachments of "+name)
		}
	}
	if n := len(z.host.Segments.Status()); n > 0 {
		left = append(left, "segments")
	}
	return left, err
}

// encode encodes a request for serveAll.
func encode(method string, m proto.Message) []byte {
	for i, d := range hostdpb.HostDaemon_ServiceDesc.Methods {
		if d.MethodName == method {
			content, err := proto.Marshal(m)
			if err != nil {
				panic(err)
			}
			return append([]byte{byte(i), byte(len(content)), byte(len(content) >> 8)}, content...)
		}
	}
	panic("no such method: " + method)
}

// No sequence of requests of a guest causes a panic, and when the guest is gone nothing of
// it is left on the host.
func FuzzService(f *testing.F) {
	z := newFuzzedDaemon(f)
	nic := func(container string, more func(*hostdpb.AttachNICRequest)) []byte {
		r := &hostdpb.AttachNICRequest{ContainerId: container, Interface: "eth0", Network: "pods"}
		more(r)
		return encode("AttachNIC", r)
	}
	plain := func(*hostdpb.AttachNICRequest) {}
	pod := &hostdpb.SegmentSpec{Pod: "web", Key: strings.Repeat("k", 20)}
	join := encode("JoinSegment", &hostdpb.JoinSegmentRequest{ContainerId: "a", Interface: "hlo0", Segment: pod})
	detach := encode("DetachNIC", &hostdpb.DetachNICRequest{ContainerId: "a", Interface: "eth0"})
	renewal, _, err := identity.NewRequest()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range [][][]byte{
		{nic("a", plain), encode("ListNICs", &hostdpb.ListNICsRequest{}), detach, nic("a", plain)},
		{nic("a", func(r *hostdpb.AttachNICRequest) { r.Allocate = true }), encode("Status", &hostdpb.StatusRequest{Allocate: true}),
			encode("Check", &hostdpb.CheckRequest{ContainerId: "a", Interface: "eth0", Addresses: []string{"10.9.0.2/24"}})},
		{nic("a", func(r *hostdpb.AttachNICRequest) {
			r.Addresses, r.Mtu, r.Dhcp = []string{"10.9.0.9/24", "fd00::9/64"}, 1300, true
			r.Bandwidth = &hostdpb.Bandwidth{IngressRate: 1 << 20, IngressBurst: 1 << 16, EgressRate: 1 << 20, EgressBurst: 1 << 30}
		}), nic("b", plain), nic("c", plain), nic("d", plain), nic("e", plain),
			encode("GC", &hostdpb.GCRequest{Network: "pods", Valid: []*hostdpb.Attachment{{ContainerId: "a", Interface: "eth0"}}})},
		{nic("a", func(r *hostdpb.AttachNICRequest) { r.Mode = hostdpb.Mode_MODE_TRUNK })},
		{encode("CreateSegment", &hostdpb.CreateSegmentRequest{Segment: pod}), join, join,
			encode("SegmentStatus", &hostdpb.SegmentStatusRequest{Pod: "web", Key: pod.GetKey()}),
			encode("LeaveSegment", &hostdpb.LeaveSegmentRequest{ContainerId: "a", Interface: "hlo0"})},
		{encode("AttachVolume", &hostdpb.AttachVolumeRequest{Pod: "web", Name: "data", Key: pod.GetKey()}),
			encode("DetachVolume", &hostdpb.DetachVolumeRequest{Pod: "web", Name: "../data"})},
		{encode("AttachSharedMemory", &hostdpb.AttachSharedMemoryRequest{Pod: "web", Name: "shm", Key: pod.GetKey(), Size: 1 << 20}),
			encode("DetachSharedMemory", &hostdpb.DetachSharedMemoryRequest{Pod: "web", Name: "shm"})},
		{encode("Renew", &hostdpb.RenewRequest{CertificateRequest: renewal})},
	} {
		var all []byte
		for _, r := range seed {
			all = append(all, r...)
		}
		f.Add(all)
	}
	f.Fuzz(func(t *testing.T, requests []byte) {
		err := z.netns.Do(func(ns.NetNS) error {
			err := z.serveAll(t, requests)
			left, leftErr := z.leftovers()
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
			return errors.Join(err, leftErr)
		})
		if err != nil {
			t.Error(err)
		}
	})
}
