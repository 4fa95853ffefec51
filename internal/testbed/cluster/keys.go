package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"time"
)

const (
	validity  = 365 * 24 * time.Hour
	clockSkew = time.Hour // of nodes
)

// keys are the cluster's certificate authority, and the key that signs the tokens of service
// accounts.
type keys struct {
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	tokens []byte // PEM
}

// pair is a certificate and its key as PEM.
type pair struct{ cert, key []byte }

func newKeys() (k keys, err error) {
	if k.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return k, fmt.Errorf("make keys of the cluster: %w", err)
	}
	t := template(pkix.Name{CommonName: "unnest cluster"})
	t.IsCA, t.BasicConstraintsValid, t.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, k.key.Public(), k.key)
	if err == nil {
		k.ca, err = x509.ParseCertificate(der)
	}
	if err == nil {
		_, k.tokens, err = newKey()
	}
	if err != nil {
		return k, fmt.Errorf("make keys of the cluster: %w", err)
	}
	return k, nil
}

func template(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{Subject: subject, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(validity)}
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// caPEM is the certificate of the authority.
func (k keys) caPEM() []byte { return certPEM(k.ca.Raw) }

func certPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// client makes the credentials of a user of the API, with at most one group.
func (k keys) client(user string, group ...string) (pair, error) {
	t := template(pkix.Name{CommonName: user, Organization: group})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return k.issue(t)
}

// server makes the credentials of a server with the names, which may be addresses.
func (k keys) server(name string, names ...string) (pair, error) {
	t := template(pkix.Name{CommonName: name})
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return k.issue(t)
}

func (k keys) issue(t *x509.Certificate) (p pair, err error) {
	t.KeyUsage = x509.KeyUsageDigitalSignature
	key, keyPEM, err := newKey()
	if err != nil {
		return p, fmt.Errorf("make key for %s: %w", t.Subject.CommonName, err)
	}
	der, err := x509.CreateCertificate(rand.Reader, t, k.ca, key.Public(), k.key)
	if err != nil {
		return p, fmt.Errorf("sign certificate for %s: %w", t.Subject.CommonName, err)
	}
	return pair{certPEM(der), keyPEM}, nil
}
