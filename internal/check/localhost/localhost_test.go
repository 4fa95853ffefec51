package localhost_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/check/localhost"
	"unnest.io/unnest/internal/check/localhost/agent"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/testbed/place"
)

// Fractions in one network namespace are one loopback, so that no case may fail. This
// validates the cases, not an implementation.
func TestOneNamespacePasses(t *testing.T) {
	t.Parallel() // waits most of the time
	for _, count := range []int{2, 8} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			n := newNamespace(t)
			fractions := n.fractions(t, count)
			if count > 2 { // the same code on more agents
				fractions = n.fractionsOf(cnitest.Plain(t), count)
			}
			outcomes := outcomesOf(t, localhost.Options{Fractions: fractions, Patience: 3 * time.Second})
			for _, out := range outcomes {
				if out.Verdict() == localhost.Fail && patiently(t, fractions, out.Case).Verdict() == localhost.Fail {
					t.Errorf("%s: %v", out.Case, out.Err)
				}
			}
			if len(outcomes) != len(localhost.Names()) {
				t.Errorf("%d of %d cases ran", len(outcomes), len(localhost.Names()))
			}
		})
	}
}

// patiently runs a case again, as an immediate event takes seconds on a busy machine.
func patiently(t *testing.T, fractions []localhost.Fraction, name string) localhost.Outcome {
	t.Helper()
	only := regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$")
	outcomes := outcomesOf(t, localhost.Options{Fractions: fractions, Patience: time.Minute, Only: only})
	if len(outcomes) != 1 {
		t.Fatalf("%s ran %d times", name, len(outcomes))
	}
	return outcomes[0]
}

// In namespaces without a connection, exactly the cases that need one fail.
func TestSeparateNamespacesFail(t *testing.T) {
	t.Parallel() // waits most of the time
	fractions := slices.Concat(newNamespace(t).fractions(t, 1), newNamespace(t).fractions(t, 1))
	alone := 0
	for _, out := range outcomesOf(t, localhost.Options{Fractions: fractions, Patience: 200 * time.Millisecond}) {
		want := localhost.Fail
		switch {
		case out.Verdict() == localhost.NotThere:
			continue
		case out.Alone:
			want = localhost.Pass
			alone++
			if out.Verdict() != want {
				out = patiently(t, fractions, out.Case)
			}
		}
		if out.Verdict() != want {
			t.Errorf("%s: %s, want %s: %v", out.Case, out.Verdict(), want, out.Err)
		}
	}
	if alone == 0 {
		t.Error("no case is marked as one that passes without a connection")
	}
}

// faults are faults of a loopback and the cases that must detect them.
var faults = []struct {
	name  string
	cases string
	rules []string // of nft, for incoming packets
	make  func(*testing.T, namespace)
}{
	{name: "resets are lost",
		cases: "^tcp/.*/(dead-port-|thousands-of-connects-|port-of-a-(stopped|killed)-|reset-of-the-client-|server-moves-)|^(address|own)/.*/dead-port",
		rules: []string{"tcp flags & rst == rst drop"}},
	{name: "refusals of UDP are lost",
		cases: "^udp/.*/(dead-port-|first-datagram-|server-moves-with-)|^(address|own)/.*/dead-port",
		rules: []string{"icmp type destination-unreachable drop", "icmpv6 type destination-unreachable drop"}},
	{name: "pings are not answered",
		cases: "/(every-request-has|large-requests-have|ping-of-.*-has)-one-reply$",
		rules: []string{"icmp type echo-reply drop", "icmpv6 type echo-reply drop"}},
	{name: "pings are answered twice",
		cases: "/(every-request-has|large-requests-have|ping-of-.*-has)-one-reply$",
		make:  answerPings},
	{name: "some connects are reset",
		cases: "^tcp/.*/(many-short-|simultaneous-)",
		rules: []string{"tcp dport 20000-32767 tcp flags & (syn|ack) == syn numgen inc mod 20 == 0 reject with tcp reset"}},
	{name: "most connects are reset",
		cases: "^tcp/.*/full-backlog-",
		rules: []string{"tcp dport 20000-32767 tcp flags & (syn|ack) == syn numgen inc mod 4 > 0 reject with tcp reset"}},
	{name: "some datagrams are lost",
		cases: "^udp/.*/one-way-",
		rules: []string{"udp dport 20000-32767 numgen inc mod 100 == 0 drop"}},
	{name: "the largest packets are lost",
		cases: "^udp/.*/largest-",
		rules: []string{"meta l4proto udp meta length > 65510 drop"}},
	{name: "streams stall",
		cases: "^tcp/.*/(bulk-|large-|server-that-half-closes-|traffic-within-)",
		rules: []string{"meta l4proto tcp quota over 4 mbytes drop"}},
	{name: "servers are not reached",
		cases: "/server-(is-reached-by|answers)-its-own-fraction$",
		rules: []string{"tcp dport 20000-32767 drop", "udp dport 20000-32767 drop"}},
	{name: "other interfaces have traffic",
		cases: "^tcp/.*/traffic-within-",
		make:  flood},
	{name: "addresses are in use",
		cases: "^bind/.*/(tcp-and-udp-do|two-addresses-do)-not-conflict$",
		make:  takeAddresses},
}

