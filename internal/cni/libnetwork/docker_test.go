package libnetwork_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
)

const webserver = "busybox mkdir -p /tmp/w && echo hello from $HOSTNAME >/tmp/w/index.html && exec busybox httpd -f -p 80 -h /tmp/w"

// fetch gets a page in a network namespace.
func (l *lab) fetch(n ns.NetNS, address string) (page string, err error) {
	err = n.Do(func(ns.NetNS) error {
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			return err
		}
		content, err := io.ReadAll(c)
		page = string(content)
		return err
	})
	return page, err
}

// serves waits until a page of a container can be fetched.
func (l *lab) serves(n ns.NetNS, address, host string) {
	l.t.Helper()
	l.until("fetch "+address, func() error {
		page, err := l.fetch(n, address)
		if err == nil && !strings.Contains(page, "hello from "+host) {
			err = fmt.Errorf("got %q", page)
		}
		return err
	})
}

func (l *lab) createNetwork(args ...string) {
	l.t.Helper()
	l.do(append(append([]string{"network", "create", "-d", "unnest", "--ipam-driver", "unnest"}, args...), "pods")...)
}

func (l *lab) inspect(format, name string) string {
	l.t.Helper()
	return l.do("inspect", "-f", format, name)
}

// A container has a NIC of the host with the daemon's addresses, which Docker shows, and gives it back.
func TestRun(t *testing.T) {
	l := newLab(t)
	l.createNetwork()
	l.do("run", "-d", "--name", "web", "--hostname", "web", "--network", "pods", "-p", "8080:80", "box", "sh", "-c", webserver)
	at := "{{with .NetworkSettings.Networks.pods}}{{.IPAddress}} {{.IPPrefixLen}} {{.Gateway}} {{.GlobalIPv6Address}} {{.IPv6Gateway}} {{.MacAddress}}{{end}}"
	if got, want := l.inspect(at, "web"), "10.201.1.1 16 10.201.0.1 fd00:201::1:1 fd00:201::1 02:00:00:00:00:01"; got != want {
		t.Errorf("docker inspect: got %s, want %s", got, want)
	}
	for _, address := range []string{"10.201.1.1:80", "[fd00:201::1:1]:80", "10.201.0.8:8080", "[fd00:201::8]:8080"} {
		l.serves(l.Host, address, "web")
	}
	if got := l.do("exec", "web", "busybox", "cat", "/sys/class/net/eth0/mtu", "/sys/class/net/eth0/address"); got != "1400\n02:00:00:00:00:01" {
		t.Errorf("eth0 has %q", got)
	}
	// Docker's DNS, and an alias.
	l.do("run", "--rm", "--network", "pods", "box", "busybox", "wget", "-qO-", "http://web/")
	l.do("network", "create", "-d", "unnest", "--ipam-driver", "unnest", "second")
	l.do("run", "-d", "--name", "client", "--network", "pods", "--network-alias", "c", "box", "sleep", "1000")
	l.do("exec", "web", "busybox", "ping", "-c1", "-w10", "c")
	l.do("exec", "web", "busybox", "ping", "-c1", "-w10", gateway4)
	// Both networks have the tenant's subnet.
	l.fails("conflicts with existing route", "network", "connect", "second", "client")
	// Without a NIC a container keeps running, and gets another one.
	l.do("network", "disconnect", "pods", "client")
	if links := l.do("exec", "client", "busybox", "ls", "/sys/class/net"); links != "lo" {
		t.Errorf("the container has %s, want lo", links)
	}
	l.do("network", "connect", "pods", "client")
	l.do("exec", "client", "busybox", "ping", "-c1", "-w10", "web")
	l.do("network", "disconnect", "-f", "pods", "client")
	l.do("rm", "-f", "web", "client")
	l.wantNoNICs()
	if page, err := l.fetch(l.Host, "10.201.0.8:8080"); err == nil {
		t.Errorf("port 8080 is still published: %s", page)
	}
	l.do("network", "rm", "pods", "second")
}

// A container has the MAC that its user chooses, also after a stop and a start.
func TestMACAddress(t *testing.T) {
	l := newLab(t)
	l.createNetwork()
	l.do("run", "-d", "--name", "web", "--network", "pods", "--mac-address", "02:42:00:00:00:99", "box", "sh", "-c", webserver)
	for range 2 {
		if got := l.inspect("{{.NetworkSettings.Networks.pods.MacAddress}}", "web"); got != "02:42:00:00:00:99" {
			t.Errorf("docker inspect has the MAC %s", got)
		}
		if got := l.do("exec", "web", "busybox", "cat", "/sys/class/net/eth0/address"); got != "02:42:00:00:00:99" {
			t.Errorf("eth0 has the MAC %s", got)
		}
		l.do("exec", "web", "busybox", "ping", "-c1", "-w10", gateway4)
		l.do("stop", "-t0", "web")
		l.wantNoNICs()
		l.do("start", "web")
	}
	l.do("rm", "-f", "web")
	l.wantNoNICs()
}

