package brfusion_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

func ipam(key string, value any) func(map[string]any) {
	return func(c map[string]any) { c["ipam"].(map[string]any)[key] = value }
}

// plugin puts a script into CNI_PATH. It writes its commands to the file NAME.log.
func (l *lab) plugin(name, script string) {
	l.t.Helper()
	script = "#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND >>" + filepath.Join(l.Dir, name+".log") + "\n" + script
	l.Must(os.WriteFile(filepath.Join(l.Dir, name), []byte(script), 0o755))
}

// commands are the commands that the plugin was called with.
func (l *lab) commands(name string) []string {
	content, err := os.ReadFile(filepath.Join(l.Dir, name+".log"))
	l.Must(err)
	return strings.Fields(string(content))
}

// answers is the script of an IPAM plugin that returns the address.
func answers(address string) string {
	return `[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0","ips":[{"address":"` + address + `"}]}'`
}

// Each step of an ADD fails, some in several ways.
func TestAddThatFailsLeavesNothing(t *testing.T) {
	anyNIC := func(*lab) {}
	old := func(l *lab) { l.daemon.protocol = 1 }
	for _, c := range []struct {
		name   string
		lab    func(*lab)
		config func(map[string]any)
		code   uint
		want   string
		podHas []string // before
	}{
		{"key", anyNIC, with("mtu", 1), 7, "mtu 1", nil},
		{"type of a key", anyNIC, with("mtu", "x"), 6, "mtu", nil},
		{"credentials", anyNIC, with("credentials", "/nowhere"), 7, "/nowhere", nil},
		{"no such IPAM plugin", anyNIC, ipam("type", "nowhere-local"), 7, `ipam.type "nowhere-local"`, nil},
		{"name is taken", func(l *lab) { l.AddToPod("eth0") }, with("mtu", 0), 999, "a link of this name exists in the pod", []string{"eth0"}},

		{"lease", anyNIC, ipam("ranges", []any{}), 999, "lease: get address from host-local: ", nil},
		{"lease without address", func(l *lab) { l.plugin("empty", `[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.0.0"}'`) },
			ipam("type", "empty"), 999, "lease: get address from empty: it returned none", nil},
		{"lease that passes its code on", func(l *lab) {
			l.plugin("full", `[ $CNI_COMMAND != ADD ] || { echo '{"cniVersion":"1.0.0","code":11,"msg":"no address now"}'; exit 1; }`)
		}, ipam("type", "full"), 11, "no address now", nil},

		{"daemon is away", anyNIC, with("server", "127.0.0.1:1"), 11, "; check that unnest hostd runs on the host", nil},
		{"bridge", func(l *lab) { l.daemon.onAttach = refuse(codes.PermissionDenied, "bridge br9 is not yours") },
			with("bridge", "br9"), 7, "attach: host daemon: bridge br9 is not yours (PermissionDenied)", nil},
		{"no slot", func(l *lab) { l.daemon.onAttach = refuse(codes.ResourceExhausted, "no free slot") },
			with("mtu", 0), 11, "no free slot", nil},
		{"VMM is gone", func(l *lab) { l.daemon.onAttach = refuse(codes.Unavailable, "QEMU has ended") },
			with("mtu", 0), 11, "QEMU has ended", nil},
		{"old daemon, its IPAM", old, with("ipam", map[string]any{"type": "hostd"}), 7, `host daemon does not support ipam.type "hostd"; update`, nil},
		{"old daemon, trunk", old, with("mode", "trunk"), 7, `host daemon does not support mode "trunk"; update`, nil},
		{"old daemon, bandwidth", old, with("bandwidth", map[string]any{"ingressRate": 8000, "ingressBurst": 80000}), 7,
			"host daemon does not support bandwidth; update", nil},

		{"appear", func(l *lab) { l.daemon.onAttach = func(*hostdpb.AttachNICRequest) error { return nil } },
			with("wait", "300ms"), 11, "appear: wait for NIC 02:00:00:00:00:01: not found within 300ms; check that the guest's kernel has hot-plug (pciehp or acpiphp) and virtio_net, and that this is the guest node1, whose credentials it has", nil},
		{"trunk does not appear", func(l *lab) { l.daemon.onAttach = func(*hostdpb.AttachNICRequest) error { return nil } },
			func(c map[string]any) { c["mode"], c["wait"] = "trunk", "300ms" }, 11, "appear: wait for NIC 02:00:00:00:00:01", nil},

		{"move", func(l *lab) {
			l.daemon.onAttach = func(*hostdpb.AttachNICRequest) error {
				l.AddToPod("eth0")
				return l.daemon.plug(l.daemon.nics["c1 eth0"])
			}
		}, with("mtu", 0), 999, "move: move NIC 02:00:00:00:00:01 (ens1) into the pod as eth0: a link of this name exists in the pod", []string{"eth0"}},
		{"move of a VLAN", func(l *lab) {
			l.daemon.onAttach = func(*hostdpb.AttachNICRequest) error {
				l.AddToPod("eth0")
				return l.daemon.plug(l.daemon.nics["c1 eth0"])
			}
		}, with("mode", "trunk"), 999, "move: add VLAN 100 of ens1 as eth0", []string{"eth0"}},

		{"dhcp", func(l *lab) { l.plugin("dhcp", "[ $CNI_COMMAND != ADD ]") }, ipam("type", "dhcp"), 999, "dhcp: get address from dhcp", nil},
		{"dhcp address is another's", func(l *lab) {
			l.plugin("dhcp", answers("10.201.0.7/16"))
			l.daemon.onAgain = status.Error(codes.PermissionDenied, "10.201.0.7 is in use")
		}, ipam("type", "dhcp"), 7, "dhcp: host daemon: 10.201.0.7 is in use", nil},

		{"configure", anyNIC, ipam("routes", []any{map[string]any{"dst": "10.99.0.0/16", "gw": "192.0.2.1"}}),
			999, "configure: set route to 10.99.0.0/16: ", nil},
		{"services", func(l *lab) { l.AddToPod("svc0") }, with("services", services), 999, "services: add service path", []string{"svc0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.lab(l)
			config := l.config(c.config)
			a := l.Run("ADD", config)
			if a.Exit != 1 || a.Code() != c.code || !strings.Contains(a.Message(), c.want) {
				t.Errorf("got exit %d, code %d, want 1 and %d, and an error with %q", a.Exit, a.Code(), c.code, c.want)
			}
			if got := l.Links(l.Pod); !slices.Equal(got, c.podHas) {
				t.Errorf("pod has %v, want %v", got, c.podHas)
			}
			if c.name != "daemon is away" { // then a release is pending
				l.wantNothing()
			}
			if strings.HasPrefix(c.name, "dhcp") && !slices.Equal(l.commands("dhcp"), []string{"ADD", "DEL"}) {
				t.Errorf("dhcp was called for %v", l.commands("dhcp"))
			}
		})
	}
}

