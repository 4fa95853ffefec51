package hostlo_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/segment"
)

// Each step of an ADD fails, some in several ways.
func TestAddThatFailsLeavesNothing(t *testing.T) {
	nothing := func(*lab) {}
	joins := func(f func(*hostdpb.JoinSegmentRequest) error) func(*lab) {
		return func(l *lab) { l.daemon.onJoin = f }
	}
	answers := func(f func(*hostdpb.Endpoint)) func(*lab) { return func(l *lab) { l.daemon.onAnswer = f } }
	for _, c := range []struct {
		name   string
		lab    func(*lab)
		config func(map[string]any)
		env    string
		code   uint
		want   string
		podHas []string // before
	}{
		{"key", nothing, with("mode", "loud"), "", 7, `mode "loud"`, nil},
		{"type of a key", nothing, with("segment", 1), "", 6, "segment", nil},
		{"arguments", nothing, with("log", true), "CNI_ARGS=UNNEST_KEY=x", 4, "CNI_ARGS: UNNEST_SEGMENT is missing", nil},
		{"credentials", nothing, with("credentials", "/nowhere"), "", 7, "/nowhere", nil},
		{"kernel", nothing, with("log", true), "TEST_FAIL=probe", 999, "connect: fault of the test", nil},
		{"name is taken", func(l *lab) { l.AddToPod("eth0") }, with("log", true), "", 999, "a link of this name exists in the pod", []string{"eth0"}},
		{"name in a chain is taken", func(l *lab) { l.AddToPod("hostlo0") },
			with("prevResult", map[string]any{"cniVersion": "1.0.0"}), "", 999, "a link of this name exists in the pod", []string{"hostlo0"}},

		{"daemon is away", nothing, with("server", "127.0.0.1:1"), "", 11, "join: host daemon: connection error", nil},
		{"wrong key", joins(refuse(codes.PermissionDenied, "wrong key")), with("log", true), "", 7, "join: host daemon: wrong key", nil},
		{"another mode", joins(refuse(codes.FailedPrecondition, "the mode is plain")), with("log", true), "", 7, "the mode is plain", nil},
		{"full", joins(refuse(codes.ResourceExhausted, "no slot is free")), with("log", true), "", 11, "no slot is free", nil},
		{"on its way out", joins(refuse(codes.Aborted, "another endpoint")), with("log", true), "", 11, "another endpoint", nil},
		{"in another segment", joins(refuse(codes.AlreadyExists, "it is in pod bank")), with("log", true), "", 999, "it is in pod bank", nil},
		{"VMM is gone", joins(refuse(codes.Unavailable, "QEMU has ended")), with("log", true), "", 11, "QEMU has ended", nil},
		{"old daemon", func(l *lab) { l.daemon.protocol = 2 }, with("log", true), "", 7, "host daemon does not support segments; update", nil},
		{"no fraction", answers(func(e *hostdpb.Endpoint) { e.Fraction = 257 }), with("log", true), "", 999, "fraction 257", nil},
		{"no member", answers(func(e *hostdpb.Endpoint) { e.Members = 4 }), with("log", true), "", 999, "members 0x4 without fraction 1", nil},
		{"no MAC", answers(func(e *hostdpb.Endpoint) { e.Mac = "" }), with("log", true), "", 999, "read the host daemon's answer", nil},
		{"MAC of another", answers(func(e *hostdpb.Endpoint) { e.SegmentMac = "02:68:35:00:00:02" }), with("log", true), "", 999, "want 02:68:35:00:00:01", nil},

		{"appear", joins(func(*hostdpb.JoinSegmentRequest) error { return nil }), with("wait", "300ms"), "", 11,
			"appear: wait for NIC 02:68:35:00:00:01: not found within 300ms; check that", nil},

		{"move", func(l *lab) {
			l.daemon.onJoin = func(*hostdpb.JoinSegmentRequest) error {
				l.AddToPod("eth0")
				return l.daemon.plug(l.daemon.endpoints["c1 eth0"])
			}
		}, with("log", true), "", 999, "move: move NIC 02:68:35:00:00:01 (ens1) into the pod as eth0: a link of this name exists in the pod", []string{"eth0"}},

		{"connect", nothing, with("log", true), "TEST_FAIL=join", 999, "connect: fault of the test", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.lab(l)
			a := l.Run("ADD", l.config(c.config), c.env)
			if a.Exit != 1 || a.Code() != c.code || !strings.Contains(a.Message(), c.want) || strings.Contains(a.Message(), "undo") {
				t.Errorf("got exit %d, code %d, want 1 and %d, and an error with %q", a.Exit, a.Code(), c.code, c.want)
			}
			l.wantAlone(l.Pod, c.podHas...)
			if pending := l.Pending(); c.code == 11 && len(pending) == 1 { // the daemon did not answer
				l.Must(errors.Join(os.Remove(pending[0]), os.Remove(filepath.Join(l.Dir, "run", "runtimes", "endpoint", "c1:eth0"))))
			}
			l.wantNothing()
		})
	}
}

