package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *Authority {
	t.Helper()
	a, err := OpenAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// credentialsDir writes c the way a guest gets it.
func credentialsDir(t *testing.T, a *Authority, c Credentials) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{CAFile: a.CertificatePEM(), CertificateFile: c.CertificatePEM, KeyFile: c.KeyPEM} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// handshake connects a client to a server of a at 127.0.0.1 and returns what
// the server makes of it and what the client sees.
func handshake(t *testing.T, a *Authority, client *tls.Config) (name string, serverErr, clientErr error) {
	t.Helper()
	config, err := a.ServerConfig(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			serverErr = err
			return
		}
		defer conn.Close()
		s := tls.Server(conn, config)
		if serverErr = s.HandshakeContext(t.Context()); serverErr != nil {
			return
		}
		if name, serverErr = GuestName(s.ConnectionState()); serverErr == nil {
			_, _ = s.Write([]byte("!"))
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := tls.Dialer{Config: client}
	conn, clientErr := d.DialContext(ctx, "tcp", l.Addr().String())
	if clientErr == nil {
		defer conn.Close()
		_, clientErr = io.ReadFull(conn, make([]byte, 1)) // TLS 1.3 refuses a client after its handshake
	}
	<-done
	return name, serverErr, clientErr
}

func TestGuestOfTheLab(t *testing.T) {
	a := open(t, t.TempDir())
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ClientConfig(credentialsDir(t, a, c))
	if err != nil {
		t.Fatal(err)
	}
	name, serverErr, clientErr := handshake(t, a, config)
	if name != "node1" || serverErr != nil || clientErr != nil {
		t.Fatalf("got guest %q, errors %v, %v", name, serverErr, clientErr)
	}
	block, _ := pem.Decode(c.CertificatePEM)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if Fingerprint(cert) != c.Fingerprint || len(c.Fingerprint) != 64 {
		t.Errorf("fingerprint %q, issued as %q", Fingerprint(cert), c.Fingerprint)
	}
	if life := cert.NotAfter.Sub(cert.NotBefore); life > GuestValidity+clockSkew+time.Minute {
		t.Errorf("certificate is good for %v", life)
	}
	again, err := a.Issue("node1")
	if err != nil || again.Fingerprint == c.Fingerprint {
		t.Errorf("second certificate of the same name: fingerprint %q, error %v; want another one", again.Fingerprint, err)
	}
}

// sign signs t and returns it ready for use as a TLS certificate.
func pairOf(t *testing.T, c Credentials, err error) tls.Certificate {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// When the clock has been put back behind the beginning of the daemon's certificate, which no guest takes then, there is another.
func TestClockWasAhead(t *testing.T) {
	config, err := open(t, t.TempDir()).ServerConfig(net.IPv4(127, 0, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	first, err := config.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, err := config.GetCertificate(nil); same.Leaf != first.Leaf || err != nil {
		t.Errorf("another certificate without need, %v", err)
	}
	first.Leaf.NotBefore = time.Now().Add(time.Hour)
	if next, err := config.GetCertificate(nil); err != nil || next.Leaf == first.Leaf || next.Leaf.NotBefore.After(time.Now()) {
		t.Errorf("got %v, %v", next.Leaf, err)
	}
}

func TestRefusedClients(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	signed := func(change func(c *x509.Certificate)) tls.Certificate {
		c := template("x", GuestValidity)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		c.URIs = []*url.URL{guestURI("node1")}
		change(c)
		creds, err := a.sign(c)
		return pairOf(t, creds, err)
	}
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	foreign, foreignErr := other.Issue("node1")
	server, serverErr := a.issueServer(net.IPv4(127, 0, 0, 1))
	for _, c := range []struct {
		name   string
		pairs  []tls.Certificate
		max    uint16
		reason string // the server's
	}{
		{"no certificate", nil, 0, "didn't provide a certificate"},
		{"authority of another lab", []tls.Certificate{pairOf(t, foreign, foreignErr)}, 0, "unknown authority"},
		{"server's certificate", []tls.Certificate{pairOf(t, server, serverErr)}, 0, "incompatible key usage"},
		{"expired", []tls.Certificate{signed(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })}, 0, "expired"},
		{"not yet valid", []tls.Certificate{signed(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })}, 0, "not yet valid"},
		{"TLS 1.2", []tls.Certificate{signed(func(*x509.Certificate) {})}, tls.VersionTLS12, "unsupported versions"},
		{"no URI", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs = nil })}, 0, "0 URIs"},
		{"two guests", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs = append(c.URIs, guestURI("node2")) })}, 0, "2 URIs"},
		{"another scheme", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs[0] = uri("spiffe://guest/node1") })}, 0, "names no guest"},
		{"another host", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs[0] = uri("unnest://host/node1") })}, 0, "names no guest"},
		{"path out of the directory", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs[0] = uri("unnest://guest/../node1") })}, 0, "names no guest"},
		{"query", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs[0] = uri("unnest://guest/node1?a=b") })}, 0, "names no guest"},
		{"no path", []tls.Certificate{signed(func(c *x509.Certificate) { c.URIs[0] = uri("unnest://guest") })}, 0, "names no guest"},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, serverErr, clientErr := handshake(t, a, &tls.Config{RootCAs: roots, Certificates: c.pairs, MaxVersion: c.max})
			if serverErr == nil || !strings.Contains(serverErr.Error(), c.reason) || clientErr == nil {
				t.Errorf("server took it for %q with error %v, client got %v; want the server to say %q", name, serverErr, clientErr, c.reason)
			}
		})
	}
}

