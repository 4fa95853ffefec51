package hostlo_test

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
)

// listen runs a server in a pod that accepts connections until the test ends.
func (l *lab) listen(pod ns.NetNS, address string) {
	l.t.Helper()
	s := l.Listen(pod, address)
	go func() {
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
}

// connect returns nil if a client in the pod reaches the address.
func (l *lab) connect(pod ns.NetNS, address string) error {
	return pod.Do(func(ns.NetNS) error {
		c, err := net.DialTimeout("tcp", address, time.Minute)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// share fails the test unless each pod reaches the other's servers on its own
// localhost.
func (l *lab) share(port int) {
	l.t.Helper()
	for _, host := range []string{"127.0.0.1", "::1"} {
		for _, pair := range [][2]ns.NetNS{{l.Pod, l.web}, {l.web, l.Pod}} {
			server, client := pair[0], pair[1]
			port++
			address := net.JoinHostPort(host, fmt.Sprint(port))
			if err := l.connect(client, address); !errors.Is(err, unix.ECONNREFUSED) {
				l.t.Errorf("%s without a listener: %v", address, err)
			}
			l.listen(server, address)
			if err := l.connect(client, address); err != nil {
				l.t.Errorf("%s: %v", address, err)
			}
		}
	}
}

// Two pods become fractions of one segment, and each works on when the other leaves.
func TestAddCheckDel(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			l := newLab(t)
			l.daemon.delay = 200 * time.Millisecond
			config := l.config(with("cniVersion", version))
			r, web := l.Add(config), l.Add(config, l.inWeb()...)
			wantEndpoint(t, r, version, "eth0", 1, path(l.Pod))
			wantEndpoint(t, web, version, "eth0", 2, path(l.web))
			l.share(7000)
			if version != "0.3.1" {
				l.Succeeds("CHECK", l.WithResult(config, r))
				l.Succeeds("CHECK", l.WithResult(config, web), l.inWeb()...)
			}
			for range 2 {
				l.Succeeds("DEL", config)
				l.wantAlone(l.Pod)
			}
			if version != "0.3.1" { // waits until the other has left
				l.Succeeds("CHECK", l.WithResult(config, web), l.inWeb()...)
			}
			if err := l.connect(l.web, "127.0.0.1:7001"); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("the server of a fraction that has left: %v", err)
			}
			l.Succeeds("DEL", config, l.inWeb()...)
			l.wantAlone(l.web)
			l.wantNothing()
		})
	}
}

// The pod knows the members that the daemon has announced between its answer to the
// join and the end of the ADD.
func TestAnnouncementWhileJoining(t *testing.T) {
	l := newLab(t)
	config := l.config()
	l.Add(config, l.inWeb()...)
	l.daemon.change(func() {
		l.daemon.terse = true
		l.daemon.onAnswer = func(e *hostdpb.Endpoint) { // as if the other had joined since
			e.Generation--
			e.Members = uint32(segment.Of(segment.Fraction(e.GetFraction())))
		}
	})
	l.Add(config)
	if known, err := loopback.Membership(l.Pod); err != nil || known.Members != segment.Of(1, 2) {
		t.Errorf("the pod knows the members %s, %v; want 1,2", known.Members, err)
	}
}

// The daemon tells the others of a fraction when ADD asks for the members. So an ADD during a
// restart of the daemon ends after the restart, or fails: the others never learn too late.
func TestAddWhileDaemonRestarts(t *testing.T) {
	l := newLab(t)
	l.Add(l.config(), l.inWeb()...)
	asked, restarts := 0, 3
	l.daemon.change(func() {
		l.daemon.terse = true
		l.daemon.onCheck = func() error {
			if asked++; asked <= restarts {
				return status.Error(codes.Unavailable, "restarting")
			}
			return nil
		}
	})
	l.Add(l.config())
	if known, err := loopback.Membership(l.web); err != nil || known.Members != segment.Of(1, 2) || asked != restarts+1 {
		t.Errorf("the other fraction knows the members %s, %v after %d requests; want 1,2 after %d", known.Members, err, asked, restarts+1)
	}
	l.Succeeds("DEL", l.config())
	l.daemon.change(func() { asked, restarts = 0, math.MaxInt })
	if a := l.Run("ADD", l.config(with("wait", "1s"))); a.Code() != 11 || !strings.Contains(a.Message(), "the other fractions do not know of this one") {
		t.Errorf("ADD while the daemon does not answer: got %s", a.Stdout)
	}
	l.wantAlone(l.Pod)
	if left := l.daemon.all(); !slices.Equal(left, []string{"c2 eth0"}) {
		t.Errorf("the daemon has the endpoints %v, want that of c2 alone", left)
	}
}

