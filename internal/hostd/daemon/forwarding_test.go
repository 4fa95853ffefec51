package daemon

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/status"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/netdev/link"
)

func TestProblems(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.201.0.1/16"), netip.MustParsePrefix("fd00::1/64")
	ours := quota.Tenant{Name: "a", Bridge: "br-a", Bridges: []string{"br-b"}, Gateways: []netip.Prefix{v4}}
	drop := func(family string) []bridge.Dropper {
		return []bridge.Dropper{{Family: family, Table: "filter", Chain: "FORWARD"}}
	}
	const call4, call6 = "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables"
	for _, c := range []struct {
		name     string
		tenant   quota.Tenant
		droppers []bridge.Dropper
		called   []string
		want     string // bridges, and the beginning of what is dropped
	}{
		{"nothing drops", ours, nil, []string{call4}, ""},
		{"routed", ours, drop("ip"), nil, "br-a to other networks"},
		{"the other family", ours, drop("ip6"), nil, ""},
		{"both families", ours, drop("inet"), nil, "br-a to other networks"},
		{"IPv6", quota.Tenant{Name: "a", Bridge: "br-a", Gateways: []netip.Prefix{v6}}, drop("ip6"), nil, "br-a to other networks"},
		{"an operator's bridge", quota.Tenant{Name: "a", Bridge: "br-a"}, drop("ip"), nil, ""},
		{"an operator's bridge, called", quota.Tenant{Name: "a", Bridge: "br-a"}, drop("ip"), []string{call4}, "br-a to each other"},
		{"called for the other family", quota.Tenant{Name: "a", Bridge: "br-a"}, drop("ip"), []string{call6}, ""},
		{"called, further bridge", ours, drop("ip"), []string{call4}, "br-a to each other, br-b to each other"},
	} {
		var got []string
		for _, p := range problems([]quota.Tenant{c.tenant}, c.droppers, c.called) {
			_, what, _ := strings.Cut(p.Cause, "it drops what pods send ")
			got = append(got, p.Bridge+" "+strings.FieldsFunc(what, func(r rune) bool { return r == ',' })[0])
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Docker starts while the daemon runs: the log, the status and the metrics say what it cuts off, and what
// the daemon can repair it repairs.
func TestDockerStarts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.configure("listen: 127.0.0.1:7443\ntenants:\n  - {name: shop, bridge: br-shop, mtu: 1400, gateways: [10.7.0.1/24]}\n")
	l.serve(patience)
	const calls = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	l.do(func() error {
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader("add table ip filter\nadd chain ip filter FORWARD { type filter hook forward priority filter; policy drop; }\n")
		if out, err := nft.CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
		return os.WriteFile(calls, []byte("1"), 0)
	})
	l.eventually("bridge-nf-call is off again", func() (off bool) {
		l.do(func() error {
			value, err := os.ReadFile(calls)
			off = strings.TrimSpace(string(value)) == "0"
			return err
		})
		return off
	})
	l.wantSaid("turned bridge-nf-call off, which another program", "another program may drop frames of pods", "bridge=br-shop")
	l.eventually("the status has the problem", func() bool {
		s, err := status.Ask(t.Context(), l.dir)
		l.check(err)
		return len(s.Problems) == 1 && s.Problems[0].Bridge == "br-shop" && strings.Contains(s.Problems[0].Cause, "ip filter FORWARD")
	})
	if m := l.scrape(); !strings.Contains(m, `unnest_hostd_forwarding_problems{tenant="shop"} 1`) || !strings.Contains(m, "unnest_hostd_bridge_nf_restores_total") {
		t.Errorf("the metrics do not have the problem:\n%s", m)
	}
}

// Another program takes a pod's TAP off its bridge, or sets it down, while the daemon runs.
func TestPortIsTakenOffItsBridge(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.boot(1, 2)
	l.serve(patience)
	m.mustAttach("c1")
	tap, _, _ := strings.Cut(l.taps()[0], " ")
	for what, f := range map[string]func(netlink.Link) error{"off the bridge": netlink.LinkSetNoMaster, "down": netlink.LinkSetDown} {
		l.do(func() error {
			port, err := netlink.LinkByName(tap)
			if err != nil {
				return err
			}
			return f(port)
		})
		l.eventually("the port that is "+what+" is connected again", func() (ok bool) {
			l.do(func() error {
				port, err := link.Find(tap)
				ok = port.Up && link.Bridge(tap) == "br0"
				return err
			})
			return ok
		})
	}
	l.wantSaid("another program has cut a pod off", "container=c1")
	m.wantNICs("1 c1 attached 0a:00:01:01:00:01")
}
