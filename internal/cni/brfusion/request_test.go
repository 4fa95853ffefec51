package brfusion_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func runtimeConfig(capability string, value any) func(map[string]any) {
	return with("runtimeConfig", map[string]any{capability: value})
}

// What brfusion cannot give is refused before a NIC or an address is requested. A DEL
// with the same request succeeds.
func TestRequestsThatAreRefused(t *testing.T) {
	hostd := with("ipam", map[string]any{"type": "hostd"})
	ports := runtimeConfig("portMappings", []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}})
	none := with("log", true)
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		args string
		code uint
		want string
	}{
		{"published port", ports, "", 7, `publish host port 8080 (runtimeConfig.portMappings): the pod's own NIC bypasses the guest, which has the port; set "services", chain the plugin portmap, `},
		{"published port with services", edits(ports, with("services", services)), "", 7, "brfusion does not map ports; chain the plugin portmap"},
		{"MAC", none, "IgnoreUnknown=1;MAC=02:00:00:00:00:05", 7, "(CNI_ARGS MAC): the host chooses the MAC of each NIC"},
		{"MAC, the daemon's IPAM", edits(hostd, runtimeConfig("mac", "02:00:00:00:00:05")), "", 7, "(runtimeConfig.mac)"},
		{"IP of DHCP", ipam("type", "dhcp"), "IgnoreUnknown=1;IP=10.201.0.9", 7, "the DHCP server chooses it"},
		{"bad IP", hostd, "IP=10.201.0.300", 7, "want ADDRESS"},
		{"unknown argument", hostd, "IPADDR=10.201.0.9", 4, `read "IPADDR": no such key`},
		{"type", edits(hostd, runtimeConfig("ips", 1)), "", 6, "runtimeConfig.ips"},
		{"misspelled key", with("bandwith", map[string]any{"ingressRate": 1}), "", 7, `"bandwith": no such key`},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.plugin("dhcp", answers("10.201.0.7/16"))
			config := l.config(c.edit)
			if a := l.Run("ADD", config, "CNI_ARGS="+c.args); a.Code() != c.code || !strings.Contains(a.Message(), c.want) {
				t.Errorf("got code %d, want %d and %q", a.Code(), c.code, c.want)
			}
			if len(l.daemon.requests) > 0 || len(l.Links(l.Pod)) > 0 {
				t.Errorf("the daemon was asked for %v, the pod has %v", l.daemon.requests, l.Links(l.Pod))
			}
			l.Succeeds("DEL", config, "CNI_ARGS="+c.args)
			l.wantNothing()
		})
	}
	t.Run("STATUS", func(t *testing.T) {
		l := newLab(t)
		if a := l.Run("STATUS", l.config(with("cniVersion", "1.1.0"), hostd, with("bandwith", 1))); a.Code() != 50 || !strings.Contains(a.Stdout, "no such key") {
			t.Errorf("got code %d, want 50", a.Code())
		}
	})
}

// Runtimes pass empty requests, and information for other plugins.
func TestRequestsForNothing(t *testing.T) {
	l := newLab(t)
	config := l.config(with("runtimeConfig", map[string]any{
		"portMappings": []any{}, "ips": nil, "mac": "", "bandwidth": nil, "cgroupPath": "/kubepods/x",
	}), with("capabilities", map[string]any{"portMappings": true}))
	args := "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAME=p;NERDCTL_CNI_DHCP_HOSTNAME=h"
	l.Add(config, args)
	l.Succeeds("DEL", config, args)
	l.wantNothing()
}

