package bridge

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// nft runs the program nft with a script.
func (h *host) nft(script string, args ...string) string {
	h.t.Helper()
	c := exec.Command("nft", args...)
	c.Stdin = strings.NewReader(script)
	out, err := c.CombinedOutput()
	if err != nil {
		h.t.Fatalf("nft %s: %v\n%s%s", strings.Join(args, " "), err, out, script)
	}
	return string(out)
}

// fixed returns a list of rules without what packets change: counters, and the elements of
// dynamic sets.
func fixed(rules string) string {
	rules = regexp.MustCompile(`(flags dynamic[^{}]*)elements = \{[^}]*\}`).ReplaceAllString(rules, "$1")
	return regexp.MustCompile(`packets \d+ bytes \d+`).ReplaceAllString(rules, "")
}

// Tenants stay separate when nft saves and restores the rules. Ensure takes these
// rules over, and whatever else has the name of its table.
func TestRestore(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "own"}}))
		h.address("own", "10.3.0.1/16", "fd03::1/64")
		networks := []Network{guarded(red, Guard{Ports: []HostPort{{unix.IPPROTO_TCP, 8000}}, Connections: 64 * 100}), guarded(blue, Guard{}), own}
		lost := 0
		h.filter.Lost = func(err error) { t.Log(err); lost++ }
		h.check(h.ensure(networks))
		h.check(h.ensure(networks))
		if lost != 0 {
			t.Errorf("counts are lost %d times by an Ensure of the same networks", lost)
		}
		pod := h.attach("r1", "red", []string{"10.1.0.2/16", "fd01::2/64"}, "10.1.0.1", "fd01::1")
		outside := h.attach("uplink", "", []string{"192.0.2.2/24"}, "192.0.2.1")
		h.address("uplink", "192.0.2.1/24")
		h.serve()
		h.listen("8001")
		h.in(pod, h.serve)
		blue1 := h.attach("b1", "blue", []string{"10.2.0.2/16", "fd02::2/64"}, "10.2.0.1", "fd02::1")
		own1 := h.attach("o1", "own", []string{"10.3.0.2/16", "fd03::2/64"}, "10.3.0.1", "fd03::1")
		h.in(blue1, h.serve)
		h.in(own1, h.serve)
		h.in(outside, h.serve)
		isolated := func(what string) {
			t.Helper()
			for _, to := range []string{"10.2.0.1", "fd02::1", "10.2.0.2", "fd02::2", "10.3.0.2", "fd03::2"} {
				if got := h.call(pod, to, 200*time.Millisecond); got != "" {
					t.Errorf("%s: red reaches %s", what, to)
				}
			}
			if got := h.call(pod, "192.0.2.2", reachLimit); got != "192.0.2.1" {
				t.Errorf("%s: red calls the outside: seen as %q, want 192.0.2.1", what, got)
			}
			if got := h.call(pod, "fd01::1", reachLimit); got != "fd01::2" {
				t.Errorf("%s: red calls its gateway: seen as %q", what, got)
			}
			if h.connects(pod, "10.1.0.1:8001", 200*time.Millisecond) {
				t.Errorf("%s: red reaches a port of the host that is not listed", what)
			}
			if h.call(outside, "10.1.0.2", reachLimit) == "" {
				t.Errorf("%s: red cannot be called", what)
			}
		}
		isolated("at first") // fills the sets that the rules change
		h.in(pod, func() {   // the kernel forgets connections that both ends have closed
			c, err := net.DialTimeout("tcp", "192.0.2.2:8000", reachLimit)
			h.check(err)
			t.Cleanup(func() { c.Close() })
		})
		h.send(outside, "udp", 1, []string{"10.1.77.7:9"})
		list := func() string { return fixed(h.nft("", "list", "ruleset")) }
		saved := h.nft("", "list", "ruleset")
		for _, set := range []string{"alive4", "asked4", "askers", "sources4", "connections-726564-6400", "rates-726564-6400"} {
			if _, elements, _ := strings.Cut(saved, "set "+set+" {"); !strings.Contains(elements[:strings.Index(elements, "}")], "elements") {
				t.Errorf("set %s is empty: the test shows nothing", set)
			}
		}
		for _, address := range []string{" 10.1.0.1,", "10.2.0.1 }", "fd01::1,"} {
			if _, elements, _ := strings.Cut(saved, "set gateways"); !strings.Contains(elements, address) {
				t.Errorf("gateway %s is not in\n%s", address, saved)
			}
		}
		h.nft("flush ruleset\n"+saved, "-f", "-")
		if got, saved := list(), fixed(saved); got != saved {
			t.Errorf("restored rules differ: (-saved +restored)\n%s", cmp.Diff(saved, got))
		}
		isolated("restored")
		h.check(h.ensure(networks))
		isolated("restored, ensured")
		h.nft(saved, "-f", "-") // every rule twice
		isolated("restored twice")
		h.check(h.ensure(networks))
		if got := h.nft("", "list", "ruleset"); strings.Count(got, "masquerade") != strings.Count(saved, "masquerade") {
			t.Errorf("rules stand twice:\n%s", got)
		}
		h.nft(`flush ruleset
			table inet unnest-tenants {
				flags dormant
				set bridges { type ipv4_addr; flags interval; elements = { 10.0.0.0/8 } }
				set gateways4 { type ifname; }
				map pairs { type ifname : verdict; elements = { "red" : accept } }
				chain forward { type filter hook input priority 5; policy drop; }
				chain postrouting { type filter hook postrouting priority 0; policy drop; }
				chain mine { accept; }
			}`, "-f", "-")
		lost = 0
		h.check(h.ensure(networks))
		if lost != 1 {
			t.Errorf("nobody is told that another table was replaced, %d times", lost)
		}
		isolated("another table taken over")
	})
}

