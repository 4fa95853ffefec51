// Package identitytest makes certificates for tests that package identity does not issue.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
)

// Issue makes credentials of a guest that expire at notAfter, signed by the authority of
// the lab with a state directory.
func Issue(t *testing.T, stateDir, guest string, notAfter time.Time) identity.Credentials {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := identity.OpenAuthority(stateDir)
	check(err)
	content, err := os.ReadFile(filepath.Join(stateDir, "authority.pem"))
	check(err)
	authority, err := tls.X509KeyPair(content, content)
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(notAfter.UnixNano()), Subject: pkix.Name{CommonName: guest}, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "unnest", Host: "guest", Path: "/" + guest}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority.Leaf, key.Public(), authority.PrivateKey)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	made := &x509.Certificate{Raw: der}
	return identity.Credentials{
		CertificatePEM: PEM(made), KeyPEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		Fingerprint: identity.Fingerprint(made), Serial: c.SerialNumber.Text(16), Expires: notAfter,
	}
}

// PEM encodes a certificate.
func PEM(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// Sign makes a certificate of a guest, signed by the holder of another certificate as if
// that were an authority, and presents both.
func Sign(t *testing.T, by tls.Certificate, guest string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "unnest", Host: "guest", Path: "/" + guest}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.Leaf, key.Public(), by.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, by.Leaf.Raw}, PrivateKey: key}
}
