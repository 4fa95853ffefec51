package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// leafOf returns the certificate of credentials.
func leafOf(t *testing.T, c Credentials) *x509.Certificate {
	t.Helper()
	return pairOf(t, c, nil).Leaf
}

// A renewed certificate is like the first, but for another key.
func TestRenew(t *testing.T) {
	a := open(t, t.TempDir())
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	request, _, err := NewRequest()
	if err != nil {
		t.Fatal(err)
	}
	present := leafOf(t, c)
	got, err := a.Renew("node1", present, request)
	if err != nil {
		t.Fatal(err)
	}
	if name, err := nameOf(got); name != "node1" || err != nil || got.Subject.CommonName != "node1" {
		t.Errorf("certificate is of %q (%s), error %v", name, got.Subject, err)
	}
	if got.IsCA || got.KeyUsage != x509.KeyUsageDigitalSignature || len(got.ExtKeyUsage) != 1 || got.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("certificate is good for more than a client: CA %v, usage %v %v", got.IsCA, got.KeyUsage, got.ExtKeyUsage)
	}
	if life := time.Until(got.NotAfter); life > GuestValidity || life < GuestValidity-time.Minute {
		t.Errorf("certificate is valid for %v, want %v", life, GuestValidity)
	}
	if present.PublicKey.(*ecdsa.PublicKey).Equal(got.PublicKey) || Serial(got) == Serial(present) {
		t.Error("key or serial is that of the present certificate")
	}
	if _, err := a.Renew("node1", got, request); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "make a new one") {
		t.Errorf("the key once more: got %v", err)
	}
}

// No certificate outlives the authority.
func TestRenewBeforeTheAuthorityEnds(t *testing.T) {
	a := open(t, t.TempDir())
	a.cert.NotAfter = time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	c, err := a.Issue("node1")
	if err != nil || !c.Expires.Equal(a.cert.NotAfter) {
		t.Errorf("certificate expires on %v, authority on %v; error %v", c.Expires, a.cert.NotAfter, err)
	}
}