// A requested address is the pod's, whoever gives addresses.
func TestRequestedAddress(t *testing.T) {
	hostd := with("ipam", map[string]any{"type": "hostd"})
	ranges := ipam("ranges", []any{[]any{map[string]any{"subnet": "10.201.0.0/16", "gateway": "10.201.0.1"}}})
	six := runtimeConfig("ips", []string{"fd00:201::9"})
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		args string
		want []string
	}{
		{"daemon", hostd, "IgnoreUnknown=1;IP=10.201.0.9", []string{"10.201.0.9/16", "fd00:201::50/64"}},
		{"daemon, with length", hostd, "IP=10.201.0.9/16", []string{"10.201.0.9/16", "fd00:201::50/64"}},
		{"daemon, IPv6", edits(hostd, six), "", []string{"10.201.0.50/16", "fd00:201::9/64"}},
		{"daemon, both", edits(hostd, six), "IgnoreUnknown=1;IP=10.201.0.9", []string{"10.201.0.9/16", "fd00:201::9/64"}},
		{"daemon, several", edits(hostd, runtimeConfig("ips", []string{"10.201.0.9", "10.201.0.10"})), "", []string{"10.201.0.9/16", "10.201.0.10/16", "fd00:201::50/64"}},
		{"host-local by CNI_ARGS", ranges, "IgnoreUnknown=1;IP=10.201.0.9", []string{"10.201.0.9/16"}},
		{"host-local by args", edits(ranges, with("args", map[string]any{"cni": map[string]any{"ips": []string{"10.201.0.9"}}})), "", []string{"10.201.0.9/16"}},
		{"host-local by its capability", edits(ranges, runtimeConfig("ips", []string{"10.201.0.9"})), "", []string{"10.201.0.9/16"}},
		{"static", with("ipam", map[string]any{"type": "static"}), "IgnoreUnknown=1;IP=10.201.0.9/16;GATEWAY=10.201.0.1", []string{"10.201.0.9/16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			config, args := l.config(c.edit, with("services", services)), "CNI_ARGS="+c.args
			r := l.Add(config, args)
			var got []string
			for _, ip := range r.IPs {
				got = append(got, ip.Address.String())
				if c.name[:6] == "daemon" && (ip.Gateway == nil || !ip.Address.Contains(ip.Gateway)) {
					t.Errorf("gateway of %s is %s", &ip.Address, ip.Gateway)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the pod has %v, want %v", got, c.want)
			}
			last := l.daemon.requests[len(l.daemon.requests)-1]
			if last.GetAllocate() || !slices.Equal(last.GetAddresses(), c.want) {
				t.Errorf("the last request is %v", last)
			}
			l.Succeeds("CHECK", l.WithResult(config, r), args)
			l.Succeeds("DEL", l.WithResult(config, r), args)
			l.wantNothing()
		})
	}
}

// An address that cannot be had fails the ADD, which leaves nothing.
func TestRequestedAddressThatIsRefused(t *testing.T) {
	hostd := with("ipam", map[string]any{"type": "hostd"})
	taken := func(l *lab) {
		l.daemon.onAgain = status.Error(codes.PermissionDenied, "address 10.201.0.9 is held by node2")
	}
	ignores := func(l *lab) { l.plugin("some", answers("10.201.0.7/16")) }
	for _, c := range []struct {
		name string
		lab  func(*lab)
		edit func(map[string]any)
		ip   string
		code uint
		want string
	}{
		{"another's", taken, hostd, "10.201.0.9", 7, "attach: host daemon: address 10.201.0.9 is held by node2"},
		{"another subnet's", func(*lab) {}, hostd, "10.202.0.9", 7, "get address 10.202.0.9 from the host daemon: want an address, and if any the prefix length, of 10.201.0.0/16, fd00:201::/64; "},
		{"another length", func(*lab) {}, hostd, "10.201.0.9/24", 7, "get address 10.201.0.9 from the host daemon: want an address, "},
		{"plugin that ignores it", ignores, ipam("type", "some"), "10.201.0.9", 7, "lease: get address 10.201.0.9 from some: it ignores the request and chose 10.201.0.7/16; remove"},
		{"outside of host-local's range", func(*lab) {}, with("mtu", 0), "10.201.0.9", 999, "host-local"},
		{"old daemon", func(l *lab) { l.daemon.protocol = 1 }, hostd, "10.201.0.9", 7, "does not support ipam.type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			c.lab(l)
			config, args := l.config(c.edit), fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;IP=%s", c.ip)
			if a := l.Run("ADD", config, args); a.Code() != c.code || !strings.Contains(a.Message(), c.want) {
				t.Errorf("got code %d, want %d and %q", a.Code(), c.code, c.want)
			}
			if links := l.Links(l.Pod); len(links) > 0 {
				t.Errorf("the pod has %v", links)
			}
			l.wantNothing()
			l.Succeeds("DEL", config, args)
		})
	}
}