// The daemon names the guest of an expired certificate, but not one that somebody else
// has signed.
func TestCheckExpired(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	for _, c := range []struct {
		signer *Authority
		after  time.Duration
		want   string
	}{
		{a, -time.Minute, "certificate of guest node1 expired on " + time.Now().Add(-time.Minute).UTC().Format(time.DateOnly) + "; run unnest hostd enroll node1"},
		{other, -time.Minute, ""},
		{a, time.Minute, ""},
	} {
		x := template("node1", c.after)
		x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		x.URIs = []*url.URL{guestURI("node1")}
		creds, err := c.signer.sign(x)
		pair := pairOf(t, creds, err)
		_, serverErr, _ := handshake(t, a, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
		got := CheckExpired(serverErr, roots)
		if (got == nil) != (c.want == "") || got != nil && (!errors.Is(got, ErrExpired) || !strings.Contains(got.Error(), c.want)) {
			t.Errorf("got %v, want %q", got, c.want)
		}
	}
}

func TestServerOfAnotherLab(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ClientConfig(credentialsDir(t, a, c))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake(t, other, config); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("client got %v, want it to refuse the server", err)
	}
	config.ServerName = "10.200.0.1" // the certificate is for 127.0.0.1
	if _, _, err := handshake(t, a, config); err == nil || !strings.Contains(err.Error(), "10.200.0.1") {
		t.Errorf("client got %v, want it to refuse the server's address", err)
	}
}

func TestUnverifiedPeer(t *testing.T) {
	if _, err := GuestName(tls.ConnectionState{}); !errors.Is(err, ErrNoGuest) {
		t.Errorf("got %v, want ErrNoGuest", err)
	}
}

func TestAuthorityIsCreatedOnce(t *testing.T) {
	dir := t.TempDir()
	certs := make([][]byte, 8)
	var wg sync.WaitGroup
	for i := range certs {
		wg.Go(func() {
			if a, err := OpenAuthority(dir); err != nil {
				t.Error(err)
			} else {
				certs[i] = a.CertificatePEM()
			}
		})
	}
	wg.Wait()
	for _, c := range certs[1:] {
		if !bytes.Equal(c, certs[0]) {
			t.Fatal("two authorities in one lab")
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("state directory has %v, error %v; want one file", files, err)
	}
	info, err := files[0].Info()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v; want 0600", info.Mode(), err)
	}
}

func TestDamagedAuthority(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, t.TempDir())
	path := filepath.Join(dir, authorityFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	keyOfB, err := encodeKey(b.key)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty":       nil,
		"cut":         whole[:len(whole)-40],
		"other's key": append(a.CertificatePEM(), keyOfB...),
		"not DER":     []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + string(keyOfB)),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAuthority(dir); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got error %v, want one that names %s", name, err, path)
		}
	}
	if _, err := OpenAuthority(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no state directory: got %v", err)
	}
}

func TestCheckGuestName(t *testing.T) {
	a := open(t, t.TempDir())
	for name, ok := range map[string]bool{
		"a": true, "node1": true, "node-1": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "Node1": false, "a.b": false, "a/b": false, "..": false,
		"a\n": false, "é": false, strings.Repeat("a", 64): false,
	} {
		if err := CheckGuestName(name); (err == nil) != ok {
			t.Errorf("%q: got %v, want ok %v", name, err, ok)
		}
		if _, err := a.Issue(name); (err == nil) != ok {
			t.Errorf("issue for %q: got %v, want ok %v", name, err, ok)
		}
	}
}

func TestBadCredentials(t *testing.T) {
	a := open(t, t.TempDir())
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(dir string) (want string, err error){
		"open key":  func(d string) (string, error) { return "chmod 0600", os.Chmod(filepath.Join(d, KeyFile), 0o640) },
		"no key":    func(d string) (string, error) { return KeyFile, os.Remove(filepath.Join(d, KeyFile)) },
		"no cert":   func(d string) (string, error) { return CertificateFile, os.Remove(filepath.Join(d, CertificateFile)) },
		"no ca":     func(d string) (string, error) { return CAFile, os.Remove(filepath.Join(d, CAFile)) },
		"hollow ca": func(d string) (string, error) { return CAFile, os.WriteFile(filepath.Join(d, CAFile), nil, 0o600) },
	} {
		dir := credentialsDir(t, a, c)
		want, err := spoil(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ClientConfig(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, want)
		}
	}
}