// A guest writes a request that asks for more than a renewal.
func TestHostileRequests(t *testing.T) {
	a := open(t, t.TempDir())
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	key := func(curve elliptic.Curve) *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(curve, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	p256 := key(elliptic.P256())
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(r x509.CertificateRequest, k crypto.Signer) []byte {
		t.Helper()
		der, err := x509.CreateCertificateRequest(rand.Reader, &r, k)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	extension := func(value any, id ...int) x509.CertificateRequest {
		der, err := asn1.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return x509.CertificateRequest{ExtraExtensions: []pkix.Extension{{Id: id, Critical: true, Value: der}}}
	}
	type constraints struct{ IsCA bool }
	good := request(x509.CertificateRequest{}, p256)
	forged := append([]byte(nil), good...)
	forged[len(forged)-1] ^= 1
	for name, der := range map[string][]byte{
		"nothing":           nil,
		"garbage":           []byte("-----BEGIN CERTIFICATE REQUEST-----"),
		"cut":               good[:len(good)-1],
		"more after it":     append(append([]byte(nil), good...), 0),
		"another's key":     forged, // it cannot sign with it
		"huge":              make([]byte, maxRequest+1),
		"RSA":               request(x509.CertificateRequest{}, large),
		"Ed25519":           request(x509.CertificateRequest{}, edwards),
		"P-521":             request(x509.CertificateRequest{}, key(elliptic.P521())),
		"another hash":      request(x509.CertificateRequest{SignatureAlgorithm: x509.ECDSAWithSHA512}, p256),
		"name of another":   request(x509.CertificateRequest{Subject: pkix.Name{CommonName: "node2"}}, p256),
		"URI of another":    request(x509.CertificateRequest{URIs: []*url.URL{guestURI("node2")}}, p256),
		"address of daemon": request(x509.CertificateRequest{IPAddresses: []net.IP{net.IPv4(10, 200, 0, 1)}}, p256),
		"authority":         request(extension(constraints{true}, 2, 5, 29, 19), p256),
		"to sign":           request(extension(asn1.BitString{Bytes: []byte{0x06}, BitLength: 7}, 2, 5, 29, 15), p256),
		"of a server":       request(extension([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 1}}, 2, 5, 29, 37), p256),
	} {
		if got, err := a.Renew("node1", leafOf(t, c), der); !errors.Is(err, ErrRequest) || got != nil {
			t.Errorf("%s: got certificate %v, error %v; want ErrRequest", name, got, err)
		}
	}
	if _, err := a.Renew("node1", leafOf(t, c), good); err != nil {
		t.Errorf("good request: %v", err)
	}
	if _, err := a.Renew("../node1", leafOf(t, c), good); err == nil {
		t.Error("a name that is no guest's was accepted")
	}
}

// renewal returns a directory of credentials with the key of a renewal, and its certificate.
func renewal(t *testing.T, a *Authority) (dir string, next *x509.Certificate) {
	t.Helper()
	c, err := a.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	dir = credentialsDir(t, a, c)
	request, key, err := NewRequest()
	if err == nil {
		err = PrepareReplace(dir, key)
	}
	if err == nil {
		next, err = a.Renew("node1", leafOf(t, c), request)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir, next
}

func presented(t *testing.T, dir string) string {
	t.Helper()
	config, err := ClientConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	return Serial(config.Certificates[0].Leaf)
}

func TestReplace(t *testing.T) {
	dir, next := renewal(t, open(t, t.TempDir()))
	if err := Replace(dir, next.Raw); err != nil {
		t.Fatal(err)
	}
	if got := presented(t, dir); got != Serial(next) {
		t.Errorf("certificate is %s, want %s", got, Serial(next))
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("directory has %v, error %v; want three files", files, err)
	}
	info, err := os.Stat(filepath.Join(dir, KeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key has mode %v, error %v", info.Mode(), err)
	}
}

// The system fails after each step of a renewal: there is a pair at every time.
func TestReplaceIsInterrupted(t *testing.T) {
	a := open(t, t.TempDir())
	dir, next := renewal(t, a)
	was := presented(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, step := range []struct {
		do   func() error
		want string
	}{
		{func() error {
			return os.WriteFile(path(CertificateFile+nextSuffix), encodeCertificate(next.Raw), 0o600)
		}, was},
		{func() error { return os.Rename(path(KeyFile+nextSuffix), path(KeyFile)) }, Serial(next)},
		{func() error { return os.Rename(path(CertificateFile+nextSuffix), path(CertificateFile)) }, Serial(next)},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := presented(t, dir); got != step.want {
			t.Errorf("certificate is %s, want %s", got, step.want)
		}
	}
}

// What the daemon answers is checked before it replaces anything.
func TestReplaceRefuses(t *testing.T) {
	a, other := open(t, t.TempDir()), open(t, t.TempDir())
	foreign, err := other.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(key *tls.Certificate) []byte{
		"nothing":             func(*tls.Certificate) []byte { return nil },
		"another key":         func(*tls.Certificate) []byte { return leafOf(t, foreign).Raw },
		"another's":           func(k *tls.Certificate) []byte { return certified(t, a, "node2", k) },
		"another authority's": func(k *tls.Certificate) []byte { return certified(t, other, "node1", k) },
	} {
		dir, next := renewal(t, a)
		was := presented(t, dir)
		key, err := tls.LoadX509KeyPair(writeCertificate(t, next), filepath.Join(dir, KeyFile+nextSuffix))
		if err != nil {
			t.Fatal(err)
		}
		if err := Replace(dir, answer(&key)); err == nil {
			t.Errorf("%s: there was no error", name)
		}
		if presented(t, dir) != was {
			t.Errorf("%s: the certificate was replaced", name)
		}
	}
}

// certified returns a certificate of an authority for a name and a key.
func certified(t *testing.T, a *Authority, name string, k *tls.Certificate) []byte {
	t.Helper()
	x, err := guestTemplate(name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := a.certify(x, &k.PrivateKey.(*ecdsa.PrivateKey).PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return c.Raw
}

func writeCertificate(t *testing.T, c *x509.Certificate) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crt")
	if err := os.WriteFile(path, encodeCertificate(c.Raw), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
