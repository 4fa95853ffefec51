package brfusion_test

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

// DEL without the daemon cleans the guest and records the release. The next command
// that reaches the daemon does it.
func TestDelWithoutDaemon(t *testing.T) {
	newer := edits(with("cniVersion", "1.1.0"), ipam("type", "some"))
	for command, want := range map[string]uint{"ADD": 0, "DEL": 0, "GC": 0, "STATUS": 0} {
		t.Run(command, func(t *testing.T) {
			l := newLab(t)
			l.plugin("some", `[ $CNI_COMMAND != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'`+"\n"+answers("10.201.0.9/16"))
			config := l.config(newer)
			r := l.Add(config)
			l.daemon.stop()
			begin := time.Now()
			for range 2 {
				l.Succeeds("DEL", l.WithResult(config, r))
			}
			if time.Since(begin) > time.Minute || len(l.Pending()) != 1 || len(l.daemon.all()) != 1 {
				t.Errorf("took %v, pending %v, NICs %v", time.Since(begin), l.Pending(), l.daemon.all())
			}
			if links := l.Links(l.Pod); len(links) > 0 {
				t.Errorf("the pod still has %v", links)
			}
			if a := l.Run("STATUS", config); a.Code() != 50 || len(l.Pending()) != 1 {
				t.Errorf("STATUS without a daemon: code %d, pending %v", a.Code(), l.Pending())
			}
			l.daemon.start()
			if a := l.Run(command, config, "CNI_CONTAINERID=c2", "CNI_IFNAME=eth7"); a.Code() != want {
				t.Errorf("%s: code %d, want %d", command, a.Code(), want)
			}
			if len(l.Pending()) > 0 || l.daemon.all()["c1 eth0"] != nil {
				t.Errorf("pending %v, NICs %v", l.Pending(), l.daemon.all())
			}
			l.Run("DEL", config, "CNI_CONTAINERID=c2", "CNI_IFNAME=eth7")
			l.wantNothing()
		})
	}
}

// A host that does not answer.
func TestSilentDaemon(t *testing.T) {
	l := newLab(t)
	config := l.config(with("server", l.Listen(l.Guest, "127.0.0.1:0").Addr().String()))
	for command, want := range map[string]uint{"ADD": 11, "DEL": 0} {
		begin := time.Now()
		if a := l.Run(command, config); a.Code() != want || time.Since(begin) > 2*time.Minute {
			t.Errorf("%s: code %d after %v, want %d", command, a.Code(), time.Since(begin), want)
		}
	}
}

func TestGC(t *testing.T) {
	const speaks = `[ $CNI_COMMAND != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'` + "\n"
	for _, c := range []struct {
		name     string
		edit     func(map[string]any)
		protocol uint32
		left     bool
	}{
		{"runtime does not say", with("log", false), 2, true},
		{"valid", cnitest.Valid("c1"), 2, true},
		{"another is valid", cnitest.Valid("c2"), 2, false},
		{"none is valid", cnitest.Valid(), 2, false},
		{"none is valid, as null", with("cni.dev/valid-attachments", nil), 2, false},
		{"another network", edits(cnitest.Valid(), with("name", "other")), 2, true},
		{"old daemon", cnitest.Valid("c1"), 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.daemon.protocol = c.protocol
			l.plugin("some", speaks+answers("10.201.0.9/16"))
			least := edits(with("cniVersion", "1.1.0"), with("services", services), ipam("type", "some"))
			l.Add(l.config(least))
			l.Succeeds("GC", l.config(least, c.edit))
			if got := len(l.daemon.all()) == 1; got != c.left {
				t.Errorf("NIC is left: %v, want %v", got, c.left)
			}
			if got := len(l.Links(l.Guest)) == 1; got != c.left {
				t.Errorf("service path is left: %v, want %v", got, c.left)
			}
			if got := l.commands("some"); !slices.Equal(got, []string{"ADD", "VERSION", "GC"}) {
				t.Errorf("IPAM plugin was called for %v", got)
			}
		})
	}
}

