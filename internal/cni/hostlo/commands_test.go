package hostlo_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/hostapi/segment"
)

// DEL without the daemon moves the endpoint out of the pod and records the release.
// The next command that reaches the daemon does it.
func TestDelWithoutDaemon(t *testing.T) {
	newer := with("cniVersion", "1.1.0")
	for _, command := range []string{"ADD", "DEL", "GC", "STATUS"} {
		t.Run(command, func(t *testing.T) {
			l := newLab(t)
			config := l.config(newer)
			r := l.Add(config)
			l.daemon.stop()
			begin := time.Now()
			for range 2 {
				l.Succeeds("DEL", l.WithResult(config, r))
			}
			if time.Since(begin) > time.Minute || len(l.Pending()) != 1 || len(l.daemon.all()) != 1 {
				t.Errorf("took %v, pending %v, endpoints %v", time.Since(begin), l.Pending(), l.daemon.all())
			}
			l.wantAlone(l.Pod)
			if a := l.Run("STATUS", config); a.Code() != 50 || len(l.Pending()) != 1 {
				t.Errorf("STATUS without a daemon: code %d, pending %v", a.Code(), l.Pending())
			}
			l.daemon.start()
			if a := l.Run(command, config, l.inWeb()...); a.Exit != 0 {
				t.Errorf("%s: code %d", command, a.Code())
			}
			if left := l.daemon.all(); len(l.Pending()) > 0 || len(left) > 0 && left[0] == "c1 eth0" {
				t.Errorf("pending %v, endpoints %v", l.Pending(), left)
			}
			l.Succeeds("DEL", config, l.inWeb()...)
			l.wantNothing()
		})
	}
}

// A host that does not answer; and no credentials.
func TestUnreachableDaemon(t *testing.T) {
	l := newLab(t)
	for name, edit := range map[string]func(map[string]any){
		"silent":         with("server", l.Listen(l.Guest, "127.0.0.1:0").Addr().String()),
		"no credentials": with("credentials", "/nowhere"),
	} {
		config := l.config()
		l.Add(config)
		begin := time.Now()
		l.Succeeds("DEL", l.config(edit))
		if time.Since(begin) > time.Minute || len(l.Pending()) != 1 {
			t.Errorf("%s: DEL took %v, pending %v", name, time.Since(begin), l.Pending())
		}
		l.wantAlone(l.Pod)
		for _, pending := range l.Pending() {
			l.Must(os.Remove(pending))
		}
		l.Succeeds("DEL", config)
		l.wantNothing()
	}
}

func TestDelWithoutNamespace(t *testing.T) {
	for name, env := range map[string]string{"gone": "", "path is stale": "CNI_NETNS=/var/run/netns/none", "unset": "CNI_NETNS="} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config())
			l.Must(l.Pod.Close()) // the last handle: the namespace ends
			for range 2 {
				l.Succeeds("DEL", l.config(), env)
				l.wantNothing()
			}
		})
	}
}

// The endpoint has been unplugged, renamed or moved.
func TestDelWithoutEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*lab)
		left   []string
	}{
		"unplugged": {func(l *lab) { l.daemon.endpoints["c1 eth0"].unplug() }, nil},
		"renamed": {func(l *lab) {
			l.InPod("eth0", func(nic netlink.Link) error { return netlink.LinkSetName(nic, "other") })
		}, nil},
		"taken out": {func(l *lab) {
			l.InPod("eth0", func(nic netlink.Link) error { return netlink.LinkSetNsFd(nic, int(l.web.Fd())) })
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config())
			c.change(l)
			l.Succeeds("DEL", l.config())
			l.wantAlone(l.Pod, c.left...)
			l.wantNothing()
		})
	}
}

// The endpoint is released even when lo cannot leave the segment.
func TestDelThatFails(t *testing.T) {
	l := newLab(t)
	l.Add(l.config())
	if a := l.Run("DEL", l.config(), "TEST_FAIL=leave"); a.Code() != 999 || !strings.Contains(a.Message(), "fault of the test") {
		t.Error("DEL")
	}
	if endpoints := l.daemon.all(); len(endpoints) > 0 {
		t.Errorf("the daemon still has %v", endpoints)
	}
	l.Succeeds("DEL", l.config())
	l.wantAlone(l.Pod)
	l.wantNothing()

	l.Add(l.config())
	l.daemon.onLeave = status.Error(codes.DeadlineExceeded, "the guest does not give it up")
	if a := l.Run("DEL", l.config()); a.Code() != 11 || !strings.Contains(a.Message(), "does not give it up") {
		t.Error("DEL that the daemon refuses")
	}
	l.daemon.onLeave = nil
	l.Succeeds("DEL", l.config())
	l.wantAlone(l.Pod)
	l.wantNothing()
}