// Requests that Docker can make and the driver cannot fulfil say what to change, and leave nothing.
func TestRefusals(t *testing.T) {
	l := newLab(t)
	create := []string{"network", "create", "-d", "unnest"}
	with := func(args ...string) []string { return append(append(create[:4:4], args...), "n") }
	l.fails("add --ipam-driver unnest", with()...)
	l.fails("--ip-range", with("--ipam-driver", "unnest", "--subnet", "10.201.0.0/16", "--ip-range", "10.201.7.0/24")...)
	l.fails("want the tenant's, 10.201.0.0/16", with("--ipam-driver", "unnest", "--subnet", "10.9.0.0/16")...)
	l.fails("the host's is 10.201.0.1", with("--ipam-driver", "unnest", "--subnet", "10.201.0.0/16", "--gateway", "10.201.0.7")...)
	l.fails("--ipv6: leave it out", with("--ipam-driver", "unnest", "--ipv6")...)
	l.fails("--internal: leave it out", with("--ipam-driver", "unnest", "--internal")...)
	l.fails("a BrFusion network has none", with("--ipam-driver", "unnest", "-o", "mtu=1400")...)
	l.fails("add --ipam-driver null", with("-o", "segment=s", "-o", "key=0123456789abcdef")...)
	l.fails("key", with("--ipam-driver", "null", "-o", "segment=s")...)
	l.createNetwork()
	l.fails("MAC is taken", "run", "--network", "pods", "--mac-address", takenMAC, "box", "true")
	l.fails("name one port", "run", "--network", "pods", "-p", "80", "box", "true")
	l.do("rm", "-f", l.do("ps", "-aq", "-n2", "--filter", "status=created"))
	if got := l.do("network", "ls", "-q", "--filter", "driver=unnest"); strings.Contains(got, "\n") {
		t.Errorf("networks are left: %s", got)
	}
}

// Without a gateway a container has no other NIC, such as one of Docker's behind NAT, and no published port.
func TestNoGateway(t *testing.T) {
	l := newLab(t)
	l.host.mu.Lock()
	l.host.gateways = []string{"", ""}
	l.host.mu.Unlock()
	l.createNetwork()
	l.fails("a container with a gateway", "run", "--rm", "--network", "pods", "-p", "8080:80", "box", "true")
	l.do("run", "-d", "--name", "web", "--network", "pods", "box", "sleep", "1000")
	if links := l.do("exec", "web", "busybox", "ls", "/sys/class/net"); links != "eth0\nlo" {
		t.Errorf("the container has %q", links)
	}
	l.do("rm", "-f", "web")
	l.do("network", "rm", "pods")
}

// --ip holds over stop and start, and is refused while another container has the address.
func TestRequestedAddress(t *testing.T) {
	l := newLab(t)
	l.createNetwork("--subnet", "10.201.0.0/16")
	l.do("run", "-d", "--name", "web", "--hostname", "web", "--network", "pods", "--ip", "10.201.5.5", "box", "sh", "-c", webserver)
	for range 2 {
		l.serves(l.Host, "10.201.5.5:80", "web")
		l.fails("held by", "run", "--rm", "--network", "pods", "--ip", "10.201.5.5", "box", "true")
		l.do("stop", "-t1", "web")
		l.wantNoNICs()
		l.do("start", "web")
	}
	l.do("restart", "-t1", "web")
	l.serves(l.Host, "10.201.5.5:80", "web")
}

// The driver, dockerd and the daemon end under running containers, which keep their NICs, and the next ones work.
func TestCrashes(t *testing.T) {
	l := newLab(t)
	l.createNetwork()
	run := func(name string) {
		l.do("run", "-d", "--name", name, "--hostname", name, "--network", "pods", "--restart", "always", "box", "sh", "-c", webserver)
	}
	run("web")
	l.serves(l.Host, "10.201.1.1:80", "web")

	l.kill(l.driver, syscall.SIGKILL)
	l.serves(l.Host, "10.201.1.1:80", "web")
	l.startDriver()
	run("second")
	l.do("rm", "-f", "second")
	l.serves(l.Host, "10.201.1.1:80", "web")

	// dockerd starts containers with the policy "always" again, with other NICs.
	l.kill(l.docker, syscall.SIGKILL)
	l.startDocker()
	at := "{{.NetworkSettings.Networks.pods.IPAddress}}"
	l.until("the container is back", func() error {
		address := l.inspect(at, "web")
		if address == "" || !l.host.has(address) {
			return fmt.Errorf("address %q", address)
		}
		_, err := l.fetch(l.Host, address+":80")
		return err
	})

	// The daemon does not answer while a container is removed: the driver gives the NIC back later.
	run("third")
	address := l.inspect(at, "third")
	l.host.stop()
	if _, err := l.try("rm", "-f", "third"); err != nil {
		t.Error(err)
	}
	l.host.serve()
	l.until("the driver has given the NIC back", func() error {
		if l.host.has(address) {
			return fmt.Errorf("the daemon still has %s", address)
		}
		return nil
	})
	l.do("rm", "-f", "web")
	l.wantNoNICs()
	l.do("network", "rm", "pods")
}