// wantEndpoint checks the last interface of a result in a version of CNI.
func wantEndpoint(t *testing.T, r *types100.Result, version, name string, f segment.Fraction, sandbox string) {
	t.Helper()
	nic := r.Interfaces[len(r.Interfaces)-1]
	if nic.Name != name || nic.Mac != segment.MAC(f).String() || nic.Sandbox != sandbox ||
		version == "1.1.0" && nic.Mtu != segment.MTU {
		t.Errorf("the endpoint is %+v", nic)
	}
}

// After a plugin that has made eth0: the result has both interfaces.
func TestChained(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			l := newLab(t)
			l.AddToPod("eth0")
			config := l.config(with("cniVersion", version), l.chained(l.Pod))
			r := l.Add(config)
			if len(r.Interfaces) != 2 || r.Interfaces[0].Name != "eth0" || len(r.IPs) != 1 || r.IPs[0].Address.String() != "10.201.0.7/16" ||
				*r.IPs[0].Interface != 0 || len(r.DNS.Nameservers) != 1 {
				t.Errorf("result is %+v, %+v, %+v", r.Interfaces, r.IPs, r.DNS)
			}
			wantEndpoint(t, r, version, "hostlo0", 1, path(l.Pod))
			if version != "0.3.1" {
				l.Succeeds("CHECK", l.WithResult(config, r))
			}
			l.Succeeds("DEL", l.config(without("segment", "key"))) // neither prevResult nor a segment
			l.wantAlone(l.Pod, "eth0")
			l.wantNothing()
		})
	}
}

// A pod without a segment is not changed, and needs nothing of Hostlo.
func TestPassedOn(t *testing.T) {
	l := newLab(t)
	none := edits(without("segment", "key"), with("server", "127.0.0.1:1"), with("credentials", "/nowhere"))
	config := l.config(none, l.chained(l.Pod))
	r := l.Add(config, "TEST_FAIL=probe", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=web-0")
	if len(r.Interfaces) != 1 || r.Interfaces[0].Name != "eth0" || len(r.IPs) != 1 || len(r.DNS.Nameservers) != 1 {
		t.Errorf("result is %+v", r)
	}
	l.Succeeds("CHECK", l.WithResult(config, r))
	l.Succeeds("DEL", l.config(without("segment", "key")))
	l.wantAlone(l.Pod)
	l.wantNothing()
	if a := l.Run("ADD", l.config(none)); a.Code() != 7 || !strings.Contains(a.Message(), "segment is missing") {
		t.Error("alone, without a segment")
	}
}

// The request has the segment of the source with precedence.
func TestRequest(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		edit       func(map[string]any)
		args, want string
	}{
		{with("log", false), "", "shop UNSPECIFIED"},
		{with("mode", "plain"), "", "shop PLAIN"},
		{without("segment", "key"), "IgnoreUnknown=1;UNNEST_SEGMENT=web;UNNEST_KEY=" + theKey, "web UNSPECIFIED"},
		{with("runtimeConfig", map[string]any{"segment": map[string]any{"name": "bank", "key": theKey, "mode": "unicast"}}), "", "bank UNICAST"},
	} {
		l.daemon.requests = nil
		l.daemon.onJoin = refuse(9, "seen") // FailedPrecondition
		if a := l.Run("ADD", l.config(c.edit), "CNI_ARGS="+c.args); a.Code() != 7 {
			t.Errorf("%s: code %d", c.want, a.Code())
		}
		r := l.daemon.requests[0]
		s := r.GetSegment()
		got := s.GetPod() + " " + strings.TrimPrefix(s.GetMode().String(), "SEGMENT_MODE_")
		if got != c.want || s.GetKey() != theKey || s.GetNetwork() != "split" || r.GetContainerId() != "c1" || r.GetInterface() != "eth0" {
			t.Errorf("want %s, the request is %v", c.want, r)
		}
		l.wantNothing()
	}
}