// A failure does not stop the rest of GC, and every failure is reported.
func TestGCThatFails(t *testing.T) {
	l := newLab(t)
	l.plugin("some", `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' && exit; `+
		`[ $CNI_COMMAND != GC ] || { echo '{"code":100,"msg":"some trouble"}'; exit 1; }`)
	config := l.config(with("cniVersion", "1.1.0"), ipam("type", "some"), with("server", "127.0.0.1:1"), with("cni.dev/valid-attachments", []any{}))
	a := l.Run("GC", config)
	if a.Exit == 0 || !strings.Contains(a.Stdout, "some trouble") || !strings.Contains(a.Stdout, "collect NICs: host daemon: ") {
		t.Errorf("got %s", a.Stdout)
	}
	l.plugin("older", `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'`)
	if a := l.Run("GC", l.config(with("cniVersion", "1.1.0"), ipam("type", "older"))); a.Exit != 0 || !slices.Equal(l.commands("older"), []string{"VERSION"}) {
		t.Errorf("older IPAM plugin: called for %v", l.commands("older"))
	}
}

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		name string
		lab  func(*lab)
		edit func(map[string]any)
		code uint
		want string
	}{
		{"well", func(*lab) {}, with("log", true), 0, ""},
		{"no daemon", func(*lab) {}, with("server", "127.0.0.1:1"), 50, "connection refused"},
		{"credentials", func(*lab) {}, with("credentials", "/nowhere"), 50, "/nowhere"},
		{"no IPAM plugin", func(*lab) {}, ipam("type", "nowhere-local"), 50, "nowhere-local"},
		{"limited", func(l *lab) { l.daemon.limited = "no free slot" }, with("log", true), 50, "no free slot"},
		{"refused", func(l *lab) { l.daemon.onStatus = status.Error(codes.Unauthenticated, "not this guest") }, with("log", true), 50, "not this guest"},
		{"no VMM", func(l *lab) { l.daemon.onStatus = status.Error(codes.Unavailable, "QEMU does not answer") }, with("log", true), 51, "QEMU"},
		{"old daemon", func(l *lab) { l.daemon.protocol = 1 }, with("log", true), 0, ""},
		{"too old daemon", func(l *lab) { l.daemon.protocol = 1 }, with("mode", "trunk"), 50, "does not support mode"},
		{"IPAM refuses", func(l *lab) { l.plugin("some", "exit 1") }, with("log", true), 50, "get status of some"},
		{"IPAM is limited", func(l *lab) { l.plugin("some", `echo '{"code":51,"msg":"leases lost"}'; exit 1`) }, with("log", true), 51, "leases lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.plugin("some", "[ $CNI_COMMAND = STATUS ]")
			c.lab(l)
			a := l.Run("STATUS", l.config(with("cniVersion", "1.1.0"), ipam("type", "some"), c.edit))
			if a.Code() != c.code || (a.Exit == 0) != (c.code == 0) || !strings.Contains(a.Stdout, c.want) {
				t.Errorf("code %d, want %d and %q", a.Code(), c.code, c.want)
			}
		})
	}
}

func TestDaemonChoosesAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		ipam map[string]any
		want string // routes
	}{
		"default routes":    {map[string]any{"type": "hostd"}, "0.0.0.0/0 10.201.0.1, ::/0 fd00:201::1"},
		"configured routes": {map[string]any{"type": "hostd", "routes": []any{map[string]any{"dst": "10.99.0.0/16", "mtu": 1300}}}, "10.99.0.0/16 <nil>"},
		"no routes":         {map[string]any{"type": "hostd", "routes": []any{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			config := l.config(with("ipam", c.ipam), with("cniVersion", "1.1.0"), with("services", services),
				with("bandwidth", map[string]any{"ingressRate": 8000, "ingressBurst": 80000}), with("pool", false))
			r := l.Add(config)
			r0 := l.daemon.requests[0]
			if !r0.GetAllocate() || !r0.GetCold() || r0.GetNetwork() != "brf" || r0.GetBandwidth().GetIngressRate() != 8000 || r0.GetDhcp() {
				t.Errorf("request is %v", r0)
			}
			var routes []string
			for _, route := range r.Routes {
				routes = append(routes, route.Dst.String()+" "+route.GW.String())
			}
			if got := strings.Join(routes, ", "); got != c.want || len(r.IPs) != 2 || len(r.Interfaces) != 3 {
				t.Errorf("routes %q, want %q; %v, %v", got, c.want, r.IPs, r.Interfaces)
			}
			l.Succeeds("CHECK", l.WithResult(config, r))
			for range 2 {
				l.Succeeds("DEL", l.WithResult(config, r))
				l.wantNothing()
			}
		})
	}
}