func TestCheck(t *testing.T) {
	l := newLab(t)
	config := l.config()
	r := l.Add(config)
	l.Add(config, l.inWeb()...)
	checked := l.WithResult(config, r)
	check := func(want string) {
		t.Helper()
		if a := l.Run("CHECK", checked); (a.Exit == 0) != (want == "") || !strings.Contains(a.Message(), want) {
			t.Errorf("CHECK: want %q", want)
		}
	}
	check("")
	if a := l.Run("CHECK", config); a.Code() != 7 || !strings.Contains(a.Message(), "prevResult is missing") {
		t.Error("CHECK without prevResult")
	}
	if a := l.Run("CHECK", checked, "CNI_NETNS="+path(l.web)); !strings.Contains(a.Message(), "prevResult has no endpoint") {
		t.Error("CHECK of another pod")
	}

	l.InPod("lo", netlink.LinkSetDown)
	check("lo is down")
	l.InPod("lo", netlink.LinkSetUp)
	l.InPod("eth0", netlink.LinkSetDown)
	check("want it up")
	l.InPod("eth0", netlink.LinkSetUp)
	l.setSetting("route_localnet", "0")
	check("route_localnet is 0")
	l.setSetting("route_localnet", "1")
	l.InPod("eth0", func(nic netlink.Link) error { return netlink.LinkSetAlias(nic, "unnest:segment:c7/eth0") })
	check("the pod has no endpoint of this attachment")
	l.InPod("eth0", func(nic netlink.Link) error { return netlink.LinkSetAlias(nic, "unnest:segment:c1/eth0") })
	check("")

	e := l.daemon.endpoints["c1 eth0"]
	l.daemon.change(func() { e.Fraction = 3 })
	check("the endpoint is fraction 3: want 1")
	l.daemon.change(func() { e.Fraction, e.Pod = 1, "bank" })
	check("it is in segment bank")
	l.daemon.change(func() {
		e.Pod, l.daemon.silent = "shop", true
		e.segment.generation++
	})
	check("the host's announcements do not arrive")
	l.daemon.change(func() { l.daemon.silent = false })
	check("")
	l.daemon.change(func() { delete(l.daemon.endpoints, "c1 eth0") })
	check("no such endpoint")
	l.daemon.stop()
	check("") // the pod's localhost works without the daemon
	l.daemon.endpoints["c1 eth0"] = e
	l.daemon.start()

	l.Must(loopback.Leave(l.Pod, "eth0"))
	check(loopback.ErrNotJoined.Error())
	l.Succeeds("DEL", config)
	check("the pod has no endpoint of this attachment")
	l.Succeeds("DEL", config, l.inWeb()...)
	l.wantNothing()
}

func (l *lab) setSetting(name, value string) {
	l.t.Helper()
	l.Must(l.Pod.Do(func(ns.NetNS) error {
		return os.WriteFile("/proc/sys/net/ipv4/conf/lo/"+name, []byte(value), 0)
	}))
}

func TestGC(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		left bool
	}{
		{"runtime does not say", with("log", false), true},
		{"valid", cnitest.Valid("c1"), true},
		{"another is valid", cnitest.Valid("c2"), false},
		{"none is valid", cnitest.Valid(), false},
		{"none is valid, as null", with("cni.dev/valid-attachments", nil), false},
		{"no segment is named", edits(cnitest.Valid(), without("segment", "key")), false},
		{"another network", edits(cnitest.Valid(), with("name", "other")), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			newer := with("cniVersion", "1.1.0")
			l.Add(l.config(newer))
			l.Succeeds("GC", l.config(newer, c.edit))
			if got := len(l.daemon.all()) == 1; got != c.left {
				t.Errorf("the endpoint is left: %v, want %v", got, c.left)
			}
			l.Succeeds("DEL", l.config())
			l.wantAlone(l.Pod)
			l.wantNothing()
		})
	}
	l := newLab(t)
	for want, edit := range map[string]func(map[string]any){
		"collect endpoints: host daemon: ": edits(cnitest.Valid(), with("server", "127.0.0.1:1")),
		"/nowhere":                         edits(cnitest.Valid(), with("credentials", "/nowhere")),
	} {
		if a := l.Run("GC", l.config(with("cniVersion", "1.1.0"), edit)); a.Exit == 0 || !strings.Contains(a.Message(), want) {
			t.Errorf("GC: want an error with %q", want)
		}
	}
}