// In a guest with many endpoints, NICs are plugged with other MACs than their fractions'.
func TestOtherMAC(t *testing.T) {
	l := newLab(t)
	l.daemon.otherMAC = true
	config := l.config()
	r := l.Add(config)
	wantEndpoint(t, r, "1.0.0", "eth0", 1, path(l.Pod))
	l.Add(config, l.inWeb()...)
	l.share(7000)
	l.Succeeds("CHECK", l.WithResult(config, r))
	l.Succeeds("DEL", config)
	l.Succeeds("DEL", config, l.inWeb()...)
	l.wantNothing()
	l.daemon.made = 0
	if a := l.Run("ADD", config, "TEST_FAIL=join"); a.Exit == 0 || strings.Contains(a.Message(), "undo") {
		t.Error("ADD that fails")
	}
	l.wantNothing()
}

// A NIC with the alias of another attachment is not used, although it has the MAC.
func TestForeignNIC(t *testing.T) {
	l := newLab(t)
	l.daemon.onJoin = func(*hostdpb.JoinSegmentRequest) error { return nil }
	tap := l.foreign(segment.MAC(1).String(), "unnest:segment:c9/eth0")
	if a := l.Run("ADD", l.config()); a.Code() != 11 || !strings.Contains(a.Message(), "still belongs to unnest:segment:c9/eth0") {
		t.Error("ADD")
	}
	if got := l.Links(l.Guest); !slices.Equal(got, []string{"old"}) {
		t.Errorf("the guest has %v", got)
	}
	l.Must(tap.Close())
	l.wantNothing()
}

// foreign makes a NIC in the guest.
func (l *lab) foreign(mac, alias string) (tap interface{ Close() error }) {
	l.t.Helper()
	l.Must(l.Guest.Do(func(ns.NetNS) error {
		f, err := openTAP("old", mac)
		if err != nil {
			return err
		}
		tap = f
		return netlink.LinkSetAlias(&netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "old"}}, alias)
	}))
	return tap
}

// A pod has one localhost: neither the same attachment nor another one can join twice.
// The first is not affected.
func TestSecondEndpoint(t *testing.T) {
	l := newLab(t)
	config := l.config()
	r := l.Add(config)
	for env, want := range map[string]string{
		"CNI_IFNAME=eth0": "a link of this name exists in the pod",
		"CNI_IFNAME=net1": "the pod is in a segment already",
	} {
		if a := l.Run("ADD", config, env); a.Code() != 999 || !strings.Contains(a.Message(), want) {
			t.Errorf("%s: want an error with %q", env, want)
		}
	}
	if l.daemon.leaves != 0 {
		t.Errorf("%d leaves", l.daemon.leaves)
	}
	l.Succeeds("DEL", config, "CNI_IFNAME=net1")
	l.Succeeds("CHECK", l.WithResult(config, r))
	l.daemon.stop()
	l.Succeeds("DEL", config, "CNI_IFNAME=net1") // also without a daemon
	l.daemon.start()
	l.Succeeds("CHECK", l.WithResult(config, r))
	l.Succeeds("DEL", config)
	l.wantAlone(l.Pod)
	l.wantNothing()
}

func TestAddThatIsKilled(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		tidy   bool // without a DEL
	}{{syscall.SIGTERM, true}, {syscall.SIGKILL, false}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			l := newLab(t)
			joined := make(chan struct{})
			l.daemon.onJoin = func(*hostdpb.JoinSegmentRequest) error { close(joined); return nil }
			l.Interrupt(c.signal, joined, l.config())
			if !c.tidy {
				l.Succeeds("DEL", l.config())
			}
			l.wantNothing()
		})
	}
}

func TestNamespaces(t *testing.T) {
	l := newLab(t)
	for name, p := range map[string]string{"the guest's own": path(l.Guest), "missing": "/nowhere", "no namespace": "/etc/hostname"} {
		if a := l.Run("ADD", l.config(), "CNI_NETNS="+p); a.Code() != 8 {
			t.Errorf("%s: code %d, want 8", name, a.Code())
		}
		l.wantNothing()
	}
	if _, err := loopback.Membership(l.Guest); !errors.Is(err, loopback.ErrNotJoined) {
		t.Errorf("the guest's own localhost: %v", err)
	}
}
