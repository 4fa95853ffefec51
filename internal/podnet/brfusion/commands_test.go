package brfusion_test

import (
	"encoding/json"
	"net"
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

	"unnest/internal/hostd/hostdpb"
)

func edits(all ...func(map[string]any)) func(map[string]any) {
	return func(c map[string]any) {
		for _, e := range all {
			e(c)
		}
	}
}

// withResult is the configuration with an ADD's result.
func (l *lab) withResult(config []byte, r *types100.Result) []byte {
	l.t.Helper()
	var c map[string]any
	l.check(json.Unmarshal(config, &c))
	old, err := r.GetAsVersion(c["cniVersion"].(string))
	l.check(err)
	c["prevResult"] = old
	config, err = json.Marshal(c)
	l.check(err)
	return config
}

// DEL without the daemon gives back what it can and notes the rest; whichever
// command next reaches the daemon finishes it.
func TestDelWithoutDaemon(t *testing.T) {
	newer := edits(with("cniVersion", "1.1.0"), ipam("type", "some"))
	for command, want := range map[string]uint{"ADD": 0, "DEL": 0, "GC": 0, "STATUS": 0} {
		t.Run(command, func(t *testing.T) {
			l := newLab(t)
			l.plugin("some", `[ $CNI_COMMAND != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'`+"\n"+answers("10.201.0.9/16"))
			config := l.config(newer)
			r := l.add(config)
			l.daemon.stop()
			begin := time.Now()
			for range 2 {
				if a := l.run("DEL", l.withResult(config, r)); a.exit != 0 || a.stdout != "" {
					t.Error("DEL without a daemon was refused")
				}
			}
			if time.Since(begin) > 10*time.Second || len(l.noted()) != 1 || len(l.daemon.all()) != 1 {
				t.Errorf("took %v, noted %v, NICs %v", time.Since(begin), l.noted(), l.daemon.all())
			}
			l.check(l.pod.Do(func(ns.NetNS) error {
				if links, err := netlink.LinkList(); err != nil || len(links) != 1 {
					t.Errorf("the pod has %d links, want lo alone (%v)", len(links), err)
				}
				return nil
			}))
			if a := l.run("STATUS", config); a.code() != 50 || len(l.noted()) != 1 {
				t.Errorf("STATUS without a daemon: code %d, noted %v", a.code(), l.noted())
			}
			l.daemon.start(l.server)
			if a := l.run(command, config, "CNI_CONTAINERID=c2", "CNI_IFNAME=eth7"); a.code() != want {
				t.Errorf("%s: code %d, want %d", command, a.code(), want)
			}
			if len(l.noted()) > 0 || l.daemon.all()["c1 eth0"] != nil {
				t.Errorf("noted %v, NICs %v", l.noted(), l.daemon.all())
			}
			l.run("DEL", config, "CNI_CONTAINERID=c2", "CNI_IFNAME=eth7")
			l.wantNothing()
		})
	}
}

// A host that takes the packets and says nothing.
func TestSilentDaemon(t *testing.T) {
	l := newLab(t)
	listener := func() (s net.Listener) {
		l.check(l.guest.Do(func(ns.NetNS) (err error) {
			s, err = net.Listen("tcp", "127.0.0.1:0")
			return err
		}))
		return s
	}()
	defer listener.Close()
	config := l.config(with("server", listener.Addr().String()))
	for command, want := range map[string]uint{"ADD": 11, "DEL": 0} {
		begin := time.Now()
		if a := l.run(command, config); a.code() != want || time.Since(begin) > 10*time.Second {
			t.Errorf("%s: code %d after %v, want %d", command, a.code(), time.Since(begin), want)
		}
	}
}