var services = map[string]any{"ranges": []string{"10.96.0.0/12", "fd00:96::/112"}}

// interruptedAdd ends an ADD some time after it has made the service path.
func (l *lab) interruptedAdd() (log string, err error) {
	var stderr strings.Builder
	cmd := l.Command("ADD", l.config(with("services", services)))
	cmd.Stderr = &stderr
	l.Must(l.Guest.Do(func(ns.NetNS) error { return cmd.Start() }))
	for len(l.Links(l.Pod)) < 2 { // the announcement follows
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	err = cmd.Wait()
	return stderr.String(), err
}

// The last steps fail: the announcement is interrupted while it waits for a carrier,
// and the result cannot be printed.
func TestAddThatFailsInTheEnd(t *testing.T) {
	t.Run("announce", func(t *testing.T) {
		l := newLab(t)
		l.daemon.noCarrier = true
		for try := 1; ; try++ { // on a busy machine the signal arrives earlier or later
			log, err := l.interruptedAdd()
			if err != nil && strings.Contains(log, "announce: ") {
				break
			}
			if try == 10 {
				t.Fatalf("ADD: %v, log %s", err, log)
			}
			l.Succeeds("DEL", l.config(with("services", services)))
		}
		l.wantNothing()
	})
	t.Run("print", func(t *testing.T) {
		l := newLab(t)
		log := l.AddWithoutOutput(l.config(with("services", services)))
		if !strings.Contains(log, "print: ") || !strings.Contains(log, "announce=") {
			t.Errorf("log is %s", log)
		}
		l.wantNothing()
		if got := l.Links(l.Pod); len(got) > 0 {
			t.Errorf("pod has %v", got)
		}
	})
}

// The pending release of the old NIC would release the new one.
func TestAddThatCannotReconcile(t *testing.T) {
	l := newLab(t)
	l.Add(l.config())
	l.daemon.stop()
	if a := l.Run("DEL", l.config()); a.Exit != 0 || len(l.Pending()) != 1 || len(l.leases()) != 0 {
		t.Fatalf("DEL without a daemon: pending %v, leases %v", l.Pending(), l.leases())
	}
	l.InPod("eth0", func(eth0 netlink.Link) error { return netlink.LinkSetName(eth0, "old") })
	l.daemon.start()
	l.daemon.onDetach = status.Error(codes.DeadlineExceeded, "the guest does not give it up")
	if a := l.Run("ADD", l.config()); a.Code() != 11 || !strings.Contains(a.Stdout, "reconcile: release NIC of c1 eth0") {
		t.Errorf("ADD while the old NIC is there: got %s", a.Stdout)
	}
	if len(l.Pending()) != 1 || len(l.leases()) != 0 {
		t.Errorf("pending %v, leases %v", l.Pending(), l.leases())
	}
	l.daemon.onDetach = nil
	l.Add(l.config())
	if len(l.Pending()) != 0 || !slices.Equal(l.Links(l.Pod), []string{"eth0"}) {
		t.Errorf("pending %v, pod has %v", l.Pending(), l.Links(l.Pod))
	}
	l.Run("DEL", l.config())
	l.wantNothing()
}
