// Package cnitest is what the tests of the CNI plugins stand on: network
// namespaces that play the host, a guest and a pod, what a stand-in for the host
// daemon needs to be reached from the guest, and the plugin itself, which is the
// test binary under the plugin's name. The stand-ins are the plugins' own. Only
// tests import it.
package cnitest

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
)

// PluginDir is where Debian's containernetworking-plugins has its plugins.
const PluginDir = "/usr/lib/cni"

// Lab is three network namespaces, the host's, a guest's and a pod's, and a plugin.
type Lab struct {
	Host, Guest, Pod ns.NetNS
	Dir              string // plugin, credentials, state; the first in CNI_PATH
	Server           string // where the guest reaches the host daemon

	t      testing.TB
	plugin string      // its name
	config *tls.Config // the host daemon's
}

// New makes a lab for the plugin of the given name. In its directory the test binary
// has that name and the others, and TestMain tells them apart. Without
// UNNEST_PRIVILEGED=1 it skips the test.
func New(t testing.TB, plugin string, others ...string) *Lab {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and network namespaces: set UNNEST_PRIVILEGED=1")
	}
	l := &Lab{Host: NewNS(t), Guest: NewNS(t), Pod: NewNS(t), Dir: t.TempDir(), Server: "127.0.0.1:0", t: t, plugin: plugin}
	exe, err := os.Executable()
	l.Must(err)
	for _, name := range append(others, plugin) {
		l.Must(os.Symlink(exe, filepath.Join(l.Dir, name)))
	}
	l.identify()
	l.Must(l.Guest.Do(func(ns.NetNS) error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}))
	return l
}

// NewNS makes a network namespace that ends with the test, if that does not close it.
func NewNS(t testing.TB) ns.NetNS {
	t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.Close() }) // a test may have closed it
	return n
}

// Path is good as long as the test has the namespace open.
func Path(n ns.NetNS) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Must ends the test at an error.
func (l *Lab) Must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *Lab) credentials() string { return filepath.Join(l.Dir, "unnest") }

// identify gives the guest and the host daemon their certificates.
func (l *Lab) identify() {
	l.t.Helper()
	a, err := identity.OpenAuthority(l.Dir)
	l.Must(err)
	c, err := a.Issue("node1")
	l.Must(err)
	l.Must(os.Mkdir(l.credentials(), 0o700))
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		l.Must(os.WriteFile(filepath.Join(l.credentials(), name), content, 0o600))
	}
	l.config, err = a.ServerConfig(net.IPv4(127, 0, 0, 1))
	l.Must(err)
}

// Serve has the guest reach a stand-in for the host daemon at Server, until it is
// stopped or the test ends. One that is served again is where the first was.
func (l *Lab) Serve(d hostdpb.HostDaemonServer) (stop func()) {
	l.t.Helper()
	listener := l.Listen(l.Guest, l.Server)
	l.Server = listener.Addr().String()
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(l.config)))
	hostdpb.RegisterHostDaemonServer(s, d)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(listener) })
	stop = func() {
		s.Stop()
		wg.Wait()
	}
	l.t.Cleanup(stop)
	return stop
}

// Listen listens in a namespace until the test ends. Who does not accept is a host
// that takes the packets and says nothing.
func (l *Lab) Listen(n ns.NetNS, address string) (listener net.Listener) {
	l.t.Helper()
	l.Must(n.Do(func(ns.NetNS) (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	l.t.Cleanup(func() { _ = listener.Close() }) // its server may have closed it
	return listener
}

// Links are the names of the links in n, apart from lo.
func (l *Lab) Links(n ns.NetNS) []string {
	l.t.Helper()
	var names []string
	l.Must(n.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Attrs().Name != "lo" {
				names = append(names, link.Attrs().Name)
			}
		}
		return err
	}))
	return names
}

// InPod runs f on a link of the pod.
func (l *Lab) InPod(name string, f func(netlink.Link) error) {
	l.t.Helper()
	l.Must(l.Pod.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	}))
}

// AddToPod makes a link in the pod.
func (l *Lab) AddToPod(name string) {
	l.t.Helper()
	l.Must(l.Pod.Do(func(ns.NetNS) error {
		a := netlink.NewLinkAttrs()
		a.Name = name
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	}))
}

// Noted are the attachments that are noted to be given back.
func (l *Lab) Pending() []string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.Dir, "run", "pending*", "*"))
	l.Must(err)
	return found
}

// WantClean fails the test when the guest or the host has links, or something is
// noted.
func (l *Lab) WantClean() {
	l.t.Helper()
	for name, n := range map[string]ns.NetNS{"guest": l.Guest, "host": l.Host} {
		if links := l.Links(n); len(links) > 0 {
			l.t.Errorf("the %s still has links %v", name, links)
		}
	}
	if noted := l.Pending(); len(noted) > 0 {
		l.t.Errorf("still noted: %v", noted)
	}
}
