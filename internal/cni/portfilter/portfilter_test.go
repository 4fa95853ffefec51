package portfilter

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/thread"
)

// world is a container behind a guest, with a daemon and another server on the host.
type world struct {
	t                      *testing.T
	host, guest, container ns.NetNS
}

const (
	daemonPort = 7443
	otherPort  = 7444
)

var hosts = []string{"10.200.0.1", "fd00:c8::1"}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	w := &world{t: t}
	for _, n := range []*ns.NetNS{&w.host, &w.guest, &w.container} {
		made, err := ns.TempNetNS()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { made.Close() })
		*n = made
	}
	link := func(a, b ns.NetNS, name, addrA, addrB string) {
		w.run(a, fmt.Sprintf(`ip link add %[1]s type veth peer name %[1]s netns /proc/self/fd/3
			ip link set %[1]s up`, name), b)
		for i, n := range []ns.NetNS{a, b} {
			addrs := strings.Fields([]string{addrA, addrB}[i])
			w.run(n, fmt.Sprintf(`ip link set lo up; ip link set %[1]s up; ip addr add %[2]s dev %[1]s; ip addr add %[3]s dev %[1]s nodad`, name, addrs[0], addrs[1]))
		}
	}
	link(w.guest, w.host, "up0", "10.200.0.2/24 fd00:c8::2/64", "10.200.0.1/24 fd00:c8::1/64")
	link(w.guest, w.container, "down0", "172.17.0.1/24 fd00:17::1/64", "172.17.0.2/24 fd00:17::2/64")
	w.run(w.guest, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1")
	w.run(w.guest, `nft add table inet user
		nft add chain inet user nat '{ type nat hook postrouting priority srcnat; }'
		nft add rule inet user nat oifname up0 masquerade
		nft add chain inet user output '{ type filter hook output priority 0; policy accept; }'`)
	w.run(w.container, "ip route add default via 172.17.0.1; ip -6 route add default via fd00:17::1")
	for _, port := range []int{daemonPort, otherPort} {
		for _, host := range hosts {
			w.serve(host, port)
		}
	}
	return w
}

// run runs a script in a namespace. The script has another namespace as descriptor 3.
func (w *world) run(n ns.NetNS, script string, more ...ns.NetNS) string {
	w.t.Helper()
	c := exec.Command("sh", "-ec", script)
	for _, m := range more {
		fd, err := unix.FcntlInt(m.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			w.t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "netns")
		defer f.Close()
		c.ExtraFiles = append(c.ExtraFiles, f)
	}
	var out []byte
	if err := n.Do(func(ns.NetNS) (err error) {
		out, err = c.CombinedOutput()
		return err
	}); err != nil {
		w.t.Fatalf("%s: %v: %s", script, err, out)
	}
	return string(out)
}

func (w *world) serve(host string, port int) {
	w.t.Helper()
	if err := w.host.Do(func(ns.NetNS) error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port)).String())
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// connect connects from a namespace as a user.
func connect(n ns.NetNS, uid int, host string, port int) error {
	return thread.Do(func() error { // which ends, because its user has changed
		err := n.Set()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); err == nil && errno != 0 {
			err = errno
		}
		if err == nil {
			var c net.Conn
			c, err = net.DialTimeout("tcp", netip.AddrPortFrom(netip.MustParseAddr(host), uint16(port)).String(), time.Minute)
			if err == nil {
				err = c.Close()
			}
		}
		return err
	})
}

// want fails unless only root of the guest reaches the daemon, and all reach the other port.
func (w *world) want(when string, filtered bool) {
	w.t.Helper()
	for _, host := range hosts {
		for _, c := range []struct {
			who     string
			from    ns.NetNS
			uid     int
			refused bool
		}{{"root", w.guest, 0, false}, {"user", w.guest, 65534, true}, {"container", w.container, 0, true}} {
			err := connect(c.from, c.uid, host, daemonPort)
			if refused := errors.Is(err, unix.ECONNREFUSED); refused != (c.refused && filtered) || err != nil && !refused {
				w.t.Errorf("%s: %s connects to the daemon at %s: got %v, want refused %v", when, c.who, host, err, c.refused && filtered)
			}
			if err := connect(c.from, c.uid, host, otherPort); err != nil {
				w.t.Errorf("%s: %s connects to another port of %s: %v", when, c.who, host, err)
			}
		}
	}
}

func (w *world) ensure() {
	w.t.Helper()
	if err := w.guest.Do(func(ns.NetNS) error {
		for _, host := range hosts {
			if err := Ensure(netip.AddrPortFrom(netip.MustParseAddr(host), daemonPort)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
}

// Containers without a key, and users of the guest, do not reach the daemon's port.
func TestOnlyRootReachesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.want("without the rules", false)
	w.ensure()
	w.want("with the rules", true)
}

// The rules are added once, come back after they were flushed, survive save and restore
// with nft, and leave the user's table alone.
func TestRulesLast(t *testing.T) {
	w := newWorld(t)
	user := w.run(w.guest, "nft list table inet user")
	w.ensure()
	saved := w.run(w.guest, "nft list table inet "+tableName)
	if n := strings.Count(saved, "reject with tcp reset"); n != 4 {
		t.Errorf("%d rules, want 4:\n%s", n, saved)
	}
	w.ensure()
	if again := w.run(w.guest, "nft list table inet "+tableName); again != saved {
		t.Errorf("a second time:\n%s\nfirst:\n%s", again, saved)
	}
	w.run(w.guest, "nft list ruleset >/tmp/portfilter.$$; (echo flush ruleset; cat /tmp/portfilter.$$) | nft -f -; rm /tmp/portfilter.$$")
	w.ensure()
	if again := w.run(w.guest, "nft list table inet "+tableName); again != saved {
		t.Errorf("restored:\n%s\nsaved:\n%s", again, saved)
	}
	if got := w.run(w.guest, "nft list table inet user"); got != user {
		t.Errorf("the user's table is:\n%s\nwas:\n%s", got, user)
	}
	w.run(w.guest, "nft flush chain inet "+tableName+" forward")
	w.ensure()
	w.want("after a chain was flushed", true)
}

func TestLoopback(t *testing.T) {
	if err := Ensure(netip.MustParseAddrPort("127.0.0.1:7443")); err != nil {
		t.Error(err)
	}
}
