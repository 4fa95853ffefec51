package lab

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// freshRun is a script in a mount namespace with an empty /run, as after a boot.
const freshRun = `mount --make-rprivate / && mount -t tmpfs run /run && exec "$@"`

// A name can be removed also after iproute2 has made its first one.
func TestNamesBesideIPRoute(t *testing.T) {
	privileged(t)
	if os.Getenv("UNNEST_FRESH_RUN") == "" {
		c := exec.Command("unshare", "--mount", "sh", "-c", freshRun, "sh", os.Args[0], "-test.run=^TestNamesBesideIPRoute$")
		c.Env = append(os.Environ(), "UNNEST_FRESH_RUN=1")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	if err := newNS("ours"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", "theirs").CombinedOutput(); err != nil {
		t.Fatalf("ip netns add: %v: %s", err, out)
	}
	if err := deleteNS("ours"); err != nil {
		t.Error(err)
	}
	if out, err := exec.Command("ip", "netns", "del", "theirs").CombinedOutput(); err != nil {
		t.Errorf("ip netns del: %v: %s", err, out)
	}
	names, err := os.ReadDir(nsDir)
	if err != nil || len(names) > 0 {
		t.Errorf("%s has %v, %v; want nothing", nsDir, names, err)
	}
}

// Clients have addresses of their own, which the host's side sees, and the guests' side answers.
func TestAddClients(t *testing.T) {
	privileged(t)
	t.Setenv("UNNEST_STATE", t.TempDir())
	l, err := Create("clients")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	addresses, err := l.AddClients(3)
	if err != nil || len(addresses) != 3 {
		t.Fatal(addresses, err)
	}
	var server net.Listener
	if err := Do(l.HostNS(), func() error { server, err = net.Listen("tcp", TenantGateway+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, address := range addresses {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: time.Minute}
		err := Do(l.ClientNS(), func() error {
			conn, err := from.Dial("tcp", server.Addr().String())
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := net.SplitHostPort(conn.RemoteAddr().String()); got != address {
			t.Errorf("the server sees %s, want %s", got, address)
		}
		conn.Close()
	}
}
