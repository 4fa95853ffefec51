package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

const (
	// GuestValidity is how long a guest's certificate is valid. It limits the
	// use of a leaked key. A guest that runs longer needs a new certificate.
	GuestValidity = 30 * 24 * time.Hour
	// LabValidity is how long a lab's authority is valid, and the daemon's own
	// certificate. The key of the latter never leaves the daemon's memory.
	LabValidity = 10 * 365 * 24 * time.Hour
	// clockSkew is how far a guest's clock may be behind the host's.
	clockSkew = 24 * time.Hour
	// PolicyValidity is how long the certificate of a policy client is valid, which runs on
	// a host and is not renewed by itself.
	PolicyValidity = 365 * 24 * time.Hour
)

const (
	authorityFile   = "authority.pem" // certificate and key in one file, so that both appear together
	certificateType = "CERTIFICATE"
	keyType         = "PRIVATE KEY"
)

// Authority issues the certificates of one lab.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// OpenAuthority loads the authority of the lab with the given state directory from
// authority.pem (mode 0600), and creates it if it does not exist. Several processes may
// call it at once.
func OpenAuthority(stateDir string) (*Authority, error) {
	path := filepath.Join(stateDir, authorityFile)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createAuthority(path); err != nil {
			return nil, fmt.Errorf("create certificate authority: %w", err)
		}
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate authority: %w", err)
	}
	a, err := parseAuthority(content)
	if err != nil {
		return nil, fmt.Errorf("read certificate authority %s: %w", path, err)
	}
	return a, nil
}

// createAuthority writes a new authority to path, unless another process was faster.
func createAuthority(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	t := template("unnest lab", LabValidity)
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	return LinkNew(path, append(encodeCertificate(der), keyPEM...))
}

// LinkNew writes a file of mode 0600, whole or not at all. It does not replace an
// existing file.
func LinkNew(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func parseAuthority(content []byte) (*Authority, error) {
	certBlock, rest := pem.Decode(content)
	keyBlock, _ := pem.Decode(rest)
	if certBlock == nil || keyBlock == nil || certBlock.Type != certificateType || keyBlock.Type != keyType {
		return nil, fmt.Errorf("want a %s and a %s in PEM", certificateType, keyType)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the key does not belong to the certificate")
	}
	return &Authority{cert: cert, key: ec}, nil
}

// CertificatePEM is the authority's certificate, the ca.crt that guests trust.
func (a *Authority) CertificatePEM() []byte { return encodeCertificate(a.cert.Raw) }

// Credentials are a certificate with its key.
type Credentials struct {
	CertificatePEM []byte
	KeyPEM         []byte // secret
	Fingerprint    string // SHA-256 of the certificate's DER form, in hex
	Serial         string // as Serial returns it
	Expires        time.Time
}

// Issue makes credentials for the guest of the given name. They are valid for
// GuestValidity, as a client's only.
func (a *Authority) Issue(guest string) (Credentials, error) {
	t, err := guestTemplate(guest)
	if err != nil {
		return Credentials{}, err
	}
	return a.sign(t)
}

func guestTemplate(guest string) (*x509.Certificate, error) {
	if err := CheckGuestName(guest); err != nil {
		return nil, err
	}
	t := template(guest, GuestValidity)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	t.URIs = []*url.URL{guestURI(guest)}
	return t, nil
}

// IssuePolicy makes credentials for the client that chooses the connections of a tenant's
// pods. They are valid for PolicyValidity, as a client's only.
func (a *Authority) IssuePolicy(tenant string) (Credentials, error) {
	if err := CheckGuestName(tenant); err != nil {
		return Credentials{}, fmt.Errorf("tenant: %w", err)
	}
	t := template("policy of "+tenant, PolicyValidity)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	t.URIs = []*url.URL{policyURI(tenant)}
	return a.sign(t)
}

// issueServer makes credentials for a daemon that listens on ip.
func (a *Authority) issueServer(ip net.IP) (Credentials, error) {
	t := template("unnest hostd", time.Until(a.cert.NotAfter))
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	t.IPAddresses = []net.IP{ip}
	return a.sign(t)
}

func (a *Authority) sign(t *x509.Certificate) (Credentials, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Credentials{}, fmt.Errorf("make key for %s: %w", t.Subject.CommonName, err)
	}
	c, err := a.certify(t, &key.PublicKey)
	if err != nil {
		return Credentials{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Credentials{}, fmt.Errorf("encode key for %s: %w", t.Subject.CommonName, err)
	}
	return Credentials{
		CertificatePEM: encodeCertificate(c.Raw), KeyPEM: keyPEM,
		Fingerprint: Fingerprint(c), Serial: Serial(c), Expires: c.NotAfter,
	}, nil
}

// certify signs a certificate for a key. It does not outlive the authority.
func (a *Authority) certify(t *x509.Certificate, key *ecdsa.PublicKey) (*x509.Certificate, error) {
	if t.NotAfter.After(a.cert.NotAfter) {
		t.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %s: %w", t.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func template(name string, validity time.Duration) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{ // CreateCertificate adds a random serial number
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-clockSkew),
		NotAfter:  now.Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certificateType, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: keyType, Bytes: der}), err
}