func TestGC(t *testing.T) {
	const speaks = `[ $CNI_COMMAND != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'` + "\n"
	attachments := func(ids ...string) func(map[string]any) {
		all := []any{}
		for _, id := range ids {
			all = append(all, map[string]any{"containerID": id, "ifname": "eth0"})
		}
		return with("cni.dev/valid-attachments", all)
	}
	for _, c := range []struct {
		name     string
		edit     func(map[string]any)
		protocol uint32
		left     bool
	}{
		{"runtime does not say", with("log", false), 2, true},
		{"valid", attachments("c1"), 2, true},
		{"another is valid", attachments("c2"), 2, false},
		{"none is valid", attachments(), 2, false},
		{"none is valid, as null", with("cni.dev/valid-attachments", nil), 2, false},
		{"another network", edits(attachments(), with("name", "other")), 2, true},
		{"old daemon", attachments("c1"), 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.daemon.protocol = c.protocol
			l.plugin("some", speaks+answers("10.201.0.9/16"))
			least := edits(with("cniVersion", "1.1.0"), with("services", services), ipam("type", "some"))
			l.add(l.config(least))
			if a := l.run("GC", l.config(least, c.edit)); a.exit != 0 || a.stdout != "" {
				t.Error("GC was refused")
			}
			if got := len(l.daemon.all()) == 1; got != c.left {
				t.Errorf("NIC is left: %v, want %v", got, c.left)
			}
			if got := len(l.links(l.guest)) == 1; got != c.left {
				t.Errorf("service path is left: %v, want %v", got, c.left)
			}
			if got := l.commands("some"); !slices.Equal(got, []string{"ADD", "VERSION", "GC"}) {
				t.Errorf("IPAM plugin was called for %v", got)
			}
		})
	}
}

// What can be collected is, and each failure is told.
func TestGCThatFails(t *testing.T) {
	l := newLab(t)
	l.plugin("some", `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}' && exit; `+
		`[ $CNI_COMMAND != GC ] || { echo '{"code":100,"msg":"some trouble"}'; exit 1; }`)
	config := l.config(with("cniVersion", "1.1.0"), ipam("type", "some"), with("server", "127.0.0.1:1"), with("cni.dev/valid-attachments", []any{}))
	a := l.run("GC", config)
	if a.exit == 0 || !strings.Contains(a.stdout, "some trouble") || !strings.Contains(a.stdout, "collect NICs: host daemon: ") {
		t.Errorf("got %s", a.stdout)
	}
	l.plugin("older", `[ $CNI_COMMAND = VERSION ] && echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0"]}'`)
	if a := l.run("GC", l.config(with("cniVersion", "1.1.0"), ipam("type", "older"))); a.exit != 0 || !slices.Equal(l.commands("older"), []string{"VERSION"}) {
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
		{"too old daemon", func(l *lab) { l.daemon.protocol = 1 }, with("mode", "trunk"), 50, "too old"},
		{"IPAM refuses", func(l *lab) { l.plugin("some", "exit 1") }, with("log", true), 50, "status of some"},
		{"IPAM is limited", func(l *lab) { l.plugin("some", `echo '{"code":51,"msg":"leases lost"}'; exit 1`) }, with("log", true), 51, "leases lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.plugin("some", "[ $CNI_COMMAND = STATUS ]")
			c.lab(l)
			a := l.run("STATUS", l.config(with("cniVersion", "1.1.0"), ipam("type", "some"), c.edit))
			if a.code() != c.code || (a.exit == 0) != (c.code == 0) || !strings.Contains(a.stdout, c.want) {
				t.Errorf("code %d, want %d and %q", a.code(), c.code, c.want)
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
			r := l.add(config)
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
			if a := l.run("CHECK", l.withResult(config, r)); a.exit != 0 {
				t.Error("CHECK was refused")
			}
			for range 2 {
				if a := l.run("DEL", l.withResult(config, r)); a.exit != 0 {
					t.Error("DEL was refused")
				}
				l.wantNothing()
			}
		})
	}
}

func TestDHCP(t *testing.T) {
	l := newLab(t)
	l.plugin("dhcp", answers("10.201.0.9/16"))
	config := l.config(ipam("type", "dhcp"), with("runtimeConfig", map[string]any{"bandwidth": map[string]any{"egressRate": 8000, "egressBurst": 80000}}))
	l.add(config)
	if r := l.daemon.requests; len(r) != 2 || !r[0].GetDhcp() || len(r[0].GetAddresses()) != 0 || !slices.Equal(r[1].GetAddresses(), []string{"10.201.0.9/16"}) ||
		r[0].GetBandwidth().GetEgressRate() != 8000 {
		t.Errorf("requests are %v", r)
	}
	l.run("DEL", config)
	l.wantNothing()
	if got := l.commands("dhcp"); !slices.Equal(got, []string{"ADD", "DEL"}) {
		t.Errorf("dhcp was called for %v", got)
	}
}

