package brfusion_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

func TestAddCheckDel(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0"} {
		t.Run(version, func(t *testing.T) {
			l := newLab(t)
			l.daemon.delay = 200 * time.Millisecond
			arp := l.frames()
			config := l.config(with("cniVersion", version))
			r := l.Add(config)

			if len(r.Interfaces) != 1 || r.Interfaces[0].Name != "eth0" || r.Interfaces[0].Mac != "02:00:00:00:00:01" ||
				r.Interfaces[0].Sandbox != path(l.Pod) || len(r.IPs) != 1 || r.IPs[0].Address.String() != "10.201.0.7/16" {
				t.Errorf("result is %+v, %+v", r.Interfaces, r.IPs)
			}
			l.InPod("eth0", func(eth0 netlink.Link) error {
				if a := eth0.Attrs(); a.MTU != 1400 || a.Flags&net.FlagUp == 0 || a.HardwareAddr.String() != "02:00:00:00:00:01" {
					t.Errorf("eth0 has %+v", a)
				}
				routes, err := netlink.RouteGet(net.IPv4(8, 8, 8, 8))
				if err == nil && !routes[0].Gw.Equal(net.IPv4(10, 201, 0, 1)) {
					t.Errorf("default route is %v", routes[0])
				}
				return err
			})
			want := []byte{0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 201, 0, 7, 0, 0, 0, 0, 0, 0, 10, 201, 0, 7}
			if got := arp(); !bytes.Equal(got, want) {
				t.Errorf("gratuitous ARP is % x, want % x", got, want)
			}
			if version != "0.3.1" {
				l.checkPod(config, r)
			}
			for range 2 {
				l.Succeeds("DEL", config)
				l.wantNothing()
			}
			if links := l.Links(l.Pod); len(links) > 0 {
				t.Errorf("pod still has %v", links)
			}
		})
	}
}

// checkPod runs CHECK on an unchanged pod, and then changes it in several ways.
func (l *lab) checkPod(config []byte, result *types100.Result) {
	l.t.Helper()
	if a := l.Run("CHECK", config); a.Code() != 7 || !strings.Contains(a.Stdout, "prevResult") {
		l.t.Errorf("CHECK without prevResult: got %s", a.Stdout)
	}
	config = l.WithResult(config, result)
	l.Succeeds("CHECK", config)
	if a := l.Run("CHECK", config, "CNI_IFNAME=eth1"); !strings.Contains(a.Stdout, "prevResult has no such interface") {
		l.t.Errorf("CHECK of eth1: got %s", a.Stdout)
	}
	l.InPod("eth0", func(eth0 netlink.Link) error { return netlink.LinkSetDown(eth0) })
	if a := l.Run("CHECK", config); a.Exit == 0 || !strings.Contains(a.Stdout, "is down") {
		l.t.Errorf("CHECK of a link that is down: got %s", a.Stdout)
	}
	l.InPod("eth0", func(eth0 netlink.Link) error {
		addr, err := netlink.ParseAddr("10.201.0.7/16")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(eth0); err != nil {
			return err
		}
		return netlink.AddrDel(eth0, addr)
	})
	if a := l.Run("CHECK", config); a.Exit == 0 || !strings.Contains(a.Stdout, "lacks the address 10.201.0.7/16") {
		l.t.Errorf("CHECK of a link without its address: got %s", a.Stdout)
	}
	l.InPod("eth0", func(eth0 netlink.Link) error {
		return netlink.LinkSetHardwareAddr(eth0, net.HardwareAddr{2, 0, 0, 0, 0, 9})
	})
	if a := l.Run("CHECK", config); a.Exit == 0 || !strings.Contains(a.Stdout, "02:00:00:00:00:09, want 02:00:00:00:00:01") {
		l.t.Errorf("CHECK of another NIC: got %s", a.Stdout)
	}
}

func TestAddThatIsKilled(t *testing.T) {
	for _, c := range []struct {
		signal syscall.Signal
		tidy   bool // without a DEL
	}{{syscall.SIGTERM, true}, {syscall.SIGKILL, false}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			l := newLab(t)
			attached := make(chan struct{})
			l.daemon.onAttach = func(*hostdpb.AttachNICRequest) error { close(attached); return nil }
			l.Interrupt(c.signal, attached, l.config())
			if !c.tidy {
				l.Succeeds("DEL", l.config())
			}
			l.wantNothing()
		})
	}
}

// A second ADD for a pod must not release its NIC.
func TestAddTwice(t *testing.T) {
	l := newLab(t)
	l.Add(l.config())
	if a := l.Run("ADD", l.config()); a.Exit == 0 || !strings.Contains(a.Stdout, "a link of this name exists in the pod") {
		t.Errorf("second ADD: got %s", a.Stdout)
	}
	if l.daemon.detaches != 0 || !slices.Equal(l.Links(l.Pod), []string{"eth0"}) || len(l.leases()) != 1 {
		t.Errorf("second ADD changed the pod: %d detaches, links %v, leases %v", l.daemon.detaches, l.Links(l.Pod), l.leases())
	}
	l.Run("DEL", l.config())
	l.wantNothing()
}

