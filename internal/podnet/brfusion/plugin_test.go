package brfusion_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/hostd/hostdpb"
)

// inPod runs f on the pod's eth0.
func (l *lab) inPod(f func(netlink.Link) error) {
	l.t.Helper()
	l.check(l.pod.Do(func(ns.NetNS) error {
		eth0, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return f(eth0)
	}))
}

func TestAddCheckDel(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0"} {
		t.Run(version, func(t *testing.T) {
			l := newLab(t)
			l.daemon.delay = 200 * time.Millisecond
			arp := l.frames()
			config := l.config(with("cniVersion", version))
			r := l.add(config)

			if len(r.Interfaces) != 1 || r.Interfaces[0].Name != "eth0" || r.Interfaces[0].Mac != "02:00:00:00:00:01" ||
				r.Interfaces[0].Sandbox != l.podPath() || len(r.IPs) != 1 || r.IPs[0].Address.String() != "10.201.0.7/16" {
				t.Errorf("result is %+v, %+v", r.Interfaces, r.IPs)
			}
			l.inPod(func(eth0 netlink.Link) error {
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
				if a := l.run("DEL", config); a.exit != 0 || a.stdout != "" {
					t.Errorf("DEL was refused")
				}
				l.wantNothing()
			}
			if links := l.links(l.pod); len(links) > 0 {
				t.Errorf("pod still has %v", links)
			}
		})
	}
}

// checkPod runs CHECK on a pod that is right, and then spoilt in several ways.
func (l *lab) checkPod(config []byte, result *types100.Result) {
	l.t.Helper()
	var c map[string]any
	l.check(json.Unmarshal(config, &c))
	if a := l.run("CHECK", config); a.code() != 7 || !strings.Contains(a.stdout, "prevResult") {
		l.t.Errorf("CHECK without prevResult: got %s", a.stdout)
	}
	old, err := result.GetAsVersion(c["cniVersion"].(string))
	l.check(err)
	c["prevResult"] = old
	config, err = json.Marshal(c)
	l.check(err)
	if a := l.run("CHECK", config); a.exit != 0 {
		l.t.Error("CHECK was refused")
	}
	if a := l.run("CHECK", config, "CNI_IFNAME=eth1"); !strings.Contains(a.stdout, "prevResult has no such interface") {
		l.t.Errorf("CHECK of eth1: got %s", a.stdout)
	}
	l.inPod(func(eth0 netlink.Link) error { return netlink.LinkSetDown(eth0) })
	if a := l.run("CHECK", config); a.exit == 0 || !strings.Contains(a.stdout, "is down") {
		l.t.Errorf("CHECK of a link that is down: got %s", a.stdout)
	}
	l.inPod(func(eth0 netlink.Link) error {
		addr, err := netlink.ParseAddr("10.201.0.7/16")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(eth0); err != nil {
			return err
		}
		return netlink.AddrDel(eth0, addr)
	})
	if a := l.run("CHECK", config); a.exit == 0 || !strings.Contains(a.stdout, "lacks the address 10.201.0.7/16") {
		l.t.Errorf("CHECK of a link without its address: got %s", a.stdout)
	}
	l.inPod(func(eth0 netlink.Link) error {
		return netlink.LinkSetHardwareAddr(eth0, net.HardwareAddr{2, 0, 0, 0, 0, 9})
	})
	if a := l.run("CHECK", config); a.exit == 0 || !strings.Contains(a.stdout, "02:00:00:00:00:09, want 02:00:00:00:00:01") {
		l.t.Errorf("CHECK of another NIC: got %s", a.stdout)
	}
}

func bridge(name string) netlink.Link {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return &netlink.Bridge{LinkAttrs: a}
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
			cmd := l.command("ADD", l.config())
			l.check(l.guest.Do(func(ns.NetNS) error { return cmd.Start() }))
			<-attached
			l.check(cmd.Process.Signal(c.signal))
			if err := cmd.Wait(); err == nil {
				t.Error("ADD succeeded")
			}
			if !c.tidy {
				if a := l.run("DEL", l.config()); a.exit != 0 {
					t.Error("DEL was refused")
				}
			}
			l.wantNothing()
		})
	}
}