// A container may have a NIC and a shared localhost. Two containers stop at once, and a network is pruned when it has no containers.
func TestTwoNetworks(t *testing.T) {
	l := newLab(t)
	l.createNetwork()
	l.do("network", "create", "-d", "unnest", "--ipam-driver", "null", "-o", "segment=shop", "-o", "key="+segmentKey, "shop")
	for _, name := range []string{"one", "two"} {
		l.do("run", "-d", "--name", name, "--network", "pods", "box", "sleep", "1000")
	}
	l.do("network", "connect", "shop", "one")
	if links := l.do("exec", "one", "busybox", "ls", "/sys/class/net"); links != "eth0\nhostlo0\nlo" {
		t.Errorf("the container has %q", links)
	}
	l.do("exec", "one", "busybox", "ping", "-c1", "-w10", gateway4)
	if out := l.do("network", "prune", "-f"); out != "" {
		t.Errorf("networks with containers are pruned: %s", out)
	}
	l.do("stop", "-t1", "one", "two")
	l.wantNoNICs()
	l.do("network", "disconnect", "-f", "pods", "two")
	l.do("start", "one")
	l.do("exec", "one", "busybox", "ping", "-c1", "-w10", gateway4)
	l.do("rm", "-f", "one", "two")
	l.wantNoNICs()
	if out := l.do("network", "prune", "-f"); !strings.Contains(out, "pods") || !strings.Contains(out, "shop") {
		t.Errorf("networks without containers are not pruned: %s", out)
	}
}

// Four at a time, and nothing is left.
func TestMany(t *testing.T) {
	l := newLab(t)
	l.createNetwork()
	failed := make(chan error)
	for range 4 {
		go func() {
			for range 5 {
				_, err := l.try("run", "--rm", "--network", "pods", "box", "busybox", "ping", "-c1", "-w10", gateway4)
				failed <- err
			}
		}()
	}
	for range 20 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	l.wantNoNICs()
	l.do("network", "rm", "pods")
}

// A container of a Hostlo network is a fraction of the segment, whether Docker starts it in the network or connects it later.
func TestSegment(t *testing.T) {
	l := newLab(t)
	create := func(name, key string) {
		l.do("network", "create", "-d", "unnest", "--ipam-driver", "null", "-o", "segment=shop", "-o", "key="+key, name)
	}
	create("shop", segmentKey)
	l.do("run", "-d", "--name", "part", "--network", "shop", "--restart", "always", "box", "sleep", "1000")
	hasEndpoint := func() {
		t.Helper()
		l.until("the container is in the segment", func() error {
			_, err := l.try("exec", "part", "busybox", "test", "-d", "/sys/class/net/hostlo0")
			return err
		})
		l.until("other fractions' addresses of IPv6 are local, as ::1 is", func() error {
			routes, err := l.try("exec", "part", "busybox", "cat", "/proc/net/ipv6_route")
			for _, address := range []string{"00000000000000000000000000000001 80", "fd686f73746c6f000000000000000000 60"} {
				if err == nil && !strings.Contains(routes, address) {
					err = fmt.Errorf("no route to %s: %s", address, routes)
				}
			}
			return err
		})
	}
	gone := func() {
		t.Helper()
		l.until("the endpoint is given back", func() error {
			if l.host.inSegment() {
				return errors.New("the guest has it")
			}
			return nil
		})
		l.wantNoNICs()
	}
	losesIPv6 := func() { // Docker turns IPv6 off on the loopback with the last address of IPv6
		t.Helper()
		l.do("network", "connect", "pods", "part")
		l.do("network", "disconnect", "pods", "part")
		hasEndpoint()
	}
	l.createNetwork()
	hasEndpoint()
	l.fails("--network container:NAME", "run", "--rm", "--network", "shop", "box", "true")
	l.do("run", "--rm", "--network", "container:part", "box", "true")
	l.kill(l.docker, syscall.SIGKILL) // it starts the container again
	l.startDocker()
	hasEndpoint()
	l.do("stop", "-t1", "part")
	gone()
	l.do("start", "part")
	hasEndpoint()
	l.kill(l.driver, syscall.SIGKILL) // it knows network and container afterwards
	l.startDriver()
	losesIPv6()
	l.do("rm", "-f", "part")
	gone()

	l.do("run", "-d", "--name", "part", "--network", "none", "box", "sleep", "1000")
	l.do("network", "disconnect", "none", "part")
	create("wrong", "fedcba9876543210")
	l.fails("wrong key", "network", "connect", "wrong", "part")
	l.do("network", "connect", "shop", "part")
	hasEndpoint()
	losesIPv6()
	l.do("network", "disconnect", "shop", "part")
	gone()
	l.do("rm", "-f", "part")
	l.do("network", "rm", "shop", "wrong", "pods")
}