// Cases fail on a loopback with a fault.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // waits most of the time
			n := newNamespace(t)
			if f.rules != nil {
				n.nft(t, f.rules...)
			}
			if f.make != nil {
				f.make(t, n)
			}
			for _, out := range outcomesOf(t, localhost.Options{Fractions: n.fractions(t, 2), Only: regexp.MustCompile(f.cases), Patience: 200 * time.Millisecond}) {
				if out.Verdict() != localhost.Fail {
					t.Errorf("%s: %s, want it to fail", out.Case, out.Verdict())
				}
			}
		})
	}
}

// Each case that passes without a connection fails with some fault.
func TestEveryCaseCanFail(t *testing.T) {
	fractions := slices.Concat(newNamespace(t).fractions(t, 1), newNamespace(t).fractions(t, 1))
	pattern := regexp.MustCompile("^(ping|bind)/|own-fraction|dead-port|within-a-fraction|first-datagram|one-reply")
	for _, out := range outcomesOf(t, localhost.Options{Fractions: fractions, Only: pattern, Patience: 200 * time.Millisecond}) {
		if !out.Alone {
			continue
		}
		found := false
		for _, f := range faults {
			found = found || regexp.MustCompile(f.cases).MatchString(out.Case)
		}
		if !found {
			t.Errorf("%s: passes without a connection, and no fault in the table makes it fail", out.Case)
		}
	}
}

// answerPings sends a second reply to each request.
func answerPings(t *testing.T, n namespace) {
	for _, f := range []struct {
		network string
		proto   int
		request icmp.Type
		reply   icmp.Type
	}{
		{"ip4:icmp", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply},
		{"ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply},
	} {
		var c *icmp.PacketConn
		n.inside(t, func() (err error) {
			c, err = icmp.ListenPacket(f.network, "")
			return err
		})
		t.Cleanup(func() { c.Close() })
		go func() {
			for buffer := make([]byte, 1<<16); ; {
				size, from, err := c.ReadFrom(buffer)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				m, err := icmp.ParseMessage(f.proto, buffer[:size])
				if err != nil || m.Type != f.request {
					continue
				}
				m.Type = f.reply
				if text, err := m.Marshal(nil); err == nil {
					_, _ = c.WriteTo(text, from)
				}
			}
		}()
	}
}

// flood sends continuously over a pair of interfaces.
func flood(t *testing.T, n namespace) {
	var c net.Conn
	n.inside(t, func() (err error) {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "flood0", MTU: 1500, TxQLen: 1000}, PeerName: "flood1"}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		for _, name := range []string{"flood0", "flood1"} {
			if err := netlink.LinkSetUp(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
		}
		link, err := netlink.LinkByName("flood0")
		if err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.9.8.1/24")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return err
		}
		if err := netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT,
			IP: net.ParseIP("10.9.8.2"), HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 2}}); err != nil {
			return err
		}
		c, err = net.Dial("udp", "10.9.8.2:9")
		return err
	})
	ended := make(chan struct{})
	t.Cleanup(func() { c.Close(); <-ended })
	go func() {
		defer close(ended)
		for content := make([]byte, 1400); ; {
			if _, err := c.Write(content); errors.Is(err, net.ErrClosed) {
				return
			}
		}
	}()
}

