// Package cnitest is the laboratory of the CNI plugins' tests: network namespaces as
// host, guest and pod, credentials for a fake host daemon, and the plugin, which is
// the test binary under the plugin's name. The fake daemons belong to the plugins'
// tests. Only tests import it.
package cnitest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
)

// PluginDir is the directory of Debian's package containernetworking-plugins.
const PluginDir = "/usr/lib/cni"

// Lab is three network namespaces, the host's, a guest's and a pod's, and a plugin.
type Lab struct {
	Host, Guest, Pod ns.NetNS
	Dir              string // plugin, credentials, state; the first in CNI_PATH
	Server           string // the host daemon's address in the guest

	t      testing.TB
	plugin string      // its name
	config *tls.Config // the host daemon's
}

// New makes a lab for the plugin of the given name. In its directory the test binary
// has that name and the others; TestMain distinguishes them. Without
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
	l.issueCredentials()
	l.Must(onLink(l.Guest, "lo", netlink.LinkSetUp))
	return l
}

// Plain builds the test program of the calling package without the race detector, with which
// each call of a plugin takes several times as long.
func Plain(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plain")
	c := exec.Command("go", "test", "-c", "-trimpath", "-vet=off", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build` does, which shares its cache
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("build tests without the race detector: %v: %s", err, out)
	}
	return path
}

// Use replaces the programs of the lab by one that has been built as Plain does.
func (l *Lab) Use(program string, names ...string) {
	l.t.Helper()
	for _, name := range names {
		path := filepath.Join(l.Dir, name)
		l.Must(errors.Join(os.Remove(path), os.Symlink(program, path)))
	}
}

// NewNS makes a network namespace and closes it at the end of the test.
func NewNS(t testing.TB) ns.NetNS {
	t.Helper()
	n, err := ns.TempNetNS()
	if err != nil {
		t.Fatalf("make network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.Close() }) // the test may have closed it
	return n
}

// Path is valid as long as the test has the namespace open.
func Path(n ns.NetNS) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.Fd()) }

// Must ends the test at an error.
func (l *Lab) Must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *Lab) credentials() string { return filepath.Join(l.Dir, "unnest") }

// issueCredentials makes the certificates of the guest and the host daemon.
func (l *Lab) issueCredentials() {
	l.t.Helper()
	a, err := identity.OpenAuthority(l.Dir)
	l.Must(err)
	c, err := a.Issue("node1")
	l.Must(err)
	l.Must(os.Mkdir(l.credentials(), 0o700))
	Save(l.t, l.credentials(), a, c)
	l.config, err = a.ServerConfig(net.IPv4(127, 0, 0, 1))
	l.Must(err)
}

// ExpireAt gives the guest a certificate that expires at a time, and returns its serial.
func (l *Lab) ExpireAt(t *testing.T, notAfter time.Time) string {
	t.Helper()
	c := identitytest.Issue(t, l.Dir, "node1", notAfter)
	for name, content := range map[string][]byte{identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM} {
		l.Must(os.WriteFile(filepath.Join(l.credentials(), name), content, 0o600))
	}
	return c.Serial
}

// Renew renews the certificate of the guest, as the host daemon does.
func (l *Lab) Renew(ctx context.Context, r *hostdpb.RenewRequest) (*hostdpb.RenewResponse, error) {
	p, _ := peer.FromContext(ctx)
	a, err := identity.OpenAuthority(l.Dir)
	if err != nil {
		return nil, err
	}
	c, err := a.Renew("node1", p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0], r.GetCertificateRequest())
	if err != nil {
		return nil, err
	}
	return &hostdpb.RenewResponse{Certificate: c.Raw}, nil
}

// Serial is that of the guest's certificate.
func (l *Lab) Serial() string {
	l.t.Helper()
	c, err := identity.ClientConfig(l.credentials())
	l.Must(err)
	return identity.Serial(c.Certificates[0].Leaf)
}

// Serve serves a fake host daemon at Server in the guest, until it is stopped or the
// test ends. When it is served again, it has the same address.
func (l *Lab) Serve(d hostdpb.HostDaemonServer) (stop func()) {
	l.t.Helper()
	listener := l.Listen(l.Guest, l.Server)
	l.Server = listener.Addr().String()
	return serve(l.t, listener, l.config, d)
}

// Listen listens in a namespace until the test ends. A listener that never accepts
// plays a host that receives packets but does not answer.
func (l *Lab) Listen(n ns.NetNS, address string) (listener net.Listener) {
	l.t.Helper()
	l.Must(n.Do(func(ns.NetNS) (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	l.t.Cleanup(func() { _ = listener.Close() }) // its server may have closed it
	return listener
}

// Links are the names of the links in n except lo.
func (l *Lab) Links(n ns.NetNS) []string {
	l.t.Helper()
	var names []string
	l.Must(n.Do(func(ns.NetNS) error {
		links, err := netlinksafe.LinkList()
		for _, link := range links {
			if link.Attrs().Name != "lo" {
				names = append(names, link.Attrs().Name)
			}
		}
		return err
	}))
	return names
}

func onLink(n ns.NetNS, name string, f func(netlink.Link) error) error {
	return n.Do(func(ns.NetNS) error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return f(link)
	})
}

// InPod calls f on a link of the pod.
func (l *Lab) InPod(name string, f func(netlink.Link) error) {
	l.t.Helper()
	l.Must(onLink(l.Pod, name, f))
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

// Pending are the files of pending releases.
func (l *Lab) Pending() []string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.Dir, "run", "pending*", "*"))
	l.Must(err)
	return found
}

// WantClean fails the test when the guest or the host has links, a release is pending, or
// the runtime of an attachment is still kept.
func (l *Lab) WantClean() {
	l.t.Helper()
	for name, n := range map[string]ns.NetNS{"guest": l.Guest, "host": l.Host} {
		if links := l.Links(n); len(links) > 0 {
			l.t.Errorf("the %s still has links %v", name, links)
		}
	}
	if pending := l.Pending(); len(pending) > 0 {
		l.t.Errorf("pending releases: %v", pending)
	}
	kept, err := filepath.Glob(filepath.Join(l.Dir, "run", "runtimes", "*", "*"))
	l.Must(err)
	if len(kept) > 0 {
		l.t.Errorf("runtimes are kept of %v", kept)
	}
}

// Serve serves a fake host daemon of an authority at an address of this host, until it is
// stopped or the test ends.
func Serve(t testing.TB, a *identity.Authority, d hostdpb.HostDaemonServer) (server netip.AddrPort, stop func()) {
	t.Helper()
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return netip.MustParseAddrPort(listener.Addr().String()), serve(t, listener, config, d)
}

func serve(t testing.TB, listener net.Listener, config *tls.Config, d hostdpb.HostDaemonServer) (stop func()) {
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	hostdpb.RegisterHostDaemonServer(s, d)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(listener) })
	stop = func() {
		s.Stop()
		wg.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// Save writes the credentials of a guest, which an authority has issued, to a directory.
func Save(t testing.TB, dir string, a *identity.Authority, c identity.Credentials) {
	t.Helper()
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
