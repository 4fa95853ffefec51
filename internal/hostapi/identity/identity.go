// Package identity authenticates guests and the host daemon to each other by mutual TLS.
// A lab has one certificate authority. A guest's certificate carries the guest's name,
// the daemon's carries the address that it listens on.
//
// The host knows its guests' sockets and addresses, but these do not identify a guest.
// A container inside a guest can reach the daemon through the guest's NAT, with the
// guest's address; it cannot read the private key, which belongs to root of the guest.
// A socket per guest (vsock, a virtio serial port) would be open to the same container
// in a privileged pod, and exists with some VMMs only. TLS works with any VMM and any
// network.
//
// A certificate can outlive its guest. So the daemon has to compare its Fingerprint with
// the one on record for the present guest of that name. What a guest may ask for does
// not belong here.
package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// ErrNoGuest is wrapped when a peer's certificate does not name a guest.
var ErrNoGuest = errors.New("peer's certificate names no guest")

var guestName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CheckGuestName returns an error unless name is a DNS label in lower case
// (RFC 1123): 1 to 63 of a-z, 0-9 and inner hyphens. A guest's name is also a
// directory's, and part of a URI.
func CheckGuestName(name string) error {
	if !guestName.MatchString(name) {
		return fmt.Errorf("guest name %.80q: want 1 to 63 of a-z, 0-9 and, inside, '-'", name)
	}
	return nil
}

func guestURI(name string) *url.URL {
	return &url.URL{Scheme: "unnest", Host: "guest", Path: "/" + name}
}

// ErrNoPolicyClient is wrapped when a peer's certificate is not that of a policy client.
var ErrNoPolicyClient = errors.New("peer's certificate is not that of a policy client")

func policyURI(tenant string) *url.URL {
	return &url.URL{Scheme: "unnest", Host: "policy", Path: "/" + tenant}
}

// PolicyTenant returns the tenant whose pods' connections the holder of a verified
// certificate may choose. For any other certificate the error wraps ErrNoPolicyClient.
func PolicyTenant(c *x509.Certificate) (string, error) {
	if len(c.URIs) == 1 && len(c.URIs[0].Path) > 0 {
		tenant := c.URIs[0].Path[1:]
		if CheckGuestName(tenant) == nil && c.URIs[0].String() == policyURI(tenant).String() {
			return tenant, nil
		}
	}
	return "", ErrNoPolicyClient
}

// GuestName returns the guest that the peer's verified certificate was issued
// to. For any other certificate, also one that names two guests, the error wraps
// ErrNoGuest.
func GuestName(peer tls.ConnectionState) (string, error) {
	if len(peer.VerifiedChains) == 0 {
		return "", fmt.Errorf("%w: it is not verified", ErrNoGuest)
	}
	return nameOf(peer.PeerCertificates[0])
}

func nameOf(c *x509.Certificate) (string, error) {
	uris := c.URIs
	if len(uris) != 1 {
		return "", fmt.Errorf("%w: it has %d URIs, want 1", ErrNoGuest, len(uris))
	}
	if len(uris[0].Path) > 0 {
		name := uris[0].Path[1:]
		if CheckGuestName(name) == nil && uris[0].String() == guestURI(name).String() {
			return name, nil
		}
	}
	return "", fmt.Errorf("%w: its URI is %.100q, want %q", ErrNoGuest, uris[0], guestURI("NAME"))
}

// Fingerprint is the SHA-256 of the certificate's DER form, in lower-case hex.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Serial is the certificate's serial number in lower-case hex, without leading zeros.
func Serial(c *x509.Certificate) string { return c.SerialNumber.Text(16) }

// ServerConfig returns the daemon's TLS configuration: TLS 1.3 only, with a new
// certificate for the IP address that it listens on. It issues another one when the clock has been put back to before that
// one is valid. Peers need a client certificate of this authority. No session is resumed, so that the validity of the certificate is
// checked for each connection.
func (a *Authority) ServerConfig(listen net.IP) (*tls.Config, error) {
	var mu sync.Mutex
	var present *tls.Certificate
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if present == nil || time.Now().Before(present.Leaf.NotBefore) {
			c, err := a.issueServer(listen)
			if err != nil {
				return nil, err
			}
			pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
			if err != nil {
				return nil, fmt.Errorf("load the daemon's certificate: %w", err)
			}
			present = &pair
		}
		return present, nil
	}
	if _, err := certificate(nil); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		GetCertificate:         certificate,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              roots,
		SessionTicketsDisabled: true,
	}, nil
}

// Names of the files in a guest's credentials directory.
const (
	CAFile          = "ca.crt"
	CertificateFile = "client.crt"
	KeyFile         = "client.key" // mode 0600
)

// ClientConfig returns the guest's TLS configuration, from the files ca.crt, client.crt
// and client.key in dir. The dialler sets the server's name, which has to be the daemon's
// IP address. ClientConfig refuses a key that others than its owner may read.
func ClientConfig(dir string) (*tls.Config, error) {
	keyPath := filepath.Join(dir, KeyFile)
	info, err := os.Stat(keyPath)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("read credentials: %s has mode %04o: chmod 0600 it", keyPath, info.Mode().Perm())
	}
	pair, err := loadPair(dir)
	if err != nil {
		return nil, fmt.Errorf("read credentials in %s: %w", dir, err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("read credentials: %s has no certificate", filepath.Join(dir, CAFile))
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, RootCAs: roots}, nil
}

// ErrExpired is wrapped when the certificate of a guest or a policy client has expired. The message names
// whose it is, the date and the command that issues a new one.
var ErrExpired = errors.New("certificate has expired")

type expiredError struct {
	of, enroll string // whose it is, and the command with what to do next
	date       time.Time
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("certificate of %s expired on %s; run unnest hostd %s", e.of, e.date.UTC().Format(time.DateOnly), e.enroll)
}

func (e *expiredError) Unwrap() error { return ErrExpired }

// Expired returns an error that wraps ErrExpired, for a certificate that has expired.
func Expired(c *x509.Certificate) error {
	if tenant, err := PolicyTenant(c); err == nil {
		return &expiredError{"the policy client of tenant " + tenant, "policy enroll " + tenant + " on the host and start the client with the files", c.NotAfter}
	}
	name, err := nameOf(c)
	if err != nil {
		name = "of unknown name"
	}
	return &expiredError{"guest " + name, "enroll " + name + " on the host and copy the files to the guest", c.NotAfter}
}

// CheckExpired returns an error that wraps ErrExpired if the handshake of a server with
// these roots has failed because the guest's certificate has expired, else nil. It
// verifies the rest of the certificate: anyone can make one that has expired.
func CheckExpired(handshake error, roots *x509.CertPool) error {
	failed := (*tls.CertificateVerificationError)(nil)
	invalid := x509.CertificateInvalidError{}
	if !errors.As(handshake, &failed) || !errors.As(failed.Err, &invalid) || invalid.Reason != x509.Expired || len(failed.UnverifiedCertificates) == 0 {
		return nil
	}
	c := failed.UnverifiedCertificates[0]
	if !time.Now().After(c.NotAfter) {
		return nil // not yet valid
	}
	o := x509.VerifyOptions{Roots: roots, CurrentTime: c.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := c.Verify(o); err != nil {
		return nil
	}
	return Expired(c)
}