// takeAddresses binds the addresses of the first servers.
func takeAddresses(t *testing.T, n namespace) {
	n.inside(t, func() error {
		for port := 20000; port < 20010; port++ {
			for _, host := range []string{"127.0.0.1", "127.0.0.2", "::1"} {
				at := net.JoinHostPort(host, fmt.Sprint(port))
				l, err := net.Listen("tcp", at)
				if err != nil {
					return err
				}
				t.Cleanup(func() { l.Close() })
				p, err := net.ListenPacket("udp", at)
				if err != nil {
					return err
				}
				t.Cleanup(func() { p.Close() })
			}
		}
		return nil
	})
}

// An agent that dies ends the run quickly, and the error names its fraction.
func TestLostAgent(t *testing.T) {
	n := newNamespace(t)
	fractions := n.fractions(t, 2)
	file := filepath.Join(t.TempDir(), "pid")
	fractions[1].Args = []string{"sh", "-c", `echo $$ >"$1"; exec "$0" agent`, fractions[1].Args[0], file}
	kill := sync.OnceFunc(func() {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	})
	start := time.Now()
	err := localhost.Run(t.Context(), localhost.Options{Fractions: fractions, Only: regexp.MustCompile("^(ping|tcp)/"), Patience: time.Second},
		func(localhost.Outcome) { kill() })
	if !errors.Is(err, agent.ErrLost) || !strings.Contains(err.Error(), "fraction 2 is lost") {
		t.Errorf("got %v, want fraction 2 lost", err)
	}
	if took := time.Since(start); took > 2*time.Minute {
		t.Errorf("Run returned after %v, want at most 2 min", took)
	}
}

func TestCommandThatIsNotAnAgent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	good := localhost.Fraction{Place: place.Local{}, Args: []string{exe, "agent"}}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sh", "-c", "echo no such guest >&2; exit 4"}, "exit code 4: no such guest"},
		{[]string{"echo", "hello"}, "read a reply: "},
		{[]string{"/no/such/program"}, "start /no/such/program"},
		{[]string{"sh", "-c", "cat >/dev/null"}, "no answer after 6s"},
	} {
		bad := localhost.Fraction{Place: place.Local{}, Args: c.args}
		err := localhost.Run(t.Context(), localhost.Options{Fractions: []localhost.Fraction{good, bad}, Patience: 100 * time.Millisecond},
			func(o localhost.Outcome) { t.Errorf("%q: reported %v", c.args, o) })
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "fraction 2: ") {
			t.Errorf("%q: got %v, want %q from fraction 2", c.args, err, c.want)
		}
	}
}

func TestInterrupted(t *testing.T) {
	n := newNamespace(t)
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	reported := 0
	err := localhost.Run(ctx, localhost.Options{Fractions: n.fractions(t, 2)}, func(localhost.Outcome) {
		if reported++; reported == 3 {
			cancel(why)
		}
	})
	if !errors.Is(err, why) || reported != 3 {
		t.Errorf("got %v after %d outcomes, want the cause after 3", err, reported)
	}
}

func TestWrongOptions(t *testing.T) {
	two := make([]localhost.Fraction, 2)
	for want, o := range map[string]localhost.Options{
		"want at least 2 fractions, got 1":   {Fractions: two[:1]},
		"patience -1s: want a positive time": {Fractions: two, Patience: -time.Second},
		"first port 40000":                   {Fractions: two, FirstPort: 40000},
	} {
		if err := localhost.Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// --run and --skip select cases by these names.
func TestNames(t *testing.T) {
	shape := regexp.MustCompile(`^(ping|tcp|udp|address|own|bind|programs)/ipv[46]/[a-zA-Z0-9.-]+$`)
	seen := map[string]bool{}
	for _, name := range localhost.Names() {
		if seen[name] || !shape.MatchString(name) {
			t.Errorf("%q: occurs twice, or is not GROUP/FAMILY/NAME", name)
		}
		seen[name] = true
	}
}