func TestDHCP(t *testing.T) {
	l := newLab(t)
	l.plugin("dhcp", answers("10.201.0.9/16"))
	config := l.config(ipam("type", "dhcp"), with("runtimeConfig", map[string]any{"bandwidth": map[string]any{"egressRate": 8000, "egressBurst": 80000}}))
	l.Add(config)
	if r := l.daemon.requests; len(r) != 2 || !r[0].GetDhcp() || len(r[0].GetAddresses()) != 0 || !slices.Equal(r[1].GetAddresses(), []string{"10.201.0.9/16"}) ||
		r[0].GetBandwidth().GetEgressRate() != 8000 {
		t.Errorf("requests are %v", r)
	}
	l.Run("DEL", config)
	l.wantNothing()
	if got := l.commands("dhcp"); !slices.Equal(got, []string{"ADD", "DEL"}) {
		t.Errorf("dhcp was called for %v", got)
	}
}

// The plugin works with a daemon of the previous protocol.
func TestOldDaemon(t *testing.T) {
	l := newLab(t)
	l.daemon.protocol = 1
	config := l.config()
	r := l.Add(config)
	l.Succeeds("CHECK", l.WithResult(config, r))
	l.Run("DEL", config)
	l.wantNothing()
}

// An earlier plugin in the chain.
func TestResultBefore(t *testing.T) {
	l := newLab(t)
	r := l.Add(l.config(with("prevResult", map[string]any{
		"cniVersion": "1.0.0", "interfaces": []any{map[string]any{"name": "lo", "sandbox": path(l.Pod)}},
		"ips": []any{map[string]any{"address": "127.0.0.1/8", "interface": 0}},
	})))
	if len(r.Interfaces) != 2 || len(r.IPs) != 2 || *r.IPs[1].Interface != 1 || r.Interfaces[1].Name != "eth0" {
		t.Errorf("got %+v, %+v", r.Interfaces, r.IPs)
	}
	l.Run("DEL", l.config())
	l.wantNothing()
}

// The guest answers for the pod's service address as long as the pod is there.
func TestServiceAddress(t *testing.T) {
	l := newLab(t)
	l.daemon.services = []string{"10.201.0.50", "fd00:201::50"}
	l.Must(l.Guest.Do(func(ns.NetNS) error {
		own := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own0"}}
		a, err := netlink.ParseAddr("10.201.0.8/16")
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkAdd(own), netlink.AddrAdd(own, a), netlink.LinkSetUp(own))
	}))
	answers := func() (all []netlink.Neigh) {
		l.Must(l.Guest.Do(func(ns.NetNS) (err error) {
			own, err := netlink.LinkByName("own0")
			if err == nil {
				all, err = netlink.NeighProxyList(own.Attrs().Index, netlink.FAMILY_ALL)
			}
			return err
		}))
		return all
	}
	config := l.config(with("services", services))
	checked := l.WithResult(config, l.Add(config))
	if got := answers(); len(got) != 1 || got[0].IP.String() != "10.201.0.50" {
		t.Errorf("the guest answers for %v, want 10.201.0.50", got)
	}
	l.Succeeds("CHECK", checked)
	l.Succeeds("DEL", config)
	if got := answers(); len(got) != 0 {
		t.Errorf("after DEL the guest answers for %v", got)
	}
	l.Add(l.config())
	if last := l.daemon.requests[len(l.daemon.requests)-1]; last.GetServices() {
		t.Error("a pod without services asks for service addresses")
	}
	l.Succeeds("DEL", l.config())
}

func TestCheckOfHostAndServices(t *testing.T) {
	l := newLab(t)
	// IPAM plugins give destinations as they are configured, with bits after the prefix.
	config := l.config(with("services", services), ipam("routes", []any{map[string]any{"dst": "10.99.0.1/16"}, map[string]any{"dst": "fd00:99::1/64"}}))
	checked := l.WithResult(config, l.Add(config))
	check := func(want string) {
		t.Helper()
		if a := l.Run("CHECK", checked); (a.Exit == 0) != (want == "") || !strings.Contains(a.Stdout, want) {
			t.Errorf("CHECK: got %s, want %q", a.Stdout, want)
		}
	}
	check("")
	nic := l.daemon.nics["c1 eth0"]
	nic.Addresses = nil
	check("on the host: host daemon: it has 02:00:00:00:00:01 []")
	delete(l.daemon.nics, "c1 eth0")
	check("no such attachment")
	l.daemon.stop()
	check("") // the pod's NIC works without the daemon
	l.InPod("eth0", func(eth0 netlink.Link) error { return netlink.LinkSetMTU(eth0, 1300) })
	check("") // the plugin tuning does so
	l.InPod("eth0", func(eth0 netlink.Link) error { return netlink.LinkSetMTU(eth0, 1500) })
	check("MTU 1500, want 1400")
	l.InPod("eth0", func(eth0 netlink.Link) error {
		_, dst, err := net.ParseCIDR("10.99.0.0/16")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetMTU(eth0, 1400); err != nil {
			return err
		}
		return netlink.RouteDel(&netlink.Route{Dst: dst, LinkIndex: eth0.Attrs().Index})
	})
	check("the route to 10.99.0.0/16 is missing")
	l.InPod("eth0", func(eth0 netlink.Link) error {
		_, dst, err := net.ParseCIDR("10.99.0.0/16")
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.IPv4(10, 201, 0, 1), LinkIndex: eth0.Attrs().Index}); err != nil {
			return err
		}
		svc0, err := netlink.LinkByName("svc0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(svc0)
	})
	check("link svc0 is down")
	l.daemon.nics["c1 eth0"] = &hostdpb.NIC{}
	l.daemon.start()
	l.Run("DEL", config)
	l.wantNothing()
}