// The last step fails: the result cannot be printed. The rollback goes on when one
// step of it fails.
func TestAddThatFailsInTheEnd(t *testing.T) {
	for fail, want := range map[string][]string{"": {"print: ", "connect="}, "leave": {"print: ", "undo connect: fault of the test"}} {
		l := newLab(t)
		log := l.AddWithoutOutput(l.config(), "TEST_FAIL="+fail)
		for _, w := range want {
			if !strings.Contains(log, w) {
				t.Errorf("want %q, log is %s", w, log)
			}
		}
		if l.wantNothing(); fail == "" {
			l.wantAlone(l.Pod)
		}
	}
}

// The NIC cannot get its fraction's MAC: its parent has the MAC already.
func TestAddWhoseMACIsTaken(t *testing.T) {
	l := newLab(t)
	l.daemon.otherMAC = true
	l.daemon.onJoin = func(*hostdpb.JoinSegmentRequest) error {
		e := l.daemon.endpoints["c1 eth0"]
		taken := segment.MAC(1)
		own, err := net.ParseMAC(e.GetMac())
		if err != nil {
			return err
		}
		parent := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "parent", HardwareAddr: taken[:]}}
		e.unplug = func() { _ = l.Guest.Do(func(ns.NetNS) error { return netlink.LinkDel(parent) }) } // wantNothing reports an error
		return l.Guest.Do(func(ns.NetNS) error {
			if err := netlink.LinkAdd(parent); err != nil {
				return err
			}
			a := netlink.LinkAttrs{Name: "ens1", HardwareAddr: own, ParentIndex: parent.Index, TxQLen: -1}
			return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: a, Mode: netlink.MACVLAN_MODE_BRIDGE})
		})
	}
	a := l.Run("ADD", l.config())
	if a.Exit != 1 || !strings.Contains(a.Message(), "address: set MAC 02:68:35:00:00:01 of eth0") || strings.Contains(a.Message(), "undo") {
		t.Error("ADD")
	}
	l.wantAlone(l.Pod)
	l.wantNothing()
}

// The pending release of the old endpoint would release the new one.
func TestAddThatCannotReconcile(t *testing.T) {
	l := newLab(t)
	l.Add(l.config())
	l.daemon.stop()
	l.Succeeds("DEL", l.config())
	if len(l.Pending()) != 1 {
		t.Fatalf("DEL without a daemon: pending %v", l.Pending())
	}
	l.wantAlone(l.Pod)
	l.daemon.start()
	l.daemon.onLeave = status.Error(codes.DeadlineExceeded, "the guest does not give it up")
	if a := l.Run("ADD", l.config()); a.Code() != 11 || !strings.Contains(a.Stdout, "reconcile: release endpoint of c1 eth0") {
		t.Errorf("ADD while the old endpoint is there: got %s", a.Stdout)
	}
	if len(l.Pending()) != 1 {
		t.Errorf("pending %v", l.Pending())
	}
	l.daemon.onLeave = nil
	l.Add(l.config())
	if len(l.Pending()) != 0 || !slices.Equal(l.Links(l.Pod), []string{"eth0"}) {
		t.Errorf("pending %v, pod has %v", l.Pending(), l.Links(l.Pod))
	}
	l.Succeeds("DEL", l.config())
	l.wantNothing()
}