// The newest plugin with the daemon of the protocol before.
func TestOldDaemon(t *testing.T) {
	l := newLab(t)
	l.daemon.protocol = 1
	config := l.config()
	r := l.add(config)
	if a := l.run("CHECK", l.withResult(config, r)); a.exit != 0 {
		t.Error("CHECK was refused")
	}
	l.run("DEL", config)
	l.wantNothing()
}

// A plugin before us in the chain.
func TestResultBefore(t *testing.T) {
	l := newLab(t)
	r := l.add(l.config(with("prevResult", map[string]any{
		"cniVersion": "1.0.0", "interfaces": []any{map[string]any{"name": "lo", "sandbox": l.podPath()}},
		"ips": []any{map[string]any{"address": "127.0.0.1/8", "interface": 0}},
	})))
	if len(r.Interfaces) != 2 || len(r.IPs) != 2 || *r.IPs[1].Interface != 1 || r.Interfaces[1].Name != "eth0" {
		t.Errorf("got %+v, %+v", r.Interfaces, r.IPs)
	}
	l.run("DEL", l.config())
	l.wantNothing()
}

func TestCheckOfHostAndServices(t *testing.T) {
	l := newLab(t)
	config := l.config(with("services", services), ipam("routes", []any{map[string]any{"dst": "10.99.0.0/16"}}))
	checked := l.withResult(config, l.add(config))
	check := func(want string) {
		t.Helper()
		if a := l.run("CHECK", checked); (a.exit == 0) != (want == "") || !strings.Contains(a.stdout, want) {
			t.Errorf("CHECK: got %s, want %q", a.stdout, want)
		}
	}
	check("")
	nic := l.daemon.nics["c1 eth0"]
	nic.Addresses = nil
	check("on the host: host daemon: it has 02:00:00:00:00:01 []")
	delete(l.daemon.nics, "c1 eth0")
	check("no such attachment")
	l.daemon.stop()
	check("") // the pod's NIC works without
	l.inPod(func(eth0 netlink.Link) error { return netlink.LinkSetMTU(eth0, 1300) })
	check("") // as tuning does
	l.inPod(func(eth0 netlink.Link) error { return netlink.LinkSetMTU(eth0, 1500) })
	check("MTU 1500, want 1400")
	l.inPod(func(eth0 netlink.Link) error {
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
	l.inPod(func(eth0 netlink.Link) error {
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
	l.daemon.start(l.server)
	l.run("DEL", config)
	l.wantNothing()
}

// chained runs another plugin after ours.
func (l *lab) chained(plugin, command string, config map[string]any, r *types100.Result) answer {
	l.t.Helper()
	config["cniVersion"], config["name"], config["type"] = "1.0.0", "brf", plugin
	b, err := json.Marshal(config)
	l.check(err)
	cmd := l.command(command, l.withResult(b, r))
	cmd.Path = filepath.Join(ipamDir, plugin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = l.guest.Do(func(ns.NetNS) error { return cmd.Run() }) // the exit code is the answer
	l.t.Logf("%s %s: %s%s", plugin, command, &stdout, &stderr)
	return answer{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// Portmap and tuning work after us, and CHECK lets them; bandwidth passes a pod without limits on, and
// refuses one with, rather than shape the service path.
func TestChain(t *testing.T) {
	l := newLab(t)
	config := l.config(with("services", services))
	r := l.add(config)
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
		if (a.exit == 0) != (c.want == "") || !strings.Contains(a.stdout, c.want) {
			t.Errorf("%s: got %s, want %q", c.plugin, a.stdout, c.want)
		}
		if c.want != "" {
			continue
		}
		if a := l.run("CHECK", l.withResult(config, r)); a.exit != 0 {
			t.Errorf("CHECK after %s was refused", c.plugin)
		}
		if a := l.chained(c.plugin, "DEL", c.config, r); a.exit != 0 {
			t.Errorf("DEL of %s was refused", c.plugin)
		}
	}
	l.run("DEL", config)
	l.wantNothing()
}
