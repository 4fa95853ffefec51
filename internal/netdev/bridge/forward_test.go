package bridge

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
)

// dockerize does what Docker does when it starts: it turns bridge-nf-call on, adds its bridge, and
// drops what no rule accepts.
func (h *host) dockerize() {
	h.t.Helper()
	for _, c := range bridgeCalls {
		h.check(os.WriteFile("/proc/sys/"+c.file, []byte("1"), 0))
	}
	h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0"}}))
	h.nft("add table ip filter\nadd chain ip filter FORWARD { type filter hook forward priority filter; policy drop; }\n"+
		"add chain ip filter DOCKER-USER\nadd rule ip filter FORWARD jump DOCKER-USER\n", "-f", "-")
}

// Docker starts after the daemon: pods of one bridge reach each other again, and docker0 stays as
// Docker wants it. What it drops between networks is found, until the operator accepts the bridge.
func TestDockerOnHost(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(h.ensure([]Network{red}))
		a := h.attach("r1", "red", []string{"10.1.0.2/16"}, "10.1.0.1")
		h.attach("r2", "red", []string{"10.1.0.3/16"}, "10.1.0.1")
		if !h.pings(a, "10.1.0.3") {
			t.Fatal("pods do not reach each other")
		}
		if on, err := StopCalls([]string{"red"}); err != nil || len(on) > 0 {
			t.Errorf("before: got %v, %v", on, err)
		}
		h.dockerize()
		if h.pingsWithin(a, "10.1.0.3", time.Second) {
			t.Error("pods reach each other while bridge-nf-call is on: the test proves nothing")
		}
		on, err := StopCalls([]string{"red"})
		if err != nil || !slices.Equal(on, []string{bridgeCalls[0].file, bridgeCalls[1].file}) {
			t.Errorf("got %v, %v", on, err)
		}
		if !h.pings(a, "10.1.0.3") {
			t.Error("pods do not reach each other again")
		}
		h.wantCallsOf(map[string]string{"docker0": "1", "red": "0"})
		d, err := Droppers()
		if err != nil || len(d) != 1 || d[0].String() != "ip filter FORWARD" || d[0].Names("red") {
			t.Fatalf("got %v, %v, want ip filter FORWARD", d, err)
		}
		h.nft(`add rule ip filter DOCKER-USER iifname "red" accept`, "-f", "-")
		if d, err := Droppers(); err != nil || len(d) != 1 || !d[0].Names("red") || d[0].Names("blue") {
			t.Errorf("after the bridge is accepted: got %v, %v", d, err)
		}
		h.nft("add chain ip filter FORWARD { type filter hook forward priority filter; policy accept; }", "-f", "-")
		if d, err := Droppers(); err != nil || len(d) != 0 {
			t.Errorf("with the policy accept: got %v, %v", d, err)
		}
	})
}

// Docker starts before the daemon: docker0 stays as Docker wants it, also when Ensure fails.
func TestDockerBefore(t *testing.T) {
	inHost(t, func(h *host) {
		h.dockerize()
		for _, name := range []string{"own", "further"} {
			h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
		}
		further := red
		further.Further = []string{"further"}
		if err := h.ensure([]Network{further, {Bridge: "none"}}); err == nil {
			t.Error("Ensure does not fail: the test shows nothing")
		}
		if on, err := Called(); err != nil || len(on) != len(bridgeCalls) {
			t.Errorf("after Ensure has failed: %v on, %v", on, err)
		}
		h.check(h.ensure([]Network{further, own}))
		if on, err := Called(); err != nil || len(on) != 0 {
			t.Errorf("after Ensure: %v on, %v", on, err)
		}
		h.wantCallsOf(map[string]string{"docker0": "1", "red": "0", "own": "0", "further": "0"})
		further.Further = []string{"further", "docker0"} // a tenant's from now on
		h.check(h.ensure([]Network{further, own}))
		h.wantCallsOf(map[string]string{"docker0": "0"})
	})
}

// wantCallsOf checks what bridges pass to the rules of the IP layer.
func (h *host) wantCallsOf(bridges map[string]string) {
	h.t.Helper()
	for _, file := range []string{"nf_call_iptables", "nf_call_ip6tables"} {
		for bridge, want := range bridges {
			if got := h.calls(bridge, file); got != want {
				h.t.Errorf("%s of %s is %s, want %s", file, bridge, got, want)
			}
		}
	}
}

// calls reads a setting of a bridge by netlink: the test's sysfs is that of another namespace.
func (h *host) calls(bridge, setting string) string {
	h.t.Helper()
	out, err := exec.Command("ip", "-d", "link", "show", "dev", bridge).CombinedOutput()
	h.check(err)
	_, rest, _ := strings.Cut(string(out), " "+setting+" ")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// As iptables-nft writes a rule with -i.
func TestInterfacesOfRule(t *testing.T) {
	padded := append([]byte("br0"), make([]byte, 13)...)
	r := &nftables.Rule{Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Register: 1, Data: padded},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{6}},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Register: 1, Data: []byte("br1")},
	}}
	if got := interfaces(r); !slices.Equal(got, []string{"br0", "br1"}) {
		t.Errorf("got %v", got)
	}
}