// A second ADD for a pod that has its NIC must not take that away.
func TestAddTwice(t *testing.T) {
	l := newLab(t)
	l.add(l.config())
	if a := l.run("ADD", l.config()); a.exit == 0 || !strings.Contains(a.stdout, "a link of this name exists in the pod") {
		t.Errorf("second ADD: got %s", a.stdout)
	}
	if l.daemon.detaches != 0 || !slices.Equal(l.links(l.pod), []string{"eth0"}) || len(l.leases()) != 1 {
		t.Errorf("second ADD spoilt the pod: %d detaches, links %v, leases %v", l.daemon.detaches, l.links(l.pod), l.leases())
	}
	l.run("DEL", l.config())
	l.wantNothing()
}

func TestDelWithoutNamespace(t *testing.T) {
	for name, env := range map[string]string{"gone": "", "path is stale": "CNI_NETNS=/var/run/netns/none", "unset": "CNI_NETNS="} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.add(l.config())
			l.check(l.pod.Close()) // the last handle: the namespace ends, and the veth with it
			for range 2 {
				if a := l.run("DEL", l.config(), env); a.exit != 0 {
					t.Error("DEL was refused")
				}
				l.wantNothing()
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	l := newLab(t)
	for name, c := range map[string]struct{ path, want string }{
		"the guest's own": {fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), l.guest.Fd()), "is the guest's own"},
		"missing":         {"/nowhere", "/nowhere"},
		"no namespace":    {"/etc/hostname", "/etc/hostname"},
	} {
		if a := l.run("ADD", l.config(), "CNI_NETNS="+c.path); a.code() != 8 || !strings.Contains(a.stdout, c.want) {
			t.Errorf("%s: got %s, want code 8 and %q", name, a.stdout, c.want)
		}
		l.wantNothing()
	}
}

// Debian's host-local does not speak 1.1.0 yet.
func TestVersion110(t *testing.T) {
	l := newLab(t)
	script := "#!/bin/sh\ncat >/dev/null\n" +
		`[ $CNI_COMMAND != ADD ] || echo '{"cniVersion":"1.1.0","ips":[{"address":"10.201.0.9/16"},{"address":"fd00::9/64","gateway":"fd00::1"}]}'`
	l.check(os.WriteFile(filepath.Join(l.dir, "two-local"), []byte(script), 0o755))
	config := l.config(with("cniVersion", "1.1.0"), with("mtu", 1300), with("log", false),
		with("ipam", map[string]any{"type": "two-local"}), with("dns", map[string]any{"nameservers": []string{"10.201.0.1"}}))
	r := l.add(config)
	if len(r.Interfaces) != 1 || r.Interfaces[0].Mtu != 1300 || len(r.IPs) != 2 || len(r.DNS.Nameservers) != 1 {
		t.Errorf("result is %+v", r)
	}
	l.inPod(func(eth0 netlink.Link) error {
		addrs, err := netlink.AddrList(eth0, netlink.FAMILY_V6)
		if len(addrs) != 2 { // and the link-local one
			t.Errorf("IPv6 addresses are %v", addrs)
		}
		return err
	})
	if a := l.run("DEL", config); a.exit != 0 || a.stderr != "" {
		t.Error("DEL was refused")
	}
	l.wantNothing()
}

func TestWaitsForNoticeOfLateNIC(t *testing.T) {
	l := newLab(t)
	l.daemon.delay = 3 * time.Second
	begin := time.Now()
	r := l.add(l.config())
	if took := time.Since(begin); took < 3*time.Second || took > 8*time.Second || r == nil {
		t.Errorf("ADD took %v for a NIC that appears after 3 s", took)
	}
	l.run("DEL", l.config())
	l.wantNothing()
}
