package hostlo_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/hostapi/segment"
)

var spanNetwork = edits(without("server", "credentials", "segment", "key"), with("span", "network"), with("cniVersion", "1.1.0"))

// twoNodes returns the labs of two guests that are connected, without a host daemon, and the configuration of each one's pod.
func twoNodes(t *testing.T) (labs [2]*lab, configs [2][]byte) {
	t.Helper()
	for i := range labs {
		labs[i] = newLab(t)
		nodes := map[string]any{"vni": 7, "fraction": i + 1, "nodes": []string{"10.9.0.1", "10.9.0.2"}}
		configs[i] = labs[i].config(spanNetwork, with("network", nodes))
	}
	one, two := labs[0].Guest, labs[1].Guest
	labs[0].Must(one.Do(func(ns.NetNS) error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nodes", MTU: 1500}, PeerName: "nodes", PeerNamespace: netlink.NsFd(two.Fd())})
	}))
	for i, l := range labs {
		l.Must(l.Guest.Do(func(ns.NetNS) error {
			link, err := netlink.LinkByName("nodes")
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 9, 0, byte(i+1)), Mask: net.CIDRMask(24, 32)}}), netlink.LinkSetUp(link))
		}))
	}
	return labs, configs
}

// guards returns the names of the packet filters in the guest.
func (l *lab) guards() string {
	l.t.Helper()
	var names []string
	l.Must(l.Guest.Do(func(ns.NetNS) error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		all, err := c.ListTables()
		for _, table := range all {
			names = append(names, table.Name)
		}
		return err
	}))
	return strings.Join(names, " ")
}

// Two pods on two nodes have one localhost without a host daemon, and nothing is left of them. A pod that is gone leaves its
// packet filter to DEL, or to GC.
func TestSpanNetwork(t *testing.T) {
	labs, configs := twoNodes(t)
	for i, l := range labs {
		r := l.Add(configs[i])
		mac := segment.MAC(segment.Fraction(i + 1))
		if len(r.Interfaces) != 1 || r.Interfaces[0].Mac != mac.String() || r.Interfaces[0].Name != "eth0" {
			t.Errorf("result %+v", r)
		}
		l.Succeeds("CHECK", l.WithResult(configs[i], r))
		l.Succeeds("STATUS", configs[i])
		if a := l.Run("ADD", configs[i], "CNI_IFNAME=eth1"); a.Exit == 0 || !strings.Contains(a.Message(), "in a segment already") {
			t.Error("a second endpoint of the pod is not refused")
		}
	}
	var server net.Listener
	labs[0].Must(labs[0].Pod.Do(func(ns.NetNS) (err error) {
		server, err = net.Listen("tcp", "127.0.0.1:8080")
		return err
	}))
	defer server.Close()
	labs[1].Must(labs[1].Pod.Do(func(ns.NetNS) error {
		c, err := net.Dial("tcp", "127.0.0.1:8080")
		if err == nil {
			err = c.Close()
		}
		return err
	}))
	if a := labs[0].Run("ADD", configs[0], labs[0].inWeb()...); a.Exit == 0 || !strings.Contains(a.Message(), "another pod of this node") {
		t.Error("a second pod by the same number is not refused")
	}
	labs[0].Succeeds("GC", labs[0].config(spanNetwork, cnitest.Valid("c1")))
	if got := labs[0].guards(); got != "unnest-segment-split/c1/eth0" {
		t.Errorf("packet filters: %q", got)
	}
	labs[0].Succeeds("DEL", configs[0])
	labs[0].Succeeds("DEL", configs[0])
	labs[0].wantAlone(labs[0].Pod)
	if _, err := loopback.Membership(labs[0].Pod); !errors.Is(err, loopback.ErrNotJoined) {
		t.Errorf("lo is still shared: %v", err)
	}
	labs[1].Succeeds("GC", labs[1].config(spanNetwork, cnitest.Valid()))
	for _, l := range labs {
		if got := l.guards(); got != "" {
			t.Errorf("packet filters are left: %q", got)
		}
	}
}

// An ADD that fails after each of its steps leaves nothing, and the runtime calls again while the nodes are not known.
func TestSpanNetworkFails(t *testing.T) {
	labs, configs := twoNodes(t)
	l := labs[0]
	l.AddWithoutOutput(configs[0])
	l.wantAlone(l.Pod)
	for _, at := range []string{"join", "joined"} {
		if a := l.Run("ADD", configs[0], "TEST_FAIL="+at); a.Exit == 0 {
			t.Logf("nothing fails at %q", at)
			l.Succeeds("DEL", configs[0])
		}
		l.wantAlone(l.Pod)
	}
	if got := l.guards(); got != "" {
		t.Errorf("packet filters are left: %q", got)
	}
	for want, nodes := range map[string]map[string]any{
		"network.names: want the name of":             {"vni": 7, "fraction": 1, "nodes": []string{"10.9.0.1", "10.9.0.2"}},
		"WireGuard device unnest-wg: it is not there": {"vni": 7, "fraction": 1, "nodes": []string{"10.9.0.1", "10.9.0.2"}, "names": []string{"a", "b"}},
	} { // nothing is sent in plain text instead
		if a := l.Run("ADD", l.config(spanNetwork, with("network", nodes), with("encryption", "wireguard"))); a.Exit == 0 || !strings.Contains(a.Message(), want) {
			t.Errorf("got %s, want %q", a.Message(), want)
		}
		l.wantAlone(l.Pod)
	}
	if got := l.guards(); got != "" {
		t.Errorf("packet filters are left: %q", got)
	}
	notes := map[string]any{"io.kubernetes.cri.pod-annotations": map[string]string{"unnest.io/segment": "x"}}
	waits := l.config(spanNetwork, with("runtimeConfig", notes))
	if a := l.Run("ADD", waits); a.Code() != 11 || !strings.Contains(a.Message(), "not known yet") {
		t.Errorf("code %d, want 11", a.Code())
	}
	l.wantAlone(l.Pod)
}

// A DEL removes the device of an ADD that was killed before it has marked it, and no other of that name.
func TestSpanNetworkKilled(t *testing.T) {
	labs, configs := twoNodes(t)
	l := labs[0]
	nodes := []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	l.Must(l.Guest.Do(func(ns.NetNS) error {
		return loopback.MakeTunnel(l.Pod, "eth0", "split/c1/eth0", loopback.Tunnel{VNI: 7, Fraction: 1, Nodes: nodes})
	}))
	l.Succeeds("DEL", configs[0])
	l.wantAlone(l.Pod)
	if got := l.guards(); got != "" {
		t.Errorf("packet filters are left: %q", got)
	}
	l.Succeeds("DEL", configs[0], "CNI_IFNAME=eth1")
	for name, edit := range map[string]func(*netlink.Vxlan){
		"another port": func(v *netlink.Vxlan) { v.Port = 4789 }, "another's": func(v *netlink.Vxlan) { v.Alias = "unnest:segment:c2/eth0" },
	} {
		l.Must(l.Pod.Do(func(ns.NetNS) error {
			v := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, VxlanId: 7, Port: loopback.TunnelPort}
			edit(v)
			return errors.Join(netlink.LinkAdd(v), netlink.LinkSetAlias(v, v.Alias))
		}))
		l.Succeeds("DEL", configs[0])
		if got := l.Links(l.Pod); len(got) != 1 {
			t.Errorf("%s: the pod has links %v, want eth0", name, got)
		}
		l.InPod("eth0", netlink.LinkDel)
	}
}