// A runtime's GC leaves what another runtime of the guest has made for a network of the same name. Its own
// GC collects it, and so does each that is called for an endpoint of an earlier plugin.
func TestAttackGCOfAnotherRuntime(t *testing.T) {
	l := newLab(t)
	newer := with("cniVersion", "1.1.0")
	l.Add(l.config(newer))
	if a := l.RunByAnother("GC", l.config(newer, cnitest.Valid())); a.Exit != 0 || len(l.daemon.all()) != 1 {
		t.Errorf("GC of the other runtime: %s, endpoints %v", a.Stdout, l.daemon.all())
	}
	l.Succeeds("GC", l.config(newer, cnitest.Valid()))
	l.Succeeds("DEL", l.config())
	l.wantNothing()
	l.Add(l.config(newer))
	l.Must(os.RemoveAll(filepath.Join(l.Dir, "run", "runtimes"))) // of an earlier plugin
	l.Succeeds("GC", l.config(newer, cnitest.Valid()))
	l.Succeeds("DEL", l.config())
	l.wantNothing()
}

func TestStatus(t *testing.T) {
	none := without("segment", "key")
	for _, c := range []struct {
		name string
		lab  func(*lab)
		edit func(map[string]any)
		env  string
		code uint
		want string
	}{
		{"well", func(*lab) {}, with("log", true), "", 0, ""},
		{"kernel", func(*lab) {}, with("log", true), "TEST_FAIL=probe", 50, "fault of the test"},
		{"no daemon", func(*lab) {}, with("server", "127.0.0.1:1"), "", 50, "connection refused"},
		{"credentials", func(*lab) {}, with("credentials", "/nowhere"), "", 50, "/nowhere"},
		{"limited", func(l *lab) { l.daemon.limited = "no free slot" }, with("log", true), "", 50, "no free slot"},
		{"limited, but most pods need none", func(l *lab) { l.daemon.limited = "no free slot" }, none, "", 0, ""},
		{"refused", func(l *lab) { l.daemon.onStatus = status.Error(codes.Unauthenticated, "not this guest") }, none, "", 50, "not this guest"},
		{"no VMM", func(l *lab) { l.daemon.onStatus = status.Error(codes.Unavailable, "QEMU does not answer") }, none, "", 51, "QEMU"},
		{"old daemon", func(l *lab) { l.daemon.protocol = 2 }, none, "", 50, "does not support segments"},
		{"no segments", func(l *lab) { l.daemon.noModes = true }, none, "", 50, "may not have segments"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.lab(l)
			a := l.Run("STATUS", l.config(with("cniVersion", "1.1.0"), c.edit), c.env)
			if a.Code() != c.code || (a.Exit == 0) != (c.code == 0) || !strings.Contains(a.Message(), c.want) {
				t.Errorf("code %d, want %d and %q", a.Code(), c.code, c.want)
			}
		})
	}
}

// A container gets another network namespace.
func TestNewNamespaceOfSameContainer(t *testing.T) {
	l := newLab(t)
	config := l.config()
	l.Add(config)
	l.Must(l.Pod.Close())
	l.Succeeds("DEL", config, "CNI_NETNS=")
	r := l.Add(config, "CNI_NETNS="+path(l.web))
	wantEndpoint(t, r, "1.0.0", "eth0", 1, path(l.web))
	if err := l.connect(l.web, "127.0.0.1:7999"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port without a listener: %v", err)
	}
	if m, err := loopback.Membership(l.web); err != nil || m.Members != segment.Of(1) {
		t.Errorf("members %s, %v", m.Members, err)
	}
	l.Succeeds("DEL", config, "CNI_NETNS="+path(l.web))
	l.wantAlone(l.web)
	l.Pod = l.web
	l.wantNothing()
}

// A mistake that has come into the configuration after the ADD keeps no endpoint.
func TestDelWithMistake(t *testing.T) {
	for name, edit := range map[string]func(map[string]any){
		"key is missing":      without("key"),
		"mode":                with("mode", "multicast"),
		"name of the segment": with("segment", 7),
		"interface":           with("interface", "a/b"),
		"wait":                with("wait", "soon"),
		"prevResult":          with("prevResult", "none"),
		"annotations":         with("runtimeConfig", map[string]any{"io.kubernetes.cri.pod-annotations": 1}),
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config())
			l.Succeeds("DEL", l.config(edit), "CNI_ARGS=no pair")
			l.wantAlone(l.Pod)
			l.wantNothing()
		})
	}
}