// chained runs another plugin after ours.
func (l *lab) chained(plugin, command string, config map[string]any, r *types100.Result) cnitest.Answer {
	l.t.Helper()
	config["cniVersion"], config["name"], config["type"] = "1.0.0", "brf", plugin
	b, err := json.Marshal(config)
	l.Must(err)
	cmd := l.Command(command, l.WithResult(b, r))
	cmd.Path = filepath.Join(cnitest.PluginDir, plugin)
	a := l.Do(cmd)
	l.t.Logf("%s %s: %s%s", plugin, command, a.Stdout, a.Stderr)
	return a
}

// Portmap and tuning work after brfusion, and CHECK accepts their changes. Bandwidth
// accepts a pod without limits, and refuses one with limits; it does not shape the
// service path.
func TestChain(t *testing.T) {
	l := newLab(t)
	config := l.config(with("services", services))
	r := l.Add(config)
	ports := map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
	for _, c := range []struct {
		plugin string
		config map[string]any
		want   string // in the error
	}{
		{"portmap", map[string]any{"capabilities": map[string]any{"portMappings": true}, "runtimeConfig": ports}, ""},
		{"tuning", map[string]any{"mtu": 1300}, ""},
		{"bandwidth", map[string]any{}, ""},
		{"bandwidth", map[string]any{"ingressRate": 8000, "ingressBurst": 80000}, "veth peer"},
	} {
		a := l.chained(c.plugin, "ADD", c.config, r)
		if (a.Exit == 0) != (c.want == "") || !strings.Contains(a.Stdout, c.want) {
			t.Errorf("%s: got %s, want %q", c.plugin, a.Stdout, c.want)
		}
		if c.want != "" {
			continue
		}
		if a := l.Run("CHECK", l.WithResult(config, r)); a.Exit != 0 {
			t.Errorf("CHECK after %s failed", c.plugin)
		}
		if a := l.chained(c.plugin, "DEL", c.config, r); a.Exit != 0 {
			t.Errorf("DEL of %s failed", c.plugin)
		}
	}
	l.Run("DEL", config)
	l.wantNothing()
}

// ADD and STATUS renew a certificate of which little is left. One that cannot be renewed
// does not fail the pod.
func TestCertificateIsRenewed(t *testing.T) {
	l := newLab(t)
	config := l.config()
	was := l.ExpireAt(t, time.Now().Add(20*time.Hour)) // of 24
	l.Add(config)
	if l.Serial() != was {
		t.Error("ADD renews a certificate that is valid for long")
	}
	l.Succeeds("DEL", config)
	was = l.ExpireAt(t, time.Now().Add(time.Hour))
	l.Add(config)
	if l.Serial() == was {
		t.Error("ADD does not renew the certificate")
	}
	l.Succeeds("DEL", config)
	l.Must(os.Remove(filepath.Join(l.Dir, "run", "renewal")))
	was = l.ExpireAt(t, time.Now().Add(time.Hour))
	l.Succeeds("STATUS", l.config(with("cniVersion", "1.1.0"), with("ipam", map[string]any{"type": "hostd"})))
	if l.Serial() == was {
		t.Error("STATUS does not renew the certificate")
	}
	l.Must(os.Remove(filepath.Join(l.Dir, "run", "renewal")))
	was = l.ExpireAt(t, time.Now().Add(time.Hour))
	l.Must(os.MkdirAll(filepath.Join(l.Dir, "unnest", identity.KeyFile+".new", "x"), 0o700))
	l.Add(config)
	if l.Serial() != was {
		t.Error("the certificate was renewed although its key could not be written")
	}
	l.Succeeds("DEL", config)
}
