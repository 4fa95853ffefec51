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
	"net/url"
	"regexp"
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

// nameOf returns the guest that a certificate names.
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
