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
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"unnest/internal/hostapi/identity"
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
		Subject: pkix.Name{CommonName: guest}, NotBefore: notAfter.Add(-24 * time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		URIs: []*url.URL{{Scheme: "unnest", Host: "guest", Path: "/" + guest}},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority.Leaf, key.Public(), authority.PrivateKey)
	check(err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	return identity.Credentials{
		CertificatePEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		KeyPEM:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		Fingerprint:    identity.Fingerprint(&x509.Certificate{Raw: der}),
		Expires:        notAfter,
	}
}