func TestDelWithoutNamespace(t *testing.T) {
	for name, env := range map[string]string{"gone": "", "path is stale": "CNI_NETNS=/var/run/netns/none", "unset": "CNI_NETNS="} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config())
			l.Must(l.Pod.Close()) // the last handle: the namespace ends, and the veth with it
			for range 2 {
				l.Succeeds("DEL", l.config(), env)
				l.wantNothing()
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]struct{ path, want string }{
		"the guest's own": {path(l.Guest), "is the guest's own"},
		"missing":         {"/nowhere", "/nowhere"},
		"no namespace":    {"/etc/hostname", "/etc/hostname"},
	} {
		if a := l.Run("ADD", l.config(), "CNI_NETNS="+c.path); a.Code() != 8 || !strings.Contains(a.Stdout, c.want) {
			t.Errorf("%s: got %s, want code 8 and %q", name, a.Stdout, c.want)
		}
		l.wantNothing()
	}
}

// Debian's host-local does not support 1.1.0 yet.
func TestVersion110(t *testing.T) {
	l := newLab(t)
	l.plugin("two-local", `[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.1.0","ips":[{"address":"10.201.0.9/16"},{"address":"fd00::9/64","gateway":"fd00::1"}]}'`)
	config := l.config(with("cniVersion", "1.1.0"), with("mtu", 1300), with("log", false),
		with("ipam", map[string]any{"type": "two-local"}), with("dns", map[string]any{"nameservers": []string{"10.201.0.1"}}))
	r := l.Add(config)
	if len(r.Interfaces) != 1 || r.Interfaces[0].Mtu != 1300 || len(r.IPs) != 2 || len(r.DNS.Nameservers) != 1 {
		t.Errorf("result is %+v", r)
	}
	l.InPod("eth0", func(eth0 netlink.Link) error {
		addrs, err := netlink.AddrList(eth0, netlink.FAMILY_V6)
		if len(addrs) != 2 { // and the link-local one
			t.Errorf("IPv6 addresses are %v", addrs)
		}
		return err
	})
	if a := l.Run("DEL", config); a.Exit != 0 || a.Stderr != "" {
		t.Error("DEL failed")
	}
	l.wantNothing()
}

func TestLateNIC(t *testing.T) {
	l := newLab(t)
	l.daemon.delay = 3 * time.Second
	begin := time.Now()
	r := l.Add(l.config())
	if took := time.Since(begin); took < 3*time.Second || r == nil {
		t.Errorf("ADD took %v for a NIC that appears after 3 s", took)
	}
	l.Run("DEL", l.config())
	l.wantNothing()
}

// An IPAM plugin goes on when the plugin that has called it is killed. The DEL that follows waits for it, and
// gives its lease back.
func TestLeaseOfKilledADD(t *testing.T) {
	l := newLab(t)
	file := func(name string) string { return filepath.Join(l.Dir, name) }
	exists := func(name string) bool { _, err := os.Stat(file(name)); return err == nil }
	l.plugin("some", fmt.Sprintf(`cd %s; case $CNI_COMMAND in
ADD) touch begun; while [ ! -e proceed ]; do sleep 0.01; done; touch lease; touch ended; echo '{"cniVersion":"1.0.0","ips":[{"address":"10.201.0.9/16"}]}';;
DEL) rm -f lease;;
esac`, l.Dir))
	config := l.config(ipam("type", "some"))
	begun := make(chan struct{})
	go func() {
		for !exists("begun") {
			time.Sleep(10 * time.Millisecond)
		}
		close(begun)
	}()
	l.Interrupt(syscall.SIGKILL, begun, config)
	del := l.Command("DEL", config)
	l.Must(l.Guest.Do(func(ns.NetNS) error { return del.Start() }))
	ended := make(chan error, 1)
	go func() { ended <- del.Wait() }()
	waits := func() bool {
		locks, err := os.ReadFile("/proc/locks")
		l.Must(err)
		return regexp.MustCompile(fmt.Sprintf(`-> FLOCK +ADVISORY +WRITE %d `, del.Process.Pid)).Match(locks)
	}
	early := false // it did not wait
	for begin := time.Now(); !early && !waits(); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			early = true
		default:
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("DEL neither waits nor ends")
		}
	}
	l.Must(os.WriteFile(file("proceed"), nil, 0o600))
	l.Must(<-ended)
	for begin := time.Now(); !exists("ended") && time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
	}
	if exists("lease") || early {
		t.Errorf("after the DEL: lease left %t, DEL came before the IPAM plugin's end %t", exists("lease"), early)
	}
	l.wantNothing()
}