// Whatever others do to the rules, tenants are separate again. Package nft tests how soon.
func TestWatch(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(h.ensure([]Network{red, blue}))
		pod := h.attach("r1", "red", []string{"10.1.0.2/16"}, "10.1.0.1")
		h.in(h.attach("b1", "blue", []string{"10.2.0.2/16"}, "10.2.0.1"), h.serve)
		saved := h.nft("", "list", "ruleset")
		h.nft(`insert rule inet unnest-tenants forward accept comment "start"`, "-f", "-") // for a start that shows
		ctx, stop := context.WithCancel(t.Context())
		ended, restores := make(chan error), make(chan error, 100)
		go func() {
			ended <- h.filter.Watch(ctx, func(_ nft.Generation, err error) { restores <- err })
		}()
		defer func() {
			stop()
			h.check(<-ended)
		}()
		// A connection tells neither: on a busy machine it may fail before the watch begins, and be
		// made after a restore of an event that was late.
		eventually := func(what string, f func() bool) {
			t.Helper()
			for begin := time.Now(); !f(); time.Sleep(10 * time.Millisecond) {
				if time.Since(begin) > reachLimit {
					t.Fatalf("not within %v: %s", reachLimit, what)
				}
			}
		}
		separate := func() bool { return h.call(pod, "10.2.0.2", 300*time.Millisecond) == "" }
		eventually("the watch begins", func() bool {
			return !strings.Contains(h.nft("", "list", "table", "inet", "unnest-tenants"), `comment "start"`)
		})
		eventually("red does not reach blue before a change", separate)
		for _, change := range []string{
			"flush ruleset",
			"delete table inet unnest-tenants",
			"flush chain inet unnest-tenants forward",
			"insert rule inet unnest-tenants forward accept",
			`add element inet unnest-tenants pairs { "red" . "blue" }`,
			"flush ruleset\n" + saved,
		} {
			for len(restores) > 0 {
				h.check(<-restores)
			}
			h.nft(change, "-f", "-")
			select {
			case err := <-restores:
				h.check(err)
			case <-time.After(reachLimit):
				t.Errorf("%.40s: not restored", change)
			}
			eventually(fmt.Sprintf("%.40s: red does not reach blue", change), separate)
		}
		h.check(h.ensure([]Network{red, blue}))
		select {
		case err := <-restores:
			t.Errorf("restored after a change of our own: %v", err)
		case <-time.After(time.Second):
		}
	})
}
